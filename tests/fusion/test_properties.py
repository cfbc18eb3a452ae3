"""What every grouping promises, on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.fusion.random_graphs import graphs
from whence.fusion import (
    ALGORITHMS,
    FusedGraph,
    FusibleGroups,
    GroupLimits,
    check_fused,
    find_dominator_groups,
    find_groups,
    fuse,
    print_fused,
    subgraph,
)
from whence.graph import Graph, Ref
from whence.ops.definition import Pattern
from whence.ops.registry import lookup

COUNT = 150


def operators(graph: Graph) -> list[int]:
    return [node.id for node in graph if node.op not in ("Input", "Const", "Output")]


def check_convex(graph: Graph, groups: FusibleGroups) -> None:
    """No path leaves a group and comes back, checked by following every path, node by node."""
    ids = operators(graph)
    for root in {groups.root(node) for node in ids}:
        inside = {node for node in ids if groups.root(node) == root}
        left: set[int] = set()
        for node in graph:
            sources = {ref.node for ref in node.inputs if ref is not None}
            if node.id in inside:
                assert not sources & left, (
                    f"group of %{root} is left and entered again at %{node.id}"
                )
            elif sources & (left | inside):
                left.add(node.id)


def check_acyclic(graph: Graph, groups: FusibleGroups) -> None:
    successors: dict[int, set[int]] = {}
    for node in operators(graph):
        for ref in graph[node].inputs:
            if ref is not None and groups.root(ref.node) != groups.root(node):
                successors.setdefault(groups.root(ref.node), set()).add(groups.root(node))
    done: set[int] = set()
    path: set[int] = set()

    def visit(group: int) -> None:
        assert group not in path, "groups wait for each other"
        if group in done:
            return
        path.add(group)
        for successor in successors.get(group, ()):
            visit(successor)
        path.remove(group)
        done.add(group)

    for group in list(successors):
        visit(group)


def run_entries(fused: FusedGraph, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs, computed entry by entry."""
    values: dict[Ref, np.ndarray] = {
        node.ref(): value for node, value in zip(fused.graph.inputs, feeds, strict=True)
    }
    values |= {
        node.ref(): node.value
        for node in fused.graph
        if node.op == "Const" and node.value is not None
    }
    for entry in fused:
        outputs = subgraph(fused, entry).run([values[ref] for ref in entry.inputs])
        values.update(zip(entry.outputs, outputs, strict=True))
    return [values[ref] for ref in fused.outputs]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(graph=graphs())
@settings(max_examples=COUNT)
def test_groups_are_convex_and_acyclic(algorithm: str, graph: Graph) -> None:
    groups = find_groups(graph, algorithm)
    check_convex(graph, groups)
    check_acyclic(graph, groups)
    fused = fuse(graph, groups)
    check_fused(fused)
    assert sorted(node.id for entry in fused for node in entry.members) == sorted(operators(graph))


@given(graph=graphs(40))
@settings(max_examples=COUNT)
def test_a_group_has_one_anchor_and_stores_values_of_one_shape(graph: Graph) -> None:
    fused = fuse(graph, find_groups(graph))
    for entry in fused:
        anchors = [
            node
            for node in entry.members
            if lookup(node.op).pattern
            in (Pattern.COMM_REDUCE, Pattern.OUT_ELEMWISE_FUSABLE, Pattern.OPAQUE)
        ]
        assert len(anchors) <= 1
        assert entry.anchor is (anchors[0] if anchors else entry.root)
        if len(entry.members) > 1 and len(entry.root.outputs) == 1:
            assert {graph.type_of(ref) for ref in entry.outputs} == {entry.root.type}
        else:
            assert len(entry.members) == 1


@given(graph=graphs(40))
@settings(max_examples=COUNT)
def test_tight_limits_hold(graph: Graph) -> None:
    limits = GroupLimits(max_depth=3, max_outputs=2, search=4)
    groups = find_dominator_groups(graph, limits=limits)
    check_convex(graph, groups)
    fused = fuse(graph, groups)
    check_fused(fused)
    for entry in fused:
        assert len(entry.members) <= 3
        assert len(entry.outputs) <= 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(graph=graphs(16))
@settings(max_examples=60)
def test_entries_run_in_order_compute_the_graph(algorithm: str, graph: Graph) -> None:
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((4, 4)).astype(np.float32) for _ in graph.inputs]
    expected = graph.run(feeds)
    for was, now in zip(
        expected, run_entries(fuse(graph, find_groups(graph, algorithm)), feeds), strict=True
    ):
        np.testing.assert_array_equal(was, now)


@given(graph=graphs())
@settings(max_examples=30)
def test_grouping_changes_nothing_and_repeats_itself(graph: Graph) -> None:
    before = len(graph), len(graph.ledger.edges)
    assert print_fused(fuse(graph, find_groups(graph))) == print_fused(
        fuse(graph, find_groups(graph))
    )
    assert (len(graph), len(graph.ledger.edges)) == before
