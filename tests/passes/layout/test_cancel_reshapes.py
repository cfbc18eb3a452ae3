"""Reshapes, squeezes and flattens that follow each other become one or none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.structure import structure
from tests.passes.rewriting import operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.layout.cancel_reshapes import CancelReshapes
from whence.passes.manager import run_passes
from whence.types import Dim, DType


def with_ints(build: GraphBuilder, op: str, x: Symbol, *values: int, name: str = "") -> Symbol:
    return build.op(op, x, build.const(np.array(values, np.int64)), name=name)


def reshape(build: GraphBuilder, x: Symbol, *shape: int, name: str = "") -> Symbol:
    return with_ints(build, "Reshape", x, *shape, name=name)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


@pytest.mark.parametrize("shape", [None, ("n", 1, None), ("n", 1, 4)])
def test_squeeze_undoes_unsqueeze_whatever_the_shape(shape: tuple[Dim, ...] | None) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)
    if shape is None:
        y = with_ints(build, "Squeeze", with_ints(build, "Unsqueeze", x, 0, 2), 2, 0)
    else:
        y = with_ints(build, "Unsqueeze", with_ints(build, "Squeeze", x, -2), 1)
    build.output("y", build.op("Identity", y))
    graph = build.finish()
    if shape is None:
        # Nobody can make up an input of unknown rank.
        run_passes(graph, (CancelReshapes(),))
    else:
        rewrite(graph, CancelReshapes())
    assert operators(graph) == ["Identity"]


def test_shapes_that_numbers_cannot_say() -> None:
    build = GraphBuilder()
    x, shape = build.input("x", DType.F32, ["n", "m", 4]), build.input("shape", DType.I64, [2])
    y = build.op("Unsqueeze", build.op("Reshape", x, shape), build.const(np.array([0], np.int64)))
    graph = finished(build, y)
    before = structure(graph)
    run_passes(graph, (CancelReshapes(),))
    assert structure(graph) == before


def divisions(count: int) -> list[tuple[int, ...]]:
    """Shapes of this many elements."""
    pairs = [(count // n, n) for n in range(1, count + 1) if count % n == 0]
    return [(count,), *pairs, *((1, *pair) for pair in pairs), *((a, 1, b) for a, b in pairs)]


@given(st.lists(st.sampled_from(divisions(24)), min_size=1, max_size=6))
def test_any_chain_ends_in_at_most_one(shapes: list[tuple[int, ...]]) -> None:
    build = GraphBuilder()
    y = build.op("Neg", build.input("x", DType.F32, [2, 3, 4]))
    for shape in shapes:
        y = reshape(build, y, *shape)
    graph = finished(build, y)
    rewrite(graph, CancelReshapes())
    assert len(operators(graph)) <= 2
    assert math.prod(shapes[-1]) == 24


def test_long_chains_cost_linear_time() -> None:
    build = GraphBuilder()
    y = build.input("x", DType.F32, [2, 12])
    for index in range(2000):
        y = reshape(build, y, *((2, 12), (24,), (4, 6))[index % 3])
    graph = finished(build, y)
    rules = rewrite(graph, CancelReshapes())
    assert operators(graph) == ["Reshape"]
    assert sum(rules.values()) < 3000
