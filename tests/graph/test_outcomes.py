"""What became of every source operator."""

from __future__ import annotations

import dataclasses

import pytest

from tests.graph.making import F32X4, X, chain, with_branches
from whence.graph import Graph, Node, NodeFlag, Ref, Rewriter
from whence.graph.outcomes import Coverage, coverage, outcomes
from whence.provenance import EdgeKind, Outcome, Reason, Tombstone


def fold(graph: Graph, node: Node) -> Node:
    """Replace a node by a constant."""
    edit = Rewriter(graph, "fold").edit(node, rule="fold")
    ref = edit.const(X)
    edit.replace(node, ref)
    edit.apply()
    return graph[ref.node]


def test_live_at_the_start() -> None:
    assert outcomes(chain("Relu", "Neg")) == [Outcome.LIVE, Outcome.LIVE]
    assert outcomes(with_branches()) == [Outcome.LIVE] * 4
    assert outcomes(Graph()) == []


def test_live_in_a_fused_node() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], graph[2], rule="r")
    edit.replace(graph[2], edit.node("Exp", [graph.inputs[0].ref()]))
    edit.apply()
    assert outcomes(graph) == [Outcome.LIVE, Outcome.LIVE]


def test_folded_into_a_constant() -> None:
    graph = chain("Relu", "Neg")
    fold(graph, graph[1])
    assert outcomes(graph) == [Outcome.FOLDED, Outcome.LIVE]


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
    assert outcomes(graph) == [Outcome.FOLDED, Outcome.LIVE]


def test_folded_by_a_fold_edge() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], graph[2], rule="r", folded=[graph[2]])
    edit.replace(graph[2], edit.node("Exp", [graph.inputs[0].ref()]))
    edit.apply()
    assert outcomes(graph) == [Outcome.LIVE, Outcome.FOLDED]


def test_live_as_long_as_one_node_does_its_work() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[2], rule="r", kind=EdgeKind.REMAT)
    edit.node("Neg", [Ref(1)], flags=NodeFlag.RETAIN)
    edit.apply()
    fold(graph, graph[2])
    assert outcomes(graph) == [Outcome.LIVE, Outcome.LIVE]


def test_a_constant_of_the_file_is_folded_from_the_start() -> None:
    graph = chain("Relu", "Neg")
    value = Node(1, "Const", (), (F32X4,), value=X, origin=frozenset((1,)))
    graph.set_input(graph[2], 0, graph.inputs[0].ref())
    graph.remove(graph[1])
    graph.prepend(value)
    graph.set_input(graph[2], 0, value.ref())
    assert outcomes(graph) == [Outcome.FOLDED, Outcome.LIVE]


@pytest.mark.parametrize(
    ("reason", "fate"),
    [
        (Reason.IDENTITY, Outcome.REMOVED),
        (Reason.CSE, Outcome.REMOVED),
        (Reason.CANCELLED, Outcome.REMOVED),
        (Reason.ABSORBED, Outcome.REMOVED),
        (Reason.INLINED, Outcome.REMOVED),
        (Reason.DEAD, Outcome.DEAD),
        (Reason.FOLDED, Outcome.FOLDED),
    ],
)
def test_buried(reason: Reason, fate: Outcome) -> None:
    graph = chain("Relu", "Neg")
    Rewriter(graph, "p").bypass(graph[1], graph.inputs[0].ref(), reason=reason, rule="r")
    assert outcomes(graph) == [fate, Outcome.LIVE]


def test_the_last_tombstone_counts_and_only_when_nothing_carries_the_operator() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "p").edit(graph[1], rule="r", kind=EdgeKind.REMAT)
    twin = edit.node("Relu", [graph.inputs[0].ref()])
    edit.replace(graph[1], twin)
    edit.tombstone(graph[1], Reason.CSE, into=twin.id)
    edit.apply()
    assert outcomes(graph)[0] is Outcome.LIVE
    rewriter = Rewriter(graph, "p")
    rewriter.bypass(twin, graph.inputs[0].ref(), reason=Reason.DEAD, rule="r")
    assert outcomes(graph)[0] is Outcome.DEAD


def test_lost() -> None:
    graph = chain("Relu", "Neg")
    graph.set_input(graph.outputs[0], 0, Ref(1))
    graph.remove(graph[2])
    assert outcomes(graph) == [Outcome.LIVE, Outcome.LOST]
    assert coverage(graph).lost == 1


def test_nested_graphs_are_looked_into() -> None:
    graph = with_branches(("Relu", "Exp"), ("Neg",))
    body = graph[1].bodies["then_branch"]
    Rewriter(body, "p").bypass(body[2], body.inputs[0].ref(), reason=Reason.IDENTITY, rule="r")
    assert outcomes(graph) == [
        Outcome.LIVE,
        Outcome.REMOVED,
        Outcome.LIVE,
        Outcome.LIVE,
        Outcome.LIVE,
    ]
    Rewriter(graph, "p").bypass(graph[1], graph.inputs[1].ref(), reason=Reason.DEAD, rule="r")
    assert outcomes(graph) == [
        Outcome.DEAD,
        Outcome.REMOVED,
        Outcome.DEAD,
        Outcome.DEAD,
        Outcome.LIVE,
    ]


def test_buried_without_ever_being_a_node() -> None:
    # A call that was inlined while reading.
    graph = chain("Relu", "Neg")
    graph.set_input(graph.outputs[0], 0, Ref(1))
    graph.remove(graph[2])
    graph.ledger.add_tombstone(
        Tombstone(2, frozenset((2,)), Reason.INLINED, "load", "call of f", 1)
    )
    assert outcomes(graph) == [Outcome.LIVE, Outcome.REMOVED]


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
