"""Views around an attention join it, as long as nothing else needs them."""

from __future__ import annotations

import numpy as np

from whence.fusion import find_groups, fuse
from whence.fusion.check import check_fused
from whence.graph.builder import GraphBuilder, Symbol
from whence.types import DType


def _heads(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op(
        "Transpose", build.op("Reshape", x, build.const(np.array([0, 0, 2, -1]))), perm=(0, 2, 1, 3)
    )


def _members(build: GraphBuilder) -> list[str]:
    graph = build.finish()
    fused = fuse(graph, find_groups(graph, "dominator"))
    check_fused(fused)
    return ["+".join(node.op for node in entry.members) for entry in fused]


def test_views_in_front_and_behind_join():
    build = GraphBuilder()
    q, k, v = (_heads(build, build.input(name, DType.F32, [1, 8, 32])) for name in "qkv")
    y = build.op(
        "Reshape",
        build.op("Transpose", build.op("Attention", q, k, v), perm=(0, 2, 1, 3)),
        build.const(np.array([1, 8, 32])),
    )
    build.output("y", build.op("Relu", y))
    assert _members(build) == [
        "Reshape+Transpose+Reshape+Transpose+Reshape+Transpose+Attention+Transpose+Reshape",
        "Relu",
    ]


def test_a_view_that_others_read_stays():
    build = GraphBuilder()
    q, k, v = (_heads(build, build.input(name, DType.F32, [1, 8, 32])) for name in "qkv")
    build.output("y", build.op("Attention", q, k, v))
    build.output("k", build.op("Exp", k))
    assert "Reshape+Transpose+Reshape+Transpose+Attention" in _members(build)


def test_arithmetic_stays_and_is_stored_once():
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 2, 8, 16])
    k = build.op(
        "Expand",
        build.op("Unsqueeze", build.op("Neg", x), build.const(np.array([2]))),
        build.const(np.array([1, 2, 3, 8, 16])),
    )
    k = build.op("Reshape", k, build.const(np.array([1, 6, 8, 16])))
    q = build.input("q", DType.F32, [1, 6, 8, 16])
    build.output("y", build.op("Attention", q, k, k))
    assert _members(build) == ["Neg", "Unsqueeze+Expand+Reshape+Attention"]


def test_masks_are_not_views():
    build = GraphBuilder()
    q, k, v = (build.input(name, DType.F32, [1, 2, 8, 16]) for name in "qkv")
    mask = build.op("Transpose", build.input("mask", DType.F32, [8, 8]))
    build.output("y", build.op("Attention", q, k, v, mask))
    assert _members(build) == ["Transpose", "Attention"]


def test_what_the_graph_gives_away_ends_the_views():
    build = GraphBuilder()
    q, k, v = (build.input(name, DType.F32, [1, 2, 8, 16]) for name in "qkv")
    turned = build.op("Transpose", build.op("Attention", q, k, v), perm=(0, 2, 1, 3))
    build.output("turned", turned)
    build.output("y", build.op("Reshape", turned, build.const(np.array([8, 32]))))
    assert _members(build) == ["Attention+Transpose", "Reshape"]
