"""Random graphs under random rewrites: nothing is lost, nothing is computed differently, and what
fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.compat.random_rewrites import (
    I64X3,
    REWRITES,
    feeds,
    graphs,
    having,
    remove_dead,
    rewriter,
)
from tests.graph.making import F32X4, SOUND, X, carried, fresh, snapshot
from whence.compat.hexagon import change_output_refs, insert_nodes, replace_nodes
from whence.errors import GraphError
from whence.graph import Check, Graph, Node, check_graph
from whence.graph.change import Change
from whence.graph.outcomes import coverage
from whence.provenance import Reason

# ---- rewrites that must fail ----


def remove_a_used_node(graph: Graph, a: int, b: int) -> None:
    node = choose([node for node in graph if graph.use_count(node)], a)
    replace_nodes(graph, None, None, node, pass_name="random", rule="wrong", reason=Reason.DEAD)


def remove_in_the_wrong_order(graph: Graph, a: int, b: int) -> None:
    nodes = list(graph)
    later = choose(nodes[1:], a)
    earlier = nodes[b % nodes.index(later)]
    replace_nodes(
        graph, None, None, later, earlier, pass_name="random", rule="wrong", reason=Reason.DEAD
    )


def remove_without_reason(graph: Graph, a: int, b: int) -> None:
    Change(
        graph, "random", "wrong", removed=[choose([node for node in graph if node.origin], a)]
    ).apply()


def read_what_stands_later(graph: Graph, a: int, b: int) -> None:
    node = choose([node for node in graph if node.outputs and graph.uses(node.ref())], a)
    first, _ = graph.uses(node.ref())[0]
    later = choose(
        [
            other
            for other in graph
            if other.outputs and other.type == node.type and graph.precedes(first, other)
        ],
        b,
    )
    # Part of the change is sound.
    edit = rewriter(graph).edit(rule="wrong")
    edit.replace(first, edit.const(X)) if first.outputs == (F32X4,) else None
    edit.replace(node.ref(), later.ref())
    edit.apply()


def change_the_type(graph: Graph, a: int, b: int) -> None:
    integers = graph.first
    assert integers is not None
    assert integers.type == I64X3
    node = choose([node for node in graph if node.origin and node.outputs], a)
    rewriter(graph).bypass(node, integers.ref(), reason=Reason.IDENTITY, rule="wrong")


def read_an_output_that_is_not_there(graph: Graph, a: int, b: int) -> None:
    node = choose(
        [node for node in graph if node.origin and node.outputs == (F32X4,) and not node.is_const],
        a,
    )
    edit = rewriter(graph).edit(node, rule="wrong")
    edit.replace(node, edit.const(X))
    edit.node("vendor::Unknown", [choose(list(graph), b).ref(7)], types=F32X4)
    edit.apply()


def take_an_id(graph: Graph, a: int, b: int) -> None:
    taken = choose(list(graph), a)
    insert_nodes(
        graph,
        None,
        fresh(graph, "Const", node_id=taken.id, cause=taken),
        pass_name="random",
        rule="wrong",
    )


def pattern_without_an_answer(graph: Graph, a: int, b: int) -> None:
    node = choose([node for node in graph if graph.use_count(node)], a)
    change_output_refs(graph, None, node.id, node.id, 0)


def forget_the_bodies(graph: Graph, a: int, b: int) -> None:
    branch = choose(having(graph, "If"), a)
    edit = rewriter(graph).edit(branch, rule="wrong")
    edit.node("Relu", [branch.inputs[1]], inherit=branch if b % 2 else None)
    edit.replace(branch, branch.inputs[1] or branch)
    edit.apply()


def choose(nodes: Sequence[Node], choice: int) -> Node:
    assume(nodes)
    return nodes[choice % len(nodes)]


WRONG: tuple[Callable[[Graph, int, int], None], ...] = (
    remove_a_used_node,
    remove_in_the_wrong_order,
    remove_without_reason,
    read_what_stands_later,
    change_the_type,
    read_an_output_that_is_not_there,
    take_an_id,
    pattern_without_an_answer,
    forget_the_bodies,
)

numbers = st.integers(0, 2**10)


@settings(max_examples=150)
@given(
    graphs(),
    st.lists(
        st.tuples(st.sampled_from(REWRITES), numbers, numbers, numbers), min_size=1, max_size=25
    ),
)
def test_rewrites_keep_everything(
    graph: Graph, steps: list[tuple[Callable[[Graph, int, int], bool], int, int, int]]
) -> None:
    expected = graph.run(feeds(graph))
    check_graph(graph, SOUND)
    for rewrite, where, a, b in steps:
        nested = list(graph.nested())
        if not rewrite(nested[where % len(nested)], a, b):
            continue
        check_graph(graph, SOUND, after=rewrite.__name__)
        graph.ledger.check_conserved(rewrite.__name__)
        for was, now in zip(expected, graph.run(feeds(graph)), strict=True):
            assert np.array_equal(was, now), rewrite.__name__
    summary = coverage(graph)
    assert summary.lost == 0
    assert summary.live + summary.folded == len(carried(graph) | folded_and_gone(graph))


def folded_and_gone(graph: Graph) -> set[int]:
    """Sources whose last tombstone says that they were folded."""
    last = {source: stone.reason for stone in graph.ledger.tombstones for source in stone.origin}
    return {source for source, reason in last.items() if reason is Reason.FOLDED} - carried(graph)


@settings(max_examples=100)
@given(
    graphs(),
    st.lists(st.tuples(st.sampled_from(REWRITES), numbers, numbers), max_size=8),
    st.sampled_from(WRONG),
    numbers,
    numbers,
    numbers,
)
def test_a_failing_rewrite_changes_nothing(
    graph: Graph,
    steps: list[tuple[Callable[[Graph, int, int], bool], int, int]],
    wrong: Callable[[Graph, int, int], None],
    where: int,
    a: int,
    b: int,
) -> None:
    for rewrite, c, d in steps:
        rewrite(graph, c, d)
    nested = list(graph.nested())
    target = nested[where % len(nested)]
    target.prepend(Node(target.new_id(), "Const", (), (I64X3,), value=np.arange(3)))
    before = snapshot(graph)
    with pytest.raises(GraphError) as caught:
        wrong(target, a, b)
    assert "\n" not in str(caught.value)
    assert snapshot(graph) == before
    check_graph(graph, SOUND)


@settings(max_examples=50)
@given(graphs())
def test_dead_nodes_go_to_the_last(graph: Graph) -> None:
    expected = graph.run(feeds(graph))
    for nested in list(graph.nested()):
        while remove_dead(nested, 0, 0):
            pass
    check_graph(graph, SOUND | Check.DEADNODES)
    for was, now in zip(expected, graph.run(feeds(graph)), strict=True):
        assert np.array_equal(was, now)
    assert coverage(graph).lost == 0
