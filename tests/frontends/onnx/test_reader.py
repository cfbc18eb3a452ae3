"""What a file's parts become: ids, names, nested graphs, functions, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper, save

from tests.frontends.onnx.models import assert_like_ort, model, node, run_ort, run_whence
from whence.errors import InputError
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Check, Graph, check_graph
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WHOLE = Check.HASH | Check.NONCONST | Check.ORIGIN
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def info(name: str, dtype: int = F32, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def operators(graph: Graph) -> list[str]:
    return [f"{each.id}:{each.op}" for each in graph if each.op not in ("Input", "Const", "Output")]


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


# ---- nested graphs ----


def branch(name: str, nodes: list[Any], outputs: list[str]) -> GraphProto:
    return helper.make_graph(nodes, name, [], [info(output) for output in outputs])


def conditional() -> ModelProto:
    then = branch(
        "t",
        [node("Add", ["x", "a"], ["t1"], name="then_add"), node("Mul", ["t1", "w"], ["t2"])],
        ["t2"],
    )
    otherwise = branch("e", [node("Sub", ["a", "b"], ["e1"])], ["e1"])
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Neg", ["x"], ["b"]),
        node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=otherwise),
        node("Abs", ["y"], ["z"]),
    ]
    return model(
        nodes, {"x": X, "c": (BOOL, [])}, ["z"], constants={"w": np.full(3, 2, np.float32)}
    )


def test_a_nested_graph_is_closed() -> None:
    graph = read_onnx(conditional())
    check_graph(graph, WHOLE)
    choice = graph[3]
    assert choice.attrs["captures"] == 3
    then, otherwise = choice.bodies["then_branch"], choice.bodies["else_branch"]
    # In order of first use, the same for both; the outer constant is no input but a constant of the
    # graph that uses it.
    outer = [graph.producer(ref) for ref in choice.inputs if ref is not None]
    assert [each.name for each in outer] == ["c", "x", "a", "b"]
    assert [each.name for each in then.inputs] == ["x", "a", "b\0outer"]
    assert [each.name for each in otherwise.inputs] == ["x\0outer", "a", "b"]
    (inner,) = [each for each in then if each.op == "Const"]
    assert inner.value is next(each.value for each in graph if each.op == "Const")
    assert not any(each.op == "Const" for each in otherwise)
    assert then.ledger is graph.ledger


def test_nested_operators_are_numbered_after_the_one_that_holds_them() -> None:
    graph = read_onnx(conditional())
    assert [(source.id, source.op, source.scope) for source in graph.ledger.sources] == [
        (1, "Relu", ""),
        (2, "Neg", ""),
        (3, "If", ""),
        (4, "Sub", "choice/else_branch"),
        (5, "Add", "choice/then_branch"),
        (6, "Mul", "choice/then_branch"),
        (7, "Abs", ""),
    ]
    assert operators(graph[3].bodies["then_branch"]) == ["5:Add", "6:Mul"]


@pytest.mark.parametrize("choice", [True, False])
def test_branches_compute(choice: bool) -> None:
    assert_like_ort(conditional(), {"x": X, "c": np.array(choice)})


def test_a_branch_may_return_an_outer_value_or_a_constant() -> None:
    then = branch("t", [node("Identity", ["x"], ["t1"])], ["t1"])
    otherwise = branch(
        "e",
        [node("Constant", [], ["e1"], value=numpy_helper.from_array(np.ones((2, 3), np.float32)))],
        ["e1"],
    )
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        {"x": X, "c": (BOOL, [])},
        ["y"],
    )
    for value in (True, False):
        assert_like_ort(proto, {"x": X, "c": np.array(value)})


def test_a_branch_for_other_shapes_is_no_contradiction() -> None:
    """Exporters write one branch for each rank they foresee; those that do not fit are never
    taken.
    """
    then = branch("t", [node("MatMul", ["x", "x"], ["t1"])], ["t1"])
    otherwise = branch("e", [node("Relu", ["x"], ["e1"])], ["e1"])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        {"x": X, "c": (BOOL, [])},
        ["y"],
    )
    np.testing.assert_array_equal(
        run_whence(proto, {"x": X, "c": np.array(False)})[0], np.maximum(X, 0)
    )


def loop(*, growing: bool, scalar: bool = True) -> ModelProto:
    """Carries a value through five turns; it grows when asked to. Reads an outer value; collects
    one row a turn.
    """
    shape = [] if scalar else [1]
    step = (
        node("Concat", ["v", "d"], ["v2"], axis=0)
        if growing
        else node("Add", ["v", "d"], ["v2"], name="step")
    )
    nodes = [
        step,
        node("ReduceSum", ["v2"], ["row"], keepdims=0),
        node("Identity", ["go"], ["go2"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", I64, shape), info("go", BOOL, shape), info("v")],
        [info("go2", BOOL), info("v2"), info("row")],
    )
    outer = [
        node("Relu", ["x"], ["d"]),
        node("Loop", ["n", "", "x"], ["last", "rows"], name="turns", body=body),
    ]
    return model(outer, {"x": X}, ["last", "rows"], constants={"n": np.array(5)})


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_a_loop(growing: bool, scalar: bool) -> None:
    proto = loop(growing=growing, scalar=scalar)
    assert_like_ort(proto, {"x": X})
    graph = read_onnx(proto)
    check_graph(graph, WHOLE)
    turns = graph[2]
    assert [str(kind) for kind in turns.outputs] == (
        ["f32[?,3]", "f32[?]"] if growing else ["f32[2,3]", "f32[?]"]
    )
    assert turns.attrs["captures"] == 1


def test_a_loop_remade_for_changing_shapes_leaves_no_trace() -> None:
    graph = read_onnx(loop(growing=True))
    body = graph[2].bodies["body"]
    assert operators(body) == ["3:Concat", "4:ReduceSum", "5:Identity"]
    assert graph.ledger.lost() == []
    for each in list(body):
        if each.id in (3, 4, 5):
            graph.ledger.release(each.origin)
    assert [source.id for source in graph.ledger.lost()] == [3, 4, 5]


def test_loops_in_loops_reach_out_through_both() -> None:
    inner_nodes = [
        node("Add", ["v", "w"], ["v2"]),
        node("Mul", ["v2", "c"], ["v3"]),
        node("Identity", ["go"], ["go2"]),
    ]
    inner = helper.make_graph(
        inner_nodes,
        "inner",
        [info("i", I64, []), info("go", BOOL, []), info("v")],
        [info("go2", BOOL), info("v3")],
    )
    outer_nodes = [
        node("Loop", ["n", "", "u"], ["u2"], body=inner),
        node("Identity", ["going"], ["going2"]),
    ]
    outer = helper.make_graph(
        outer_nodes,
        "outer",
        [info("j", I64, []), info("going", BOOL, []), info("u")],
        [info("going2", BOOL), info("u2")],
    )
    nodes = [node("Relu", ["x"], ["w"]), node("Loop", ["n", "", "x"], ["y"], body=outer)]
    proto = model(
        nodes, {"x": X}, ["y"], constants={"n": np.array(2), "c": np.full(3, 0.5, np.float32)}
    )
    assert_like_ort(proto, {"x": X})
    check_graph(read_onnx(proto), WHOLE)


def test_a_scan() -> None:
    nodes = [node("Add", ["s", "row"], ["s2"]), node("Mul", ["s2", "w"], ["out"])]
    body = helper.make_graph(
        nodes,
        "body",
        [info("s", F32, [2]), info("row", F32, [2])],
        [info("s2", F32, [2]), info("out", F32, [2])],
    )
    how: dict[str, Any] = {
        "num_scan_inputs": 1,
        "scan_input_axes": [1],
        "scan_output_axes": [1],
        "scan_input_directions": [1],
    }
    scan = node("Scan", ["s0", "x"], ["last", "all"], body=body, **how)
    proto = model(
        [node("ReduceMax", ["x"], ["w"], keepdims=0), scan],
        {"x": X, "s0": (F32, [2])},
        ["last", "all"],
    )
    assert_like_ort(proto, {"x": X, "s0": np.zeros(2, np.float32)})
    graph = read_onnx(proto)
    assert [str(kind) for kind in graph[2].outputs] == ["f32[2]", "f32[2,3]"]


# ---- functions ----


def function(
    name: str, inputs: list[str], outputs: list[str], nodes: list[Any], **more: Any
) -> FunctionProto:
    return helper.make_function(
        "local",
        name,
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
        **more,
    )


def calling() -> ModelProto:
    scaled = node("LeakyRelu", ["a"], ["r"], name="leak")
    scaled.attribute.add(name="alpha", ref_attr_name="slope", type=1)
    inner = function("Leak", ["a"], ["r"], [scaled], attributes=["slope"])
    steps = [
        node("Leak", ["a"], ["m"], domain="local", slope=0.5),
        node("Add", ["m", "b"], ["r"]),
        node("Neg", ["m"], ["s"]),
    ]
    outer = function("Twice", ["a", "b"], ["r", "s"], steps)
    nodes = [
        node("Twice", ["x", "x"], ["p", "q"], domain="local", name="first"),
        node("Twice", ["p", "q"], ["y", ""], domain="local", name="second"),
    ]
    return model(
        nodes, {"x": X}, ["y", "q"], functions=[inner, outer], domains={"local": 1}, opset=17
    )


def test_functions_are_inlined() -> None:
    graph = read_onnx(calling())
    check_graph(graph, WHOLE)
    assert operators(graph) == ["3:LeakyRelu", "4:Add", "5:Neg", "8:LeakyRelu", "9:Add", "10:Neg"]
    assert [(source.name, source.op, source.scope) for source in graph.ledger.sources] == [
        ("first", "local::Twice", ""),
        ("m", "local::Leak", "first"),
        ("leak", "LeakyRelu", "first/m"),
        ("r", "Add", "first"),
        ("s", "Neg", "first"),
        ("second", "local::Twice", ""),
        ("m#2", "local::Leak", "second"),
        ("leak#2", "LeakyRelu", "second/m#2"),
        ("r#2", "Add", "second"),
        ("s#2", "Neg", "second"),
    ]
    assert [(stone.node, stone.reason, stone.into) for stone in graph.ledger.tombstones] == [
        (2, Reason.INLINED, 3),
        (1, Reason.INLINED, 4),
        (7, Reason.INLINED, 8),
        (6, Reason.INLINED, 9),
    ]
    assert graph[3].attrs["alpha"] == 0.5
    assert_like_ort(calling(), {"x": X})


def test_a_function_has_its_own_opset_and_its_own_values() -> None:
    """`x` in the function is not the model's `x`; its ReduceSum is of opset 11."""
    body = [node("ReduceSum", ["a"], ["x"], axes=[1], keepdims=1), node("Add", ["x", "a"], ["r"])]
    local = helper.make_function("local", "F", ["a"], ["r"], body, [helper.make_opsetid("", 11)])
    proto = model(
        [node("Relu", ["x"], ["h"]), node("F", ["h"], ["y"], domain="local")],
        {"x": X},
        ["y"],
        functions=[local],
        domains={"local": 1},
    )
    (got,) = run_whence(proto, {"x": X})
    h = np.maximum(X, 0)
    np.testing.assert_array_equal(got, h.sum(1, keepdims=True) + h)


def test_a_functions_optional_input_may_be_left_out() -> None:
    local = function(
        "Bound", ["a", "low", "high"], ["r"], [node("Clip", ["a", "low", "high"], ["r"])]
    )
    call = node("Bound", ["x", "", "h"], ["y"], domain="local")
    proto = model(
        [call],
        {"x": X},
        ["y"],
        functions=[local],
        domains={"local": 1},
        constants={"h": np.array(1, np.float32)},
    )
    np.testing.assert_array_equal(run_whence(proto, {"x": X})[0], np.minimum(X, 1))


def test_a_default_of_a_functions_attribute() -> None:
    leak = node("LeakyRelu", ["a"], ["r"])
    leak.attribute.add(name="alpha", ref_attr_name="slope", type=1)
    local = function(
        "Leak", ["a"], ["r"], [leak], attribute_protos=[helper.make_attribute("slope", 0.25)]
    )
    proto = model(
        [node("Leak", ["x"], ["y"], domain="local")],
        {"x": X},
        ["y"],
        functions=[local],
        domains={"local": 1},
    )
    np.testing.assert_array_equal(run_whence(proto, {"x": X})[0], np.where(X < 0, X * 0.25, X))


def test_a_branch_inside_a_function_reads_the_functions_values() -> None:
    then = branch("t", [node("Add", ["a", "h"], ["t1"])], ["t1"])
    otherwise = branch("e", [node("Identity", ["h"], ["e1"])], ["e1"])
    local = function(
        "F",
        ["a", "c"],
        ["r"],
        [
            node("Relu", ["a"], ["h"]),
            node("If", ["c"], ["r"], then_branch=then, else_branch=otherwise),
        ],
    )
    proto = model(
        [node("F", ["x", "c"], ["y"], domain="local")],
        {"x": X, "c": (BOOL, [])},
        ["y"],
        functions=[local],
        domains={"local": 1},
        opset=17,
    )
    for value in (True, False):
        assert_like_ort(proto, {"x": X, "c": np.array(value)})


def test_helpers_of_an_upgrade_continue_the_chain() -> None:
    graph = read_onnx(model([node("Hardmax", ["x"], ["y"], axis=0)], {"x": X}, ["y"], opset=9))
    assert {(edge.parent, edge.kind) for edge in graph.ledger.edges} == {(1, EdgeKind.LOWER)}
    assert (
        run_ort(model([node("Hardmax", ["x"], ["y"], axis=0)], {"x": X}, ["y"], opset=9), {"x": X})[
            0
        ].sum()
        == 1
    )
