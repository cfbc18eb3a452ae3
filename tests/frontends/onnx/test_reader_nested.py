"""Nested graphs and functions of a file: ids, captures, inlining."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from tests.frontends.onnx.models import (
    assert_like_ort,
    info,
    model,
    node,
    operators,
    run_ort,
    run_whence,
)
from whence.errors import UnsupportedError
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Check, check_graph
from whence.provenance import EdgeKind, Reason

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WHOLE = Check.HASH | Check.NONCONST | Check.ORIGIN
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


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
    """Carries a value through five iterations; it grows when asked to. Reads an outer value;
    collects one row an iteration.
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
        node("Loop", ["n", "", "x"], ["last", "rows"], name="iterations", body=body),
    ]
    return model(outer, {"x": X}, ["last", "rows"], constants={"n": np.array(5)})


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_a_loop(growing: bool, scalar: bool) -> None:
    proto = loop(growing=growing, scalar=scalar)
    assert_like_ort(proto, {"x": X})
    graph = read_onnx(proto)
    check_graph(graph, WHOLE)
    iterations = graph[2]
    assert [str(kind) for kind in iterations.outputs] == (
        ["f32[?,3]", "f32[?]"] if growing else ["f32[2,3]", "f32[?]"]
    )
    assert iterations.attrs["captures"] == 1


def test_a_loop_remade_for_changing_shapes_leaves_no_trace() -> None:
    graph = read_onnx(loop(growing=True))
    body = graph[2].bodies["body"]
    assert operators(body) == ["3:Concat", "4:ReduceSum", "5:Identity"]
    assert graph.ledger.lost() == []
    for each in list(body):
        if each.id in (3, 4, 5):
            graph.ledger.node_removed(each.origin)
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


def _growing_in_each_other(depth: int) -> GraphProto:
    """A body whose value grows, and that begins a loop of the same kind with a value of its own."""
    names = {name: f"{name}{depth}" for name in ("i", "go", "v", "go2", "v2", "start", "made")}
    nodes = [
        node("Identity", [names["go"]], [names["go2"]]),
        node("Concat", [names["v"], names["v"]], [names["v2"]], axis=0),
    ]
    if depth:
        body = _growing_in_each_other(depth - 1)
        nodes.append(node("Relu", ["c"], [names["start"]]))
        nodes.append(node("Loop", ["n", "", names["start"]], [names["made"]], body=body))
    return helper.make_graph(
        nodes,
        "body",
        [info(names["i"], I64, []), info(names["go"], BOOL, []), info(names["v"])],
        [info(names["go2"], BOOL), info(names["v2"])],
    )


def test_loops_in_loops_are_not_tried_without_end() -> None:
    """Each is made twice, since its value grows, and with it all that it holds."""
    for depth in (3, 24):
        proto = model(
            [
                node("Relu", ["x"], ["c"]),
                node("Loop", ["n", "", "c"], ["y"], body=_growing_in_each_other(depth)),
            ],
            {"x": X},
            ["y"],
            constants={"n": np.array(2)},
        )
        if depth == 3:
            check_graph(read_onnx(proto), WHOLE)
        else:
            with pytest.raises(UnsupportedError, match="loops inside loops"):
                read_onnx(proto)


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
