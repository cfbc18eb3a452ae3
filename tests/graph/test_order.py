"""Order numbers agree with the list however many nodes go to one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.making import F32X4
from whence.graph import Check, Graph, Node, check_graph
from whence.graph import order as order_module


def relu(graph: Graph) -> Node:
    return Node(graph.new_id(), "vendor::Source", (), (F32X4,))


def start(count: int) -> Graph:
    graph = Graph()
    for _ in range(count):
        graph.append(relu(graph))
    return graph


@pytest.mark.parametrize(
    "place", ["before one node", "after one node", "in the middle", "at both ends"]
)
def test_ten_thousand_inserts_at_one_place(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renumbered = 0
    spread = order_module._spread

    def counting(first: Node, last: Node, low: int, step: int) -> int:
        nonlocal renumbered
        touched = spread(first, last, low, step)
        renumbered += touched
        return touched

    monkeypatch.setattr(order_module, "_spread", counting)
    graph = start(100)
    nodes = list(graph)
    left, right = nodes[49], nodes[50]
    for turn in range(10_000):
        if place == "before one node":
            graph.insert_before(right, relu(graph))
        elif place == "after one node":
            graph.insert_before(left._next, relu(graph))  # type: ignore[arg-type]
        elif place == "in the middle":
            right = graph.insert_before(right, relu(graph)) if turn % 2 else right
            graph.insert_before(right, relu(graph))
        else:
            graph.prepend(relu(graph))
            graph.append(relu(graph))
    check_graph(graph, Check.HASH)
    assert all(
        graph.precedes(earlier, later)
        for earlier, later in zip(list(graph), list(graph)[1:], strict=False)
    )
    # Amortised: every insertion pays for the renumbering of a few dozen nodes, not of all that came
    # before it.
    assert renumbered < 40 * len(graph)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["before", "front", "back", "remove", "move"]),
            st.integers(0, 2**16),
            st.integers(0, 2**16),
        ),
        max_size=120,
    )
)
def test_any_sequence_of_insertions_moves_and_removals(steps: list[tuple[str, int, int]]) -> None:
    graph = start(2)
    model = list(graph)
    for action, where, what in steps:
        if action == "front":
            model.insert(0, graph.prepend(relu(graph)))
        elif action == "back" or not model:
            model.append(graph.append(relu(graph)))
        elif action == "before":
            place = where % len(model)
            model.insert(place, graph.insert_before(model[place], relu(graph)))
        elif action == "remove":
            graph.remove(model.pop(where % len(model)))
        else:
            node, anchor = model[where % len(model)], model[what % len(model)]
            graph.move_before(node, anchor)
            if node is not anchor:
                model.remove(node)
                model.insert(model.index(anchor), node)
    assert list(graph) == model
    check_graph(graph, Check.HASH)


def test_a_crowded_pair_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # With hardly any room between neighbours, nearly every insertion has to renumber.
    monkeypatch.setattr(order_module, "_GAP", 2)
    graph = start(3)
    anchor = list(graph)[1]
    for _ in range(500):
        anchor = graph.insert_before(anchor, relu(graph))
    check_graph(graph, Check.HASH)
