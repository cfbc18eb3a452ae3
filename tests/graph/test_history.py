"""The life of one operator, told from the ledger."""

from __future__ import annotations

from tests.graph.making import X, chain
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.outcomes import HistoryStep, history_of
from whence.provenance import EdgeKind, Outcome, Reason


def fuse(graph: Graph, pass_name: str, *nodes: Node, inherit: Node | None = None) -> Node:
    edit = Rewriter(graph, pass_name).edit(*nodes, rule=f"rule of {pass_name}")
    new = edit.node("Exp", [nodes[0].inputs[0]], inherit=inherit)
    edit.replace(nodes[-1], new)
    edit.apply()
    return new


def test_untouched() -> None:
    graph = chain("Relu", "Neg")
    history = history_of(graph, graph.ledger.source(1))
    assert (history.outcome, history.steps, history.tombstones, history.live_in) == (
        Outcome.LIVE,
        (),
        (),
        (graph[1],),
    )


def test_step_by_step() -> None:
    graph = chain("Relu", "Neg", "Abs")
    first = fuse(graph, "one", graph[1], graph[2])
    second = fuse(graph, "two", first, graph[3])
    assert history_of(graph, graph.ledger.source(1)).steps == (
        HistoryStep("one", "rule of one", EdgeKind.FUSE, first.id, frozenset({2})),
        HistoryStep("two", "rule of two", EdgeKind.FUSE, second.id, frozenset({2, 3})),
    )
    history = history_of(graph, graph.ledger.source(3))
    assert history.steps == (
        HistoryStep("two", "rule of two", EdgeKind.FUSE, second.id, frozenset({1, 2})),
    )
    assert history.live_in == (second,)


def test_absorbing_again_and_again_under_one_id() -> None:
    graph = chain("Relu", "Neg", "Abs")
    fuse(graph, "absorb", graph[1], graph[2], inherit=graph[1])
    fuse(graph, "absorb", graph[1], graph[3], inherit=graph[1])
    history = history_of(graph, graph.ledger.source(1))
    assert [step.partners for step in history.steps] == [{2}, {2, 3}]
    # What was absorbed last had no part in the first step.
    assert [step.partners for step in history_of(graph, graph.ledger.source(3)).steps] == [{1, 2}]


def test_folded_and_removed() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "fold").edit(graph[1], rule="r")
    ref = edit.const(X)
    edit.replace(graph[1], ref)
    edit.apply()
    history = history_of(graph, graph.ledger.source(1))
    assert history.outcome is Outcome.FOLDED
    assert history.steps == (HistoryStep("fold", "r", EdgeKind.FOLD, ref.node, frozenset()),)
    Rewriter(graph, "drop").bypass(graph[2], Ref(ref.node), reason=Reason.IDENTITY, rule="r")
    history = history_of(graph, graph.ledger.source(2))
    assert (history.outcome, history.live_in, len(history.tombstones)) == (Outcome.REMOVED, (), 1)
