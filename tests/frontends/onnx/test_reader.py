"""What a file's parts become: ids, names, nested graphs, functions, types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from tests.frontends.onnx.models import (
    info,
    model,
    node,
    operators,
)
from whence.errors import InputError
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Check, check_graph
from whence.types import DType, TensorType

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WHOLE = Check.HASH | Check.NONCONST | Check.ORIGIN
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def test_operators_are_numbered_and_named_in_file_order() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="act"),
        node("Neg", ["a"], ["b"]),
        node("Abs", ["b"], ["c"], name="act"),
        node("Exp", ["c"], [""], name=""),
        node("Add", ["a", "w"], ["y"], name="b"),
    ]
    graph = read_onnx(model(nodes, {"x": X}, ["y"], constants={"w": np.ones(3, np.float32)}))
    check_graph(graph, WHOLE)
    assert operators(graph) == ["1:Relu", "2:Neg", "3:Abs", "4:Exp", "5:Add"]
    assert [source.name for source in graph.ledger.sources] == ["act", "b", "act#2", "Exp_4", "b#2"]
    assert [source.op for source in graph.ledger.sources] == ["Relu", "Neg", "Abs", "Exp", "Add"]
    assert graph.ledger.source(5).outputs == ("y",)
    assert all(graph[number].origin == {number} for number in range(1, 6))
    assert all(not each.origin for each in graph if each.op in ("Input", "Const", "Output"))
    assert [each.name for each in graph.inputs] == ["x"]
    assert [each.name for each in graph.outputs] == ["y"]


def test_a_file_out_of_order_is_sorted_but_numbered_as_it_stands() -> None:
    nodes = [node("Neg", ["a"], ["y"], name="late"), node("Relu", ["x"], ["a"], name="early")]
    graph = read_onnx(model(nodes, {"x": X}, ["y"]))
    check_graph(graph, WHOLE)
    assert operators(graph) == ["2:Relu", "1:Neg"]
    assert [source.name for source in graph.ledger.sources] == ["late", "early"]


def test_an_initializer_listed_as_an_input_is_a_constant() -> None:
    weights = np.ones(3, np.float32)
    proto = model(
        [node("Add", ["x", "w"], ["y"])],
        {"x": X, "w": weights},
        ["y"],
        constants={"w": weights},
        ir_version=3,
    )
    graph = read_onnx(proto)
    assert [each.name for each in graph.inputs] == ["x"]
    assert graph.const_value(graph[1].inputs[1]) is not None


def test_absent_inputs_and_outputs() -> None:
    nodes = [
        node("Clip", ["x", "", "hi"], ["a"]),
        node("Clip", ["a", "", ""], ["b"]),
        node("Split", ["b"], ["", "y"], axis=1, num_outputs=2),
    ]
    graph = read_onnx(
        model(nodes, {"x": X[:, :2]}, ["y"], constants={"hi": np.array(1, np.float32)})
    )
    assert [ref is None for ref in graph[1].inputs] == [False, True, False]
    assert len(graph[2].inputs) == 1
    assert len(graph[3].outputs) == 2


def test_names_are_arbitrary_text() -> None:
    name = "*/ ]]> <b>\n\x1b[31m\x00 ü '\""
    proto = model([node("Relu", [name], [name + "y"], name=name)], {name: X}, [name + "y"])
    graph = read_onnx(proto)
    assert graph.ledger.source(1).name == name
    assert graph.inputs[0].name == name


def test_shapes_are_inferred_and_never_taken_from_the_file() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Reshape", ["a", "s"], ["y"])]
    proto = model(nodes, {"x": (F32, ["n", 3]), "s": (I64, [2])}, ["y"])
    proto.graph.output[0].CopyFrom(info("y", F32, [7, None]))
    graph = read_onnx(proto)
    assert graph[1].type == TensorType(DType.F32, ("n", 3))
    assert graph[2].type == TensorType(DType.F32, (None, None))
    assert not graph.claims


def test_given_shapes_replace_the_files() -> None:
    nodes = [node("Add", ["x", "z"], ["a"]), node("Relu", ["a"], ["y"])]
    proto = model(nodes, {"x": (F32, ["n", 3]), "z": (F32, ["n", 3])}, ["y"])
    graph = read_onnx(proto, {"x": (5, 3)})
    assert [str(each.type) for each in graph.inputs] == ["f32[5,3]", "f32[5,3]"]
    assert str(graph[2].type) == "f32[5,3]"


def test_given_shapes_void_what_the_file_says_of_others() -> None:
    nodes = [node("Reshape", ["x", "s"], ["a"]), node("Relu", ["a"], ["y"])]
    proto = model(nodes, {"x": (F32, [1, 3]), "s": (I64, [2])}, ["y"])
    proto.graph.value_info.append(info("a", F32, [1, 3]))
    assert read_onnx(proto).claims == {1: (TensorType(DType.F32, (1, 3)),)}
    given = read_onnx(proto, {"x": [4, 3]})
    assert not given.claims
    assert str(given[2].type) == "f32[...]"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": [1]}, "the model's inputs are 'x', 'z'"),
        ({"x": [1]}, r"shape \[1\] is given for input 'x', which is f32\[n,3\]"),
        ({"x": [-1, 3]}, "is given for input 'x'"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, list[int]], message: str) -> None:
    proto = model(
        [node("Add", ["x", "z"], ["y"])], {"x": (F32, ["n", 3]), "z": (F32, ["n", 3])}, ["y"]
    )
    with pytest.raises(InputError, match=message):
        read_onnx(proto, shapes)


def test_the_model_says_who_made_it() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    proto.producer_name = "someone"
    proto.metadata_props.add(key="author", value="me")
    metadata = read_onnx(proto).metadata
    assert (metadata["onnx.producer_name"], metadata["author"], metadata["onnx.opset"]) == (
        "someone",
        "me",
        "ai.onnx=21",
    )


def test_from_path_bytes_and_message(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    save(proto, tmp_path / "m.onnx")
    for source in (proto, proto.SerializeToString(), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert operators(read_onnx(source)) == ["1:Relu"]


def test_external_data(tmp_path: Path) -> None:
    weights = np.arange(3, dtype=np.float32)
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], constants={"w": weights})
    save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    graph = read_onnx(tmp_path / "m.onnx")
    (const,) = [each for each in graph if each.op == "Const"]
    np.testing.assert_array_equal(const.value, weights)


def test_optional_types_and_sequences() -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, None))
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "i"], ["y"]),
        node("Optional", [], ["o"], type=sequence),
    ]
    graph = read_onnx(model(nodes, {"x": X}, ["y"], constants={"i": np.array(1)}))
    assert [str(graph[number].type) for number in (1, 3)] == ["seq(f32[2,3])", "opt(seq(f32[...]))"]


def test_module_and_line_come_from_metadata() -> None:
    proto = model([node("Relu", ["x"], ["y"], name="/layer1/layer1.0/Relu")], {"x": X}, ["y"])
    proto.graph.node[0].metadata_props.add(
        key="pkg.torch.onnx.stack_trace", value='File "net.py", line 7, in forward\n'
    )
    (source,) = read_onnx(proto).ledger.sources
    assert (source.module, source.line) == ("layer1.0", "net.py:7")
