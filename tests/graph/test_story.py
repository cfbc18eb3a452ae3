"""The life of one operator, told from the ledger."""

from __future__ import annotations

from tests.graph.making import X, chain
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.story import Step, tell
from whence.provenance import EdgeKind, Fate, Reason


def fuse(graph: Graph, pass_name: str, *nodes: Node, inherit: Node | None = None) -> Node:
    edit = Rewriter(graph, pass_name).edit(*nodes, rule=f"rule of {pass_name}")
    new = edit.node("Exp", [nodes[0].inputs[0]], inherit=inherit)
    edit.replace(nodes[-1], new)
    edit.apply()
    return new


def test_untouched() -> None:
    graph = chain("Relu", "Neg")
    story = tell(graph, graph.ledger.source(1))
    assert (story.fate, story.steps, story.tombstones, story.live_in) == (
        Fate.LIVE,
        (),
        (),
        (graph[1],),
    )


def test_step_by_step() -> None:
    graph = chain("Relu", "Neg", "Abs")
    first = fuse(graph, "one", graph[1], graph[2])
    second = fuse(graph, "two", first, graph[3])
    assert tell(graph, graph.ledger.source(1)).steps == (
        Step("one", "rule of one", EdgeKind.FUSE, first.id, frozenset({2})),
        Step("two", "rule of two", EdgeKind.FUSE, second.id, frozenset({2, 3})),
    )
    story = tell(graph, graph.ledger.source(3))
    assert story.steps == (Step("two", "rule of two", EdgeKind.FUSE, second.id, frozenset({1, 2})),)
    assert story.live_in == (second,)


def test_absorbing_again_and_again_under_one_id() -> None:
    graph = chain("Relu", "Neg", "Abs")
    fuse(graph, "absorb", graph[1], graph[2], inherit=graph[1])
    fuse(graph, "absorb", graph[1], graph[3], inherit=graph[1])
    story = tell(graph, graph.ledger.source(1))
    assert [step.partners for step in story.steps] == [{2}, {2, 3}]
    # What was absorbed last had no part in the first step.
    assert [step.partners for step in tell(graph, graph.ledger.source(3)).steps] == [{1, 2}]


def test_folded_and_removed() -> None:
    graph = chain("Relu", "Neg")
    edit = Rewriter(graph, "fold").edit(graph[1], rule="r")
    ref = edit.const(X)
    edit.replace(graph[1], ref)
    edit.apply()
    story = tell(graph, graph.ledger.source(1))
    assert story.fate is Fate.FOLDED
    assert story.steps == (Step("fold", "r", EdgeKind.FOLD, ref.node, frozenset()),)
    Rewriter(graph, "drop").bypass(graph[2], Ref(ref.node), reason=Reason.IDENTITY, rule="r")
    story = tell(graph, graph.ledger.source(2))
    assert (story.fate, story.live_in, len(story.tombstones)) == (Fate.REMOVED, (), 1)
