"""What became of every source operator."""

from __future__ import annotations

import dataclasses

import pytest

from tests.graph.making import F32X4, X, chain, with_branches
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.fates import Coverage, coverage, fates
from whence.provenance import EdgeKind, Fate, Reason, Tombstone


def fold(graph: Graph, node: Node) -> Node:
    """Replace a node by a constant."""
    edit = Rewriter(graph, "fold").edit(node, rule="fold")
    ref = edit.const(X)
    edit.replace(node, ref)
    edit.apply()
    return graph[ref.node]


def test_live_at_the_start() -> None:
    assert fates(chain("Relu", "Neg")) == [Fate.LIVE, Fate.LIVE]
    assert fates(with_branches()) == [Fate.LIVE] * 4
    assert fates(Graph()) == []


def test_live_in_a_fused_node() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], graph[2], rule="r")
    edit.replace(graph[2], edit.node("Exp", [graph.inputs[0].ref()]))
    edit.apply()
    assert fates(graph) == [Fate.LIVE, Fate.LIVE]


def test_folded_into_a_constant() -> None:
    graph = chain("Relu", "Neg")
    fold(graph, graph[1])
    assert fates(graph) == [Fate.FOLDED, Fate.LIVE]


def test_folded_through_a_constant_into_an_operator() -> None:
    # What a constant carries is folded for whoever takes the constant in later.
    graph = chain("Relu", "Neg")
    const = fold(graph, graph[1])
    edit = Rewriter(graph, "p").edit(graph[2], const, rule="r")
    new = edit.node("Exp", [graph.inputs[0].ref()])
    edit.replace(graph[2], new)
    edit.apply()
    graph.remove(const)
    assert new.origin == {1, 2}
    assert fates(graph) == [Fate.FOLDED, Fate.LIVE]


def test_folded_by_a_fold_edge() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], graph[2], rule="r", folded=[graph[2]])
    edit.replace(graph[2], edit.node("Exp", [graph.inputs[0].ref()]))
    edit.apply()
    assert fates(graph) == [Fate.LIVE, Fate.FOLDED]


def test_live_as_long_as_one_node_does_its_work() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[2], rule="r", kind=EdgeKind.REMAT)
    edit.node("Neg", [Ref(1)])
    edit.apply()
    fold(graph, graph[2])
    assert fates(graph) == [Fate.LIVE, Fate.LIVE]


def test_a_constant_of_the_file_is_folded_from_the_start() -> None:
    graph = chain("Relu", "Neg")
    value = Node(1, "Const", (), (F32X4,), value=X, origin=frozenset((1,)))
    graph.set_input(graph[2], 0, graph.inputs[0].ref())
    graph.remove(graph[1])
    graph.prepend(value)
    graph.set_input(graph[2], 0, value.ref())
    assert fates(graph) == [Fate.FOLDED, Fate.LIVE]


@pytest.mark.parametrize(
    ("reason", "fate"),
    [
        (Reason.IDENTITY, Fate.REMOVED),
        (Reason.CSE, Fate.REMOVED),
        (Reason.CANCELLED, Fate.REMOVED),
        (Reason.ABSORBED, Fate.REMOVED),
        (Reason.INLINED, Fate.REMOVED),
        (Reason.DEAD, Fate.DEAD),
        (Reason.FOLDED, Fate.FOLDED),
    ],
)
def test_buried(reason: Reason, fate: Fate) -> None:
    graph = chain("Relu", "Neg")
    Rewriter(graph, "p").bypass(graph[1], graph.inputs[0].ref(), reason=reason, rule="r")
    assert fates(graph) == [fate, Fate.LIVE]


def test_the_last_tombstone_counts_and_only_when_nothing_carries_the_operator() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], rule="r", kind=EdgeKind.REMAT)
    twin = edit.node("Relu", [graph.inputs[0].ref()])
    edit.replace(graph[1], twin)
    edit.bury(graph[1], Reason.CSE, into=twin.id)
    edit.apply()
    assert fates(graph)[0] is Fate.LIVE
    rewriter = Rewriter(graph, "p")
    rewriter.bypass(twin, graph.inputs[0].ref(), reason=Reason.DEAD, rule="r")
    assert fates(graph)[0] is Fate.DEAD


def test_lost() -> None:
    graph = chain("Relu", "Neg")
    graph.set_input(graph.outputs[0], 0, Ref(1))
    graph.remove(graph[2])
    assert fates(graph) == [Fate.LIVE, Fate.LOST]
    assert coverage(graph).lost == 1


def test_nested_graphs_are_looked_into() -> None:
    graph = with_branches(("Relu", "Exp"), ("Neg",))
    body = graph[1].bodies["then_branch"]
    Rewriter(body, "p").bypass(body[2], body.inputs[0].ref(), reason=Reason.IDENTITY, rule="r")
    assert fates(graph) == [Fate.LIVE, Fate.REMOVED, Fate.LIVE, Fate.LIVE, Fate.LIVE]
    Rewriter(graph, "p").bypass(graph[1], graph.inputs[1].ref(), reason=Reason.DEAD, rule="r")
    assert fates(graph) == [Fate.DEAD, Fate.REMOVED, Fate.DEAD, Fate.DEAD, Fate.LIVE]


def test_buried_without_ever_being_a_node() -> None:
    # A call that was inlined while reading.
    graph = chain("Relu", "Neg")
    graph.set_input(graph.outputs[0], 0, Ref(1))
    graph.remove(graph[2])
    graph.ledger.bury(Tombstone(2, frozenset((2,)), Reason.INLINED, "load", "call of f", 1))
    assert fates(graph) == [Fate.LIVE, Fate.REMOVED]


def test_coverage_adds_up() -> None:
    graph = chain("Relu", "Identity", "Neg", "Abs", "Exp")
    Rewriter(graph, "p").bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")
    Rewriter(graph, "p").bypass(graph[5], Ref(4), reason=Reason.DEAD, rule="r")
    graph.set_input(graph[3], 0, graph.inputs[0].ref())
    fold(graph, graph[3])
    graph.remove(graph[1])
    assert coverage(graph) == Coverage(source_ops=5, live=1, folded=1, removed=1, dead=1, lost=1)
    counts = dataclasses.asdict(coverage(graph))
    assert counts.pop("source_ops") == sum(counts.values())
    assert str(coverage(graph)) == "5 source operators: 1 live, 1 folded, 1 removed, 1 dead, 1 lost"
    assert str(coverage(chain("Relu"))) == "1 source operators: 1 live, 0 lost"
