"""Graphs written as ONNX: clean for the checker, equal in ONNX Runtime, and with their origins
inside.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, checker, helper

from tests.frontends.onnx.models import assert_close, model, node, run_ort, run_whence
from tests.frontends.onnx.test_reader_nested import calling, conditional, loop
from whence.api import save
from whence.compat.hexagon_consts import prepend_shape_only_const
from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import ExternalWeights, to_model, write_onnx
from whence.frontends.origin_metadata import FOLDED, ORIGIN, SOURCES, TOMBSTONES
from whence.graph import Check, Graph, Rewriter, check_graph
from whence.graph.builder import GraphBuilder
from whence.graph.interpreter import run
from whence.provenance import EdgeKind, Reason
from whence.types import DType

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
WHOLE = Check.HASH | Check.NONCONST | Check.ORIGIN


def written(graph: Graph) -> ModelProto:
    proto = to_model(graph)
    checker.check_model(proto, full_check=False)
    return proto


def assert_round_trip(proto: ModelProto, feeds: dict[str, Any]) -> ModelProto:
    """Read, write, and compare what ONNX Runtime computes with both; the copy has the same sources
    and loses none.
    """
    graph = read_onnx(proto)
    copy = written(graph)
    assert_close(run_ort(copy, feeds), run_ort(proto, feeds))
    again = read_onnx(copy)
    check_graph(again, WHOLE)
    assert again.ledger.sources == graph.ledger.sources
    assert_close(run_whence(copy, feeds), run_ort(proto, feeds))
    return copy


def test_a_plain_model() -> None:
    nodes = [node("Add", ["x", "w"], ["a"], name="add"), node("Relu", ["a"], ["y"], name="act")]
    copy = assert_round_trip(
        model(nodes, {"x": X}, ["y"], constants={"w": np.ones(3, np.float32)}), {"x": X}
    )
    assert [each.name for each in copy.graph.node] == ["add", "act"]
    assert [each.name for each in copy.graph.initializer] == ["w"]
    assert copy.graph.output[0].name == "y"
    assert copy.producer_name == "whence"
    assert copy.ir_version >= 10


@pytest.mark.parametrize("choice", [True, False])
def test_branches(choice: bool) -> None:
    copy = assert_round_trip(conditional(), {"x": X, "c": np.array(choice)})
    (branches,) = [each for each in copy.graph.node if each.op_type == "If"]
    assert list(branches.input) == ["c"]
    assert all(not attribute.g.initializer for attribute in branches.attribute)


@pytest.mark.parametrize("growing", [False, True])
def test_loops(growing: bool) -> None:
    assert_round_trip(loop(growing=growing), {"x": X})


def test_inlined_functions() -> None:
    copy = assert_round_trip(calling(), {"x": X})
    assert not copy.functions
    stones = json.loads(
        next(entry.value for entry in copy.metadata_props if entry.key == TOMBSTONES)
    )
    assert [(origin, reason) for origin, reason, *_ in stones] == [
        ([2], "inlined"),
        ([1], "inlined"),
        ([7], "inlined"),
        ([6], "inlined"),
    ]


def test_outputs_that_are_inputs_constants_or_twice() -> None:
    build = GraphBuilder("ends")
    x = build.input("x", DType.F32, [2, 3])
    y = build.op("Relu", x, name="act")
    build.output("same", x)
    build.output("one", y)
    build.output("two", y)
    build.output("fixed", build.const(np.ones(2, np.float32)))
    graph = build.finish()
    proto = written(graph)
    assert [each.name for each in proto.graph.output] == ["same", "one", "two", "fixed"]
    assert_close(run_ort(proto, {"x": X}), run(graph, {"x": X}))
    copies = [each for each in proto.graph.node if each.op_type == "Identity"]
    assert [{entry.key: entry.value for entry in each.metadata_props} for each in copies] == [
        {ORIGIN: "[]"}
    ] * 3


def test_names_are_unique_and_ends_keep_theirs() -> None:
    build = GraphBuilder()
    x = build.input("n", DType.F32, [3])
    a = build.op("Relu", x, name="n")
    b = build.op("Neg", a, name="n")
    c = build.op("Split", b, name="n", n_outputs=3, num_outputs=3)
    build.output("n_2", c[1])
    proto = written(build.finish())
    values = [name for each in proto.graph.node for name in each.output] + ["n"]
    assert len(set(values)) == len(values)
    assert len({each.name for each in proto.graph.node}) == 3
    assert proto.graph.node[2].output[1] == "n_2"


def supernodes() -> Graph:
    build = GraphBuilder("fused")
    x = build.input("x", DType.F32, [1, 3, 6, 6])
    rng = np.random.default_rng(3)

    def const(*shape: int) -> Any:
        return build.const(rng.standard_normal(shape).astype(np.float32))

    y = build.op(
        "FusedConv",
        x,
        const(4, 3, 3, 3),
        const(4),
        name="conv",
        activation="Clip",
        activation_alpha=0.0,
        activation_beta=6.0,
    )
    y = build.op(
        "FusedConv",
        y,
        const(4, 4, 1, 1),
        None,
        const(1, 4, 4, 4),
        name="residual",
        activation="Swish",
    )
    flat = build.op("Flatten", y, name="flat")
    y = build.op("FusedGemm", flat, const(64, 8), const(8), name="gemm", activation="GeluTanh")
    y = build.op(
        "FusedMatMul",
        y,
        const(5, 8),
        const(5),
        name="matmul",
        trans_b=1,
        alpha=0.5,
        activation="Relu",
    )
    build.output("y", y)
    return build.finish()


def test_supernodes_are_written_in_plain_operators() -> None:
    graph = supernodes()
    proto = written(graph)
    x = np.random.default_rng(4).standard_normal((1, 3, 6, 6)).astype(np.float32)
    assert_close(run_ort(proto, {"x": x}), run(graph, {"x": x}), 1e-4)
    origins = {
        each.op_type: [entry.value for entry in each.metadata_props if entry.key == ORIGIN]
        for each in proto.graph.node
    }
    assert origins["Conv"] == ["[2]"]
    assert origins["Gemm"] == origins["Gelu"] == ["[4]"]
    again = read_onnx(proto)
    assert again.ledger.lost() == []
    assert again.ledger.sources == graph.ledger.sources


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "opset"),
    [
        ("Relu", 1, {}, 18),
        ("ReduceSum", 1, {"keepdims": 0}, 18),
        ("Gelu", 1, {}, 20),
        ("Swish", 1, {}, 24),
        ("Cast", 1, {"to": int(DType.I32), "saturate": 1}, 18),
        ("Cast", 1, {"to": int(DType.F8E4M3FN)}, 19),
        ("Cast", 1, {"to": int(DType.U4)}, 21),
        ("QuantizeLinear", 2, {"axis": 0}, 18),
        ("QuantizeLinear", 2, {"output_dtype": int(DType.I8)}, 21),
        ("GridSample", 0, {}, 20),
    ],
)
def test_the_lowest_opset_that_says_it(
    op: str, inputs: int, attrs: dict[str, Any], opset: int
) -> None:
    build = GraphBuilder()
    if op == "GridSample":
        y = build.op(
            op, build.input("x", DType.F32, [1, 1, 4, 4]), build.input("g", DType.F32, [1, 2, 2, 2])
        )
    else:
        y = build.op(
            op,
            build.input("x", DType.F32, [2, 3]),
            *[build.const(np.float32(0.5))] * (inputs - 1),
            **attrs,
        )
    build.output("y", y)
    proto = written(build.finish())
    assert {entry.domain: entry.version for entry in proto.opset_import} == {"": opset}


def test_attributes_that_say_nothing_do_not_raise_the_opset() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    build.output(
        "y",
        build.op(
            "DequantizeLinear",
            build.op("QuantizeLinear", x, build.const(np.float32(1)), saturate=1, block_size=0),
            build.const(np.float32(1)),
        ),
    )
    proto = written(build.finish())
    assert proto.opset_import[0].version == 18
    assert not proto.graph.node[0].attribute


def test_classical_operators_keep_their_domain() -> None:
    encoder = node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_strings=["a", "b"],
        values_int64s=[1, 2],
        default_int64=0,
    )
    proto = model(
        [encoder],
        {"x": (TensorProto.STRING, [3])},
        ["y"],
        domains={"ai.onnx.ml": 3},
        output_types={"y": TensorProto.INT64},
    )
    copy = assert_round_trip(proto, {"x": np.array(["b", "q", "a"], np.object_)})
    assert {entry.domain: entry.version for entry in copy.opset_import} == {"": 18, "ai.onnx.ml": 2}


@pytest.mark.parametrize(
    "dtype",
    [
        DType.F16,
        DType.BF16,
        DType.I4,
        DType.U2,
        DType.F8E5M2,
        DType.F4E2M1,
        DType.C64,
        DType.STRING,
        DType.BOOL,
    ],
)
def test_constants_of_any_type(dtype: DType) -> None:
    array = (
        np.array(["a", "ü"], np.object_)
        if dtype is DType.STRING
        else np.array([1, 0, 1]).astype(dtype.numpy)
    )
    build = GraphBuilder()
    build.output("y", build.op("Identity", build.const(array, name="c")))
    graph = read_onnx(written(build.finish()))
    (const,) = [each for each in graph if each.op == "Const"]
    assert const.value is not None
    assert DType.of(const.value) is dtype
    np.testing.assert_array_equal(const.value, array)


def test_types_in_attributes_survive() -> None:
    kind = helper.make_optional_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    ).optional_type.elem_type
    nodes = [node("Optional", [], ["o"], type=kind), node("OptionalHasElement", ["o"], ["y"])]
    copy = written(read_onnx(model(nodes, {}, ["y"], output_types={"y": TensorProto.BOOL})))
    assert copy.graph.node[0].attribute[0].tp == kind


def test_large_weights_go_beside_the_model(tmp_path: Path) -> None:
    weights = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    half = np.ones(5000, np.int8).astype(ml_dtypes.int4)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["y"]),
        node("Cast", ["h"], ["z"], to=TensorProto.FLOAT),
    ]
    proto = model(
        nodes,
        {"x": X},
        ["y", "z"],
        constants={"w": weights, "b": np.ones(1, np.float32), "h": half},
    )
    write_onnx(read_onnx(proto), tmp_path / "m.onnx", inline_limit=1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    external = [
        each.name for each in bare.graph.initializer if each.data_location == TensorProto.EXTERNAL
    ]
    assert external == ["w", "h"]
    checker.check_model(str(tmp_path / "m.onnx"))
    again = read_onnx(tmp_path / "m.onnx")
    assert_close(run(again, {"x": X}), run_whence(proto, {"x": X}))
    whole = onnx.load(tmp_path / "m.onnx")
    assert_close(run_ort(whole, {"x": X})[:1], run_ort(proto, {"x": X})[:1])


def test_small_weights_stay_inside(tmp_path: Path) -> None:
    write_onnx(supernodes(), tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_no_model_is_written_whose_weights_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    close = ExternalWeights.close

    def full(weights: ExternalWeights) -> None:
        close(weights)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(ExternalWeights, "close", full)
    with pytest.raises(WhenceError, match=r"cannot write .*m.onnx': no space left"):
        write_onnx(supernodes(), tmp_path / "m.onnx", inline_limit=0)
    assert not (tmp_path / "m.onnx").exists()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WhenceError, match=r"cannot write .*no/folder"):
        write_onnx(supernodes(), tmp_path / "no/folder/m.onnx")
    graph = supernodes()
    const = prepend_shape_only_const(graph, graph.new_id(), DType.F32, (2,), name="hollow")
    assert const.value is None
    with pytest.raises(UnsupportedError, match="constant 'hollow' has no data"):
        to_model(graph)


# ---- the chain of origins ----


def folded() -> Graph:
    """conv + bn as one convolution, and an identity gone: what a pass leaves behind."""
    build = GraphBuilder("chain")
    x = build.input("x", DType.F32, [1, 2, 4, 4])
    conv = build.op("Conv", x, build.const(np.ones((2, 2, 1, 1), np.float32)), name="conv")
    same = build.op("Identity", conv, name="same")
    bn = build.op(
        "BatchNormalization",
        same,
        *[build.const(np.ones(2, np.float32)) for _ in range(4)],
        name="bn",
    )
    build.output("y", build.op("Relu", bn, name="act"))
    graph = build.finish()
    rewriter = Rewriter(graph, "tidy")
    rewriter.bypass(graph[2], graph[1].ref(), reason=Reason.IDENTITY, rule="x = x")
    fused = Rewriter(graph, "fold_batch_norm")
    edit = fused.edit(graph[1], graph[3], rule="bn into conv", folded=[graph[3]])
    new = edit.node(
        "Conv",
        [graph[1].inputs[0], edit.const(np.full((2, 2, 1, 1), 0.5, np.float32))],
        name="conv",
    )
    edit.replace(graph[3], new)
    edit.apply()
    return graph


def test_origins_continue_through_a_file() -> None:
    first = folded()
    copy = written(first)
    entries = {
        each.name: {entry.key: entry.value for entry in each.metadata_props}
        for each in copy.graph.node
    }
    assert entries == {"conv": {ORIGIN: "[1,3]", FOLDED: "[3]"}, "act": {ORIGIN: "[4]"}}
    second = read_onnx(copy)
    check_graph(second, WHOLE)
    assert second.ledger.sources == first.ledger.sources
    conv, act = (each for each in second if each.op not in ("Input", "Const", "Output"))
    assert conv.origin == {1, 3}
    assert act.origin == {4}
    assert min(conv.id, act.id) > 4
    kinds = {(edge.parent, edge.kind) for edge in second.ledger.edges if edge.child == conv.id}
    assert kinds == {(1, EdgeKind.COPY), (3, EdgeKind.FOLD)}
    assert second.ledger.folded_origins()[conv.id] == {3}
    (stone,) = second.ledger.tombstones
    assert stone.origin == {2}
    assert (stone.reason, stone.pass_name, stone.rule) == (Reason.IDENTITY, "tidy", "x = x")
    assert second.ledger.lost() == []
    third = written(second)
    assert [each.metadata_props for each in third.graph.node] == [
        each.metadata_props for each in copy.graph.node
    ]


def test_constants_carry_origins_too() -> None:
    proto = model(
        [node("Constant", [], ["k"], value_floats=[1.0, 2.0, 3.0]), node("Add", ["x", "k"], ["y"])],
        {"x": X},
        ["y"],
    )
    copy = assert_round_trip(proto, {"x": X})
    assert [
        {entry.key: entry.value for entry in each.metadata_props} for each in copy.graph.initializer
    ] == [{ORIGIN: "[1]"}]
    (const,) = [each for each in read_onnx(copy) if each.op == "Const"]
    assert const.origin == {1}


def test_what_other_tools_add_and_drop() -> None:
    copy = written(folded())
    copy.graph.node[1].op_type = "Identity"
    copy.graph.node[1].ClearField("metadata_props")
    graph = read_onnx(copy)
    check_graph(graph, WHOLE)
    assert [source.name for source in graph.ledger.sources] == [
        "conv",
        "same",
        "bn",
        "act",
        "act#2",
    ]
    assert graph[5].op == "Identity"
    dropped = graph.ledger.tombstones[-1]
    assert dropped.origin == {4}
    assert (dropped.reason, dropped.rule) == (
        Reason.EARLIER,
        "in whence.sources, but no operator of this file came from it",
    )


def test_origins_without_sources_are_ignored() -> None:
    copy = written(folded())
    del copy.metadata_props[:]
    graph = read_onnx(copy)
    assert [source.name for source in graph.ledger.sources] == ["conv", "act"]
    assert [each.origin for each in graph if each.origin] == [{1}, {2}]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SOURCES, "[[2]]"),
        (SOURCES, "{}"),
        (SOURCES, "nonsense"),
        (SOURCES, "[" * 100000),
        (SOURCES, '[[1,"a","b","","","","",[1]]]'),
        (TOMBSTONES, "[[1]]"),
        (TOMBSTONES, '[[[9],"dead","p","r"]]'),
        (TOMBSTONES, '[[[1],"gone fishing","p","r"]]'),
    ],
)
def test_malformed_metadata_of_the_model(key: str, text: str) -> None:
    copy = written(folded())
    next(entry for entry in copy.metadata_props if entry.key == key).value = text
    with pytest.raises(ModelError, match=f"metadata '{key}'"):
        read_onnx(copy)


def test_text_of_metadata_can_be_written_again(tmp_path: Path) -> None:
    """JSON has lone surrogates, which no encoding takes."""
    copy = written(read_onnx(model([node("Relu", ["x"], ["y"], name="act")], {"x": X}, ["y"])))
    entry = next(entry for entry in copy.metadata_props if entry.key == SOURCES)
    entry.value = entry.value.replace("act", "act\\ud800")
    graph = read_onnx(copy)
    assert graph.ledger.sources[0].name == "act\\ud800"
    save(graph, tmp_path / "model.tflite")


@pytest.mark.parametrize("text", ["[0]", "[5]", "[true]", '["1"]', "1", "{}", "["])
def test_malformed_metadata_of_a_node(text: str) -> None:
    copy = written(folded())
    copy.graph.node[0].metadata_props[0].value = text
    with pytest.raises(
        ModelError,
        match=f"operator 'conv': metadata '{ORIGIN}' should be a list of numbers from 1 to 4",
    ):
        read_onnx(copy)


def test_the_models_own_metadata_survives() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    proto.metadata_props.add(key="author", value="me")
    proto.doc_string = "a model"
    copy = written(read_onnx(proto))
    assert {"author": "me"}.items() <= {
        entry.key: entry.value for entry in copy.metadata_props
    }.items()
    assert copy.doc_string == "a model"
