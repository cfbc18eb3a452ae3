"""The walk in which nodes give way to values that exist already."""

from __future__ import annotations

from tests.passes.rewriting import only, operators
from whence.graph import Check, NodeFlag, Rewriter, check_graph
from whence.graph.builder import GraphBuilder
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import DType, TensorType


def test_readers_are_reconnected_as_they_are_reached_and_the_rest_leaves_at_the_end() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    value = x
    for _ in range(3):
        value = build.op("Identity", value)
    build.output("y", build.op("Add", value, value))
    graph = build.finish()
    rewriter = Rewriter(graph, "test")
    sweep = ForwardSweep(rewriter)
    for node in sweep:
        if node.op == "Identity":
            assert node.inputs == (graph.inputs[0].ref(),)
            assert sweep.replace(node, [node.inputs[0]], reason=Reason.IDENTITY, rule="law")
        elif node.op == "Add":
            assert node.inputs == (graph.inputs[0].ref(),) * 2
    assert operators(graph) == ["Identity"] * 3 + ["Add"]
    sweep.finish()
    assert operators(graph) == ["Add"]
    assert (rewriter.rules, rewriter.removed) == ({"law": 3}, 3)
    check_graph(graph, Check.ALL)


def test_one_output_of_several_may_be_replaced_by_another_value_each() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    parts = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    a, b = build.op("Abs", parts[0]), build.op("Abs", parts[1])
    later = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    build.output("y", build.op("Sub", later[0], later[1]))
    build.output("a", a)
    build.output("b", b)
    graph = build.finish()
    sweep = ForwardSweep(Rewriter(graph, "test"))
    for node in sweep:
        if node.id == 4:
            sweep.replace(node, [graph[3].ref(), graph[2].ref()], reason=Reason.CSE, rule="swap")
    sweep.finish()
    assert only(graph, "Sub").inputs == (graph[3].ref(), graph[2].ref())
    check_graph(graph, Check.HASH | Check.ORIGIN)


def test_retained_nodes_and_contradicting_types_are_refused() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [4]), build.input("z", DType.F32, [5])
    build.output("y", build.op("Relu", x))
    build.output("w", build.op("Abs", z))
    graph = build.finish()
    relu, absolute = only(graph, "Relu"), only(graph, "Abs")
    relu.flags |= NodeFlag.RETAIN
    sweep = ForwardSweep(Rewriter(graph, "test"))
    assert not sweep.replace(relu, [graph.inputs[0].ref()], reason=Reason.IDENTITY, rule="law")
    assert not sweep.replace(absolute, [graph.inputs[0].ref()], reason=Reason.IDENTITY, rule="law")
    sweep.finish()
    assert operators(graph) == ["Relu", "Abs"]


def test_spares_leave_only_when_nobody_reads_them_any_more() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    first, second = build.op("Neg", x), build.op("Neg", x)
    build.output("y", build.op("Sum", build.op("Neg", first), build.op("Neg", second), second))
    graph = build.finish()
    sweep = ForwardSweep(Rewriter(graph, "test"))
    for node in sweep:
        if node.id in (3, 4):
            inner = graph[node.id - 2]
            sweep.replace(node, inner.inputs, reason=Reason.CANCELLED, rule="law")
            sweep.spare(inner, reason=Reason.CANCELLED, rule="law", into=None)
    sweep.finish()
    assert operators(graph) == ["Neg", "Sum"]
    assert {stone.node for stone in graph.ledger.tombstones} == {1, 3, 4}


def test_equal_values_share_what_is_known_but_inputs_keep_their_signature() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [None])
    build.output("y", build.op("Identity", build.op("Relu", x)))
    build.output("z", build.op("Identity", x))
    graph = build.finish()
    for number in (2, 3):
        graph.set_types(graph[number], [TensorType(DType.F32, ("n",))])
    sweep = ForwardSweep(Rewriter(graph, "test"))
    for node in sweep:
        if node.op == "Identity":
            sweep.replace(node, [node.inputs[0]], reason=Reason.IDENTITY, rule="law")
    sweep.finish()
    assert only(graph, "Relu").type == TensorType(DType.F32, ("n",))
    assert graph.inputs[0].type == TensorType(DType.F32, (None,))
