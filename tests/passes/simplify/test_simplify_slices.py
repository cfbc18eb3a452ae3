"""Slices, splits and concatenations that undo or repeat each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import (
    only,
    operators,
    rewrite,
)
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.simplify.simplify_slices import SimplifySlices
from whence.types import Dim, DType, TensorType

TO_THE_END = 2**63 - 1


def cut(
    build: GraphBuilder,
    x: Symbol,
    start: int,
    end: int,
    axis: int = 0,
    step: int = 1,
    name: str = "",
) -> Symbol:
    numbers = [build.const(np.array([value], np.int64)) for value in (start, end, axis, step)]
    return build.op("Slice", x, *numbers, name=name)


def finished(build: GraphBuilder, *values: Symbol) -> Graph:
    for number, value in enumerate(values):
        build.output(f"y{number}", value)
    return build.finish()


# ---- slices of slices ----


BOUND = st.one_of(st.integers(-8, 8), st.sampled_from([TO_THE_END, -(2**63)]))
STEP = st.sampled_from([1, 2, 3, -1, -2])


@given(st.lists(st.tuples(BOUND, BOUND, STEP), min_size=2, max_size=4), st.integers(0, 7))
def test_any_chain_of_slices_of_a_known_length(
    cuts: list[tuple[int, int, int]], length: int
) -> None:
    build = GraphBuilder()
    value = build.input("x", DType.I64, [length])
    for start, end, step in cuts:
        value = cut(build, value, start, end, 0, step)
    graph = finished(build, build.op("Neg", value))
    rewrite(graph, SimplifySlices())
    assert operators(graph) == ["Slice", "Neg"]


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.one_of(st.integers(0, 6), st.just(TO_THE_END))),
        min_size=2,
        max_size=3,
    ),
    st.integers(0, 7),
)
def test_a_chain_of_plain_slices_of_an_unknown_length(
    cuts: list[tuple[int, int]], length: int
) -> None:
    build = GraphBuilder()
    value = build.input("x", DType.I64, ["n"])
    for start, end in cuts:
        value = cut(build, value, start, end)
    graph = finished(build, value)
    given_x = np.arange(length)
    expected = graph.run([given_x])[0]
    rewrite(graph, SimplifySlices())
    assert operators(graph) == ["Slice"]
    np.testing.assert_array_equal(graph.run([given_x])[0], expected)


# ---- slices, elements and parts of concatenations ----


def joined(*lengths: Dim) -> tuple[GraphBuilder, list[Symbol], Symbol]:
    build = GraphBuilder()
    parts = [
        build.input(f"x{number}", DType.F32, [2, length]) for number, length in enumerate(lengths)
    ]
    return build, parts, build.op("Concat", *parts, axis=-1, name="concat")


def test_elements_out_of_range_are_left_to_fail_at_run_time() -> None:
    build, _, whole = joined(2, 3)
    graph = finished(build, build.op("Gather", whole, build.const(5), axis=1))
    rewriter = Rewriter(graph, "test")
    SimplifySlices().run(rewriter)
    assert not rewriter.changes


# ---- concatenations ----


def test_a_declared_type_that_contradicts_is_not_acted_on() -> None:
    build, _, whole = joined(2, 3)
    graph = finished(build, cut(build, whole, 0, 2, 1))
    graph.set_types(only(graph, "Slice"), [TensorType(DType.F32, (7, 7))])
    rewriter = Rewriter(graph, "test")
    SimplifySlices().run(rewriter)
    assert "a slice that is one part of a concatenation is that part" not in rewriter.rules


@pytest.mark.parametrize("op", ["Slice", "Concat"])
def test_a_long_chain_is_rewritten_once(op: str) -> None:
    """One edit, and one new node, however long the chain: origins are collected once, not at every
    step.
    """
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1000])
    value = x
    for _ in range(400):
        value = (
            cut(build, value, 1, TO_THE_END)
            if op == "Slice"
            else build.op("Concat", value, x, axis=0)
        )
    graph = finished(build, value)
    rewriter = Rewriter(graph, "test")
    SimplifySlices().run(rewriter)
    assert (rewriter.changes, rewriter.added, rewriter.removed) == (1, 1, 400)
    assert only(graph, op).origin == set(range(1, 401))
    assert len(graph.ledger.edges) == 400
