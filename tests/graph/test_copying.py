"""Copies are equal, and independent from then on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compat.random_rewrites import REWRITES, feeds, graphs
from tests.graph.making import F32X4, SOUND, assert_sound, chain, snapshot, with_branches
from whence.graph import Graph, Node, Ref, Rewriter, check_graph, print_graph
from whence.provenance import Reason


def test_equal_with_nested_graphs_and_history() -> None:
    graph = with_branches(("Identity", "Relu"))
    body = graph[1].bodies["then_branch"]
    Rewriter(body, "p").bypass(body[2], body.inputs[0].ref(), reason=Reason.IDENTITY, rule="r")
    twin = graph.copy()
    assert print_graph(twin) == print_graph(graph)
    assert twin.ledger.tombstones == graph.ledger.tombstones
    assert {id(nested) for nested in twin.nested()}.isdisjoint(
        id(nested) for nested in graph.nested()
    )
    assert all(nested.ledger is twin.ledger for nested in twin.nested())
    assert_sound(twin)


def test_the_signature_keeps_its_order() -> None:
    graph = chain("Relu")
    graph.prepend(Node(graph.new_id(), "Input", (), (F32X4,), name="second"))
    assert (
        [node.name for node in graph.inputs]
        == [node.name for node in graph.copy().inputs]
        == ["x", "second"]
    )


def test_changes_stay_on_their_side() -> None:
    graph = chain("Relu", "Identity", "Neg")
    twin = graph.copy()
    before = snapshot(graph)
    Rewriter(twin, "p").bypass(twin[2], Ref(1), reason=Reason.IDENTITY, rule="r")
    assert snapshot(graph) == before
    assert_sound(twin)
    Rewriter(graph, "p").bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")
    assert print_graph(graph) == print_graph(twin)


@settings(max_examples=30)
@given(
    graphs(),
    st.lists(
        st.tuples(st.sampled_from(REWRITES), st.integers(0, 99), st.integers(0, 99)), max_size=8
    ),
)
def test_the_same_rewrites_give_the_same_graph(graph: Graph, steps: list[tuple]) -> None:
    twin = graph.copy()
    for rewrite, a, b in steps:
        assert rewrite(graph, a, b) == rewrite(twin, a, b)
    assert print_graph(graph) == print_graph(twin)
    check_graph(twin, SOUND)
    for left, right in zip(graph.run(feeds(graph)), twin.run(feeds(twin)), strict=True):
        assert (left == right).all()
