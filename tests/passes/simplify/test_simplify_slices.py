"""Slices, splits and concatenations that undo or repeat each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import (
    buried,
    carried,
    edges_into,
    is_left_alone,
    only,
    operators,
    rewrite,
)
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.simplify.simplify_slices import SimplifySlices
from whence.provenance import Reason
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


def test_slices_of_several_axes_become_one() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [10, 10])
    graph = finished(
        build,
        cut(
            build,
            cut(build, cut(build, x, 1, 9, 0, name="a"), 2, 5, 1, name="b"),
            1,
            3,
            0,
            name="c",
        ),
    )
    expected = GraphBuilder()
    x = expected.input("x", DType.F32, [10, 10])
    wanted = finished(
        expected,
        expected.op(
            "Slice", x, *(expected.const(np.array(v, np.int64)) for v in ([2, 2], [4, 5], [0, 1]))
        ),
    )
    assert rewrite(graph, SimplifySlices()) == {"a slice of a slice is a slice": 1}
    assert structure(graph) == structure(wanted)
    assert carried(graph, only(graph, "Slice")) == (["a", "b", "c"], [])
    assert edges_into(graph, only(graph, "Slice")) == {"a": "fuse", "b": "fuse", "c": "fuse"}


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


def test_from_the_end_of_an_unknown_length_nothing_is_concluded() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n"])
    assert is_left_alone(
        finished(build, cut(build, cut(build, x, -3, TO_THE_END), 0, 2)), SimplifySlices()
    )


def test_a_slice_with_other_readers_stays_and_is_not_merged() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [10])
    inner = cut(build, x, 1, 9)
    assert is_left_alone(finished(build, inner, cut(build, inner, 1, 3)), SimplifySlices())


# ---- slices, elements and parts of concatenations ----


def joined(*lengths: Dim) -> tuple[GraphBuilder, list[Symbol], Symbol]:
    build = GraphBuilder()
    parts = [
        build.input(f"x{number}", DType.F32, [2, length]) for number, length in enumerate(lengths)
    ]
    return build, parts, build.op("Concat", *parts, axis=-1, name="concat")


def test_a_slice_that_is_one_part_is_that_part() -> None:
    build, _, whole = joined(2, 3, 4)
    graph = finished(build, cut(build, whole, 2, 5, 1, name="slice"))
    assert rewrite(graph, SimplifySlices()) == {
        "a slice that is one part of a concatenation is that part": 1
    }
    assert graph.outputs[0].inputs == (graph.inputs[1].ref(),)
    assert buried(graph) == {"slice": Reason.CANCELLED, "concat": Reason.DEAD}


@pytest.mark.parametrize(("start", "end", "axis"), [(3, 4, 1), (-4, TO_THE_END, 1), (5, 8, -1)])
def test_a_slice_within_one_part_is_a_slice_of_it(start: int, end: int, axis: int) -> None:
    build, _, whole = joined(2, 3, 4)
    graph = finished(build, cut(build, whole, start, end, axis))
    rewrite(graph, SimplifySlices())
    assert "Concat" not in operators(graph)


@pytest.mark.parametrize(
    ("start", "end", "axis", "step"), [(1, 4, 1, 1), (2, 5, 1, 2), (0, 1, 0, 1), (2, 2, 1, 1)]
)
def test_other_slices_of_concatenations_stay(start: int, end: int, axis: int, step: int) -> None:
    build, _, whole = joined(2, 3, 4)
    assert is_left_alone(
        finished(build, cut(build, whole, start, end, axis, step)), SimplifySlices()
    )


def test_parts_of_unknown_length_stay() -> None:
    build, _, whole = joined(None, 3)
    assert is_left_alone(finished(build, cut(build, whole, 0, 2, 1)), SimplifySlices())


def test_a_split_at_the_seams_yields_the_parts() -> None:
    build, _, whole = joined(2, 3, 4)
    parts = build.op("Split", whole, build.const([2, 3, 4]), axis=1, n_outputs=3, name="split")
    graph = finished(build, parts[2], parts[0])
    rewrite(graph, SimplifySlices())
    assert operators(graph) == []
    assert [output.inputs[0] for output in graph.outputs] == [
        graph.inputs[2].ref(),
        graph.inputs[0].ref(),
    ]
    assert buried(graph)["split"] is Reason.CANCELLED


def test_a_split_elsewhere_stays() -> None:
    build, _, whole = joined(2, 4)
    parts = build.op("Split", whole, build.const([3, 3]), axis=1, n_outputs=2)
    assert is_left_alone(finished(build, parts[0], parts[1]), SimplifySlices())


@pytest.mark.parametrize(("index", "part", "place"), [(0, 0, 0), (3, 1, 1), (-1, 2, 3), (-9, 0, 0)])
def test_an_element_is_taken_from_its_part(index: int, part: int, place: int) -> None:
    build, _, whole = joined(2, 3, 4)
    graph = finished(build, build.op("Gather", whole, build.const(index), axis=1))
    rewrite(graph, SimplifySlices())
    assert operators(graph) == ["Gather"]
    gather = only(graph, "Gather")
    assert gather.inputs[0] == graph.inputs[part].ref()
    assert graph.const_value(gather.inputs[1]) == place


def test_an_element_that_was_put_in_is_taken_out() -> None:
    build = GraphBuilder()
    x = [build.input(f"x{number}", DType.I64, []) for number in range(3)]
    parts = [build.op("Unsqueeze", each, build.const([0])) for each in x]
    graph = finished(
        build,
        build.op(
            "Gather", build.op("Concat", *parts, axis=0), build.const(-2), axis=0, name="gather"
        ),
    )
    rewrite(graph, SimplifySlices())
    assert graph.outputs[0].inputs == (graph.inputs[1].ref(),)
    assert buried(graph)["gather"] is Reason.CANCELLED


def test_elements_out_of_range_are_left_to_fail_at_run_time() -> None:
    build, _, whole = joined(2, 3)
    graph = finished(build, build.op("Gather", whole, build.const(5), axis=1))
    rewriter = Rewriter(graph, "test")
    SimplifySlices().run(rewriter)
    assert not rewriter.changes


# ---- concatenations ----


def test_a_concatenation_of_all_parts_of_a_split_is_the_whole() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 6])
    parts = build.op("Split", x, axis=1, num_outputs=3, n_outputs=3, name="split")
    graph = finished(
        build, build.op("Concat", parts[0], parts[1], parts[2], axis=-1, name="concat")
    )
    assert rewrite(graph, SimplifySlices()) == {
        "a concatenation of all parts of a split is what was split": 1
    }
    assert operators(graph) == []
    assert buried(graph) == {"split": Reason.CANCELLED, "concat": Reason.CANCELLED}


@pytest.mark.parametrize(
    ("order", "axis"), [((1, 0, 2), 1), ((0, 1), 1), ((0, 1, 2), 0), ((0, 1, 2, 2), 1)]
)
def test_other_concatenations_of_parts_stay(order: tuple[int, ...], axis: int) -> None:
    build = GraphBuilder()
    parts = build.op(
        "Split", build.input("x", DType.F32, [2, 6]), axis=1, num_outputs=3, n_outputs=3
    )
    assert is_left_alone(
        finished(build, build.op("Concat", *(parts[index] for index in order), axis=axis)),
        SimplifySlices(),
    )


@pytest.mark.parametrize(
    ("cuts", "left"),
    [
        ([(0, 2), (2, 4), (4, 6)], []),
        ([(0, -1), (-1, TO_THE_END)], []),
        ([(1, 2), (2, 4)], ["Slice"]),
        ([(0, 2), (3, 6)], ["Slice", "Slice", "Concat"]),
        ([(2, 6), (0, 2)], ["Slice", "Slice", "Concat"]),
        ([(0, 3), (2, 6)], ["Slice", "Slice", "Concat"]),
    ],
)
def test_neighbouring_slices(cuts: list[tuple[int, int]], left: list[str]) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 6])
    graph = finished(
        build, build.op("Concat", *(cut(build, x, start, end, 1) for start, end in cuts), axis=1)
    )
    rewrite(graph, SimplifySlices())
    assert operators(graph) == left


def test_slices_of_two_values_stay() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [6]), build.input("z", DType.F32, [6])
    assert is_left_alone(
        finished(build, build.op("Concat", cut(build, x, 0, 3), cut(build, z, 3, 6), axis=0)),
        SimplifySlices(),
    )


def test_concatenations_of_concatenations_become_one() -> None:
    build = GraphBuilder()
    a, b, c, d = (build.input(name, DType.F32, [2, 3]) for name in "abcd")
    inner = build.op("Concat", b, build.op("Concat", c, d, axis=-1), axis=1)
    graph = finished(build, build.op("Concat", a, inner, a, axis=1, name="outer"))
    expected = GraphBuilder()
    a, b, c, d = (expected.input(name, DType.F32, [2, 3]) for name in "abcd")
    wanted = finished(expected, expected.op("Concat", a, b, c, d, a, axis=1))
    assert rewrite(graph, SimplifySlices()) == {
        "a concatenation of concatenations is one concatenation": 1
    }
    assert structure(graph) == structure(wanted)
    assert only(graph, "Concat").origin == {1, 2, 3}
    assert only(graph, "Concat").name == "outer"


def test_concatenations_that_are_read_twice_or_run_along_another_axis_stay() -> None:
    build = GraphBuilder()
    a, b = build.input("a", DType.F32, [2, 2]), build.input("b", DType.F32, [2, 2])
    shared = build.op("Concat", a, b, axis=1)
    across = build.op("Concat", a, b, axis=0)
    graph = finished(
        build,
        build.op("Concat", shared, shared, axis=1),
        build.op("Concat", across, build.op("Concat", b, a, axis=0), axis=1),
    )
    assert is_left_alone(graph, SimplifySlices())


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
