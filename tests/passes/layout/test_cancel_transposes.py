"""Transposes that follow each other become one or none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.layout.cancel_transposes import CancelTransposes
from whence.types import DType


def turn(build: GraphBuilder, x: Symbol, *perm: int, name: str = "") -> Symbol:
    return build.op("Transpose", x, name=name, perm=perm)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


@given(st.lists(st.permutations(range(4)), min_size=1, max_size=5), st.booleans())
def test_any_chain_ends_in_at_most_one(perms: list[list[int]], ones: bool) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 3, 1, 2] if ones else [2, 3, 4, 5])
    y = build.op("Neg", x)
    for perm in perms:
        y = turn(build, y, *perm)
    graph = finished(build, y)
    rewrite(graph, CancelTransposes())
    assert len(operators(graph)) <= 2
