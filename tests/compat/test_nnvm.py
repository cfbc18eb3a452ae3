"""NNVM's attributes, as positions in the list of nodes."""

from __future__ import annotations

from tests.graph.making import chain
from whence.compat.nnvm import graph_find_fusible_groups, graph_fuse
from whence.ops.definition import Pattern


def test_a_chain_of_elementwise_operators_is_one_group() -> None:
    graph = chain("Relu", "Neg", "Abs")
    decorated = graph_find_fusible_groups(graph)
    ops = [graph[node].op for node in decorated.nodes]
    last = ops.index("Abs")
    for own, op in enumerate(ops):
        if op in {"Relu", "Neg", "Abs"}:
            assert decorated.group_root[own] == last
            assert decorated.pattern[own] is Pattern.ELEMWISE
        else:
            assert decorated.group_root[own] == decorated.group_master[own] == own
    (entry,) = graph_fuse(decorated).fused_entry
    assert [member.op for member in entry.members] == ["Relu", "Neg", "Abs"]
    assert decorated.fused_entry == ()


def test_without_optimisation_the_parents_stay() -> None:
    decorated = graph_find_fusible_groups(chain("Relu", "Neg"), opt_level=0)
    assert len(graph_fuse(decorated).fused_entry) >= 1
