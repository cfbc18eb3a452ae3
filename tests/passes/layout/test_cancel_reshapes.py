"""Reshapes, squeezes and flattens that follow each other become one or none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.layout.cancel_reshapes import CancelReshapes
from whence.passes.manager import run_passes
from whence.provenance import Reason
from whence.types import Dim, DType


def with_ints(build: GraphBuilder, op: str, x: Symbol, *values: int, name: str = "") -> Symbol:
    return build.op(op, x, build.const(np.array(values, np.int64)), name=name)


def reshape(build: GraphBuilder, x: Symbol, *shape: int, name: str = "") -> Symbol:
    return with_ints(build, "Reshape", x, *shape, name=name)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


def target(graph: Graph) -> list[int]:
    value = graph.const_value(only(graph, "Reshape").inputs[1])
    assert value is not None
    return [int(dim) for dim in value]


def test_two_become_one() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 4])
    graph = finished(
        build, reshape(build, reshape(build, x, 0, 12, name="first"), -1, 6, name="second")
    )
    expected = GraphBuilder()
    assert rewrite(graph, CancelReshapes()) == {"reshape(reshape(x)) = reshape(x)": 1}
    assert structure(graph) == structure(
        finished(expected, reshape(expected, expected.input("x", DType.F32, [2, 3, 4]), 4, 6))
    )
    assert carried(graph, only(graph, "Reshape")) == (["first", "second"], [])


def test_a_way_there_and_back_vanishes() -> None:
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [2, 3, 4]))
    y = build.op("Flatten", x, axis=1)
    y = with_ints(build, "Unsqueeze", y, 0)
    y = with_ints(build, "Squeeze", y, 0)
    graph = finished(build, reshape(build, y, 2, 3, 4))
    rewrite(graph, CancelReshapes())
    assert operators(graph) == ["Relu"]
    assert {stone.reason for stone in graph.ledger.tombstones} == {Reason.CANCELLED}
    assert {source for stone in graph.ledger.tombstones for source in stone.origin} == {2, 3, 4, 5}


def test_one_open_dimension() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 3, 4])
    graph = finished(build, reshape(build, build.op("Flatten", x, axis=2), -1, 2, 2))
    rewrite(graph, CancelReshapes())
    assert target(graph) == [-1, 2, 2]

    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 3, 4])
    graph = finished(build, build.op("Relu", reshape(build, reshape(build, x, -1, 12), -1, 3, 4)))
    rewrite(graph, CancelReshapes())
    assert operators(graph) == ["Relu"]


def test_named_dimensions_are_copied() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", "m", 4, 6])
    graph = finished(build, reshape(build, reshape(build, x, 0, 0, 24), 0, 0, 8, 3))
    rewrite(graph, CancelReshapes())
    assert target(graph) == [0, 0, 8, 3]


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


def test_different_axes_do_not_cancel() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, None, "n"])
    y = with_ints(build, "Unsqueeze", with_ints(build, "Squeeze", x, 0), 1)
    graph = finished(build, y)
    assert rewrite(graph, CancelReshapes()) == {"reshape(reshape(x)) = reshape(x)": 1}
    assert target(graph) == [-1, 1, 0]


def test_shapes_that_numbers_cannot_say() -> None:
    build = GraphBuilder()
    x, shape = build.input("x", DType.F32, ["n", "m", 4]), build.input("shape", DType.I64, [2])
    y = build.op("Unsqueeze", build.op("Reshape", x, shape), build.const(np.array([0], np.int64)))
    graph = finished(build, y)
    before = structure(graph)
    run_passes(graph, (CancelReshapes(),))
    assert structure(graph) == before


def test_empty_tensors_stay() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [0, 3])
    y = build.op(
        "Reshape",
        build.op("Flatten", x, axis=0),
        build.const(np.array([3, 0], np.int64)),
        allowzero=1,
    )
    assert is_left_alone(finished(build, y), CancelReshapes())


def test_an_inner_reshape_that_others_read_stays_for_them() -> None:
    build = GraphBuilder()
    first = reshape(build, build.input("x", DType.F32, [2, 6]), 3, 4)
    build.output("first", first)
    graph = finished(build, build.op("Relu", reshape(build, first, 2, 6)))
    rewrite(graph, CancelReshapes())
    assert operators(graph) == ["Reshape", "Relu"]


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
