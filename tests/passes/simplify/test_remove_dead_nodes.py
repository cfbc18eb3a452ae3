"""What no output needs leaves, in one sweep, and the ledger says why."""

from __future__ import annotations

import numpy as np

from tests.graph.making import with_branches
from tests.graph.structure import structure
from tests.passes.rewriting import operators
from whence.compat.hexagon_consts import ConstCache, get_zero_node
from whence.graph import Check, Graph, Node, NodeFlag, Rewriter, check_graph
from whence.graph.builder import GraphBuilder
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes, remove_unread
from whence.provenance import Reason
from whence.types import DType


def test_one_read_output_keeps_a_node_and_retained_nodes_stay() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    parts = build.op("Split", x, n_outputs=2, axis=0, num_outputs=2)
    build.op("Exp", x, name="retained")
    build.output("y", parts[1])
    graph = build.finish()
    graph[2].flags |= NodeFlag.RETAIN
    before = structure(graph)
    assert run_passes(graph, [RemoveDeadNodes()], check=CheckLevel.INVARIANTS)[0].changes == 0
    assert structure(graph) == before
    assert len(graph) == 4


def test_a_dead_constant_is_not_handed_out_again() -> None:
    build = GraphBuilder()
    build.output("y", build.op("Relu", build.input("x", DType.F32, [4])))
    graph = build.finish()
    consts = ConstCache(graph)
    dead = get_zero_node(consts)
    RemoveDeadNodes().run(Rewriter(graph, "test"))
    assert graph.get(dead) is None
    assert get_zero_node(consts) != dead


def test_each_reader_of_a_node_is_looked_at_at_most_once(monkeypatch) -> None:
    """A constant with many readers costs its readers once, and a living node one look."""
    build = GraphBuilder()
    x, c = build.input("x", DType.F32, [4]), build.const(np.ones(4, np.float32))
    value = x
    for _ in range(300):
        value = build.op("Add", value, c)
        build.op("Mul", x, c)
    build.output("y", value)
    graph = build.finish()
    looks = 0

    class CountingDict(dict[int, int]):
        def __iter__(self):
            nonlocal looks
            for key in dict.__iter__(self):
                looks += 1
                yield key

    for node in graph:
        monkeypatch.setattr(node, "_uses", CountingDict(node._uses))
    uses = sum(len(node._uses) for node in graph)
    RemoveDeadNodes().run(Rewriter(graph, "test"))
    # Once to find what is dead, and once more, for what is, to check that its readers are dead as
    # well.
    assert looks <= 2 * uses
    assert operators(graph) == ["Add"] * 300


def test_dead_branches_leave_with_what_they_hold() -> None:
    graph = with_branches()
    (output,) = graph.outputs
    last = reading(graph, "Abs")
    graph.set_inputs(output, [graph.inputs[1].ref()])
    rewriter = Rewriter(graph, "remove_dead_nodes")
    RemoveDeadNodes().run(rewriter)
    check_graph(graph, Check.HASH | Check.ORIGIN | Check.DEADNODES)
    assert operators(graph) == []
    assert {stone.node for stone in graph.ledger.tombstones} == {1, 2, 3, last.id}


def reading(graph: Graph, op: str) -> Node:
    return next(node for node in graph if node.op == op)


def test_remove_unread_follows_what_only_the_removed_read() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    a = build.op("Exp", x)
    b = build.op("Neg", a)
    build.op("Add", a, b)
    build.output("y", build.op("Relu", a))
    graph = build.finish()
    add = reading(graph, "Add")
    remove_unread(
        Rewriter(graph, "test"), [add.ref(), None], reason=Reason.FOLDED, rule="why", into=7
    )
    assert operators(graph) == ["Exp", "Relu"]
    assert [
        (stone.node, stone.reason, stone.rule, stone.into) for stone in graph.ledger.tombstones
    ] == [
        (3, Reason.FOLDED, "why", 7),
        (2, Reason.FOLDED, "why", 7),
    ]


def test_remove_unread_stops_where_it_is_told_to() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.op("Abs", build.op("Shape", build.op("Exp", x)))
    build.output("y", build.op("Relu", x))
    graph = build.finish()
    remove_unread(
        Rewriter(graph, "test"),
        [reading(graph, "Abs").ref()],
        reason=Reason.FOLDED,
        rule="why",
        into=None,
        last={"Shape"},
    )
    assert operators(graph) == ["Exp", "Relu"]
