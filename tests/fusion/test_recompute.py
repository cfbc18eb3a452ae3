"""What a group would compute too often is stored instead."""

from __future__ import annotations

from whence.fusion import GroupLimits, check_fused, find_dominator_groups, fuse
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def members(graph: Graph, limits: GroupLimits | None = None) -> list[list[str]]:
    fused = fuse(graph, find_dominator_groups(graph, limits=limits))
    check_fused(fused)
    return [[node.op for node in entry.members] for entry in fused]


def test_copies_that_breed_copies_are_stopped() -> None:
    # x + x' doubles the places where x is computed; forty in a row would be 2^40.
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 4])
    for _ in range(40):
        x = build.op("Add", x, build.op("Transpose", x, perm=(1, 0)))
    build.output("y", x)
    graph = build.finish()
    groups = members(graph)
    assert all(len(group) <= 8 for group in groups)
    assert any(len(group) > 2 for group in groups)
    assert members(graph, GroupLimits(copies=1)) == [["Transpose", "Add"]] * 40
