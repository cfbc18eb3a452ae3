"""Transposes that follow each other become one or none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.layout.cancel_transposes import CancelTransposes
from whence.provenance import Reason
from whence.types import Dim, DType


def turn(build: GraphBuilder, x: Symbol, *perm: int, name: str = "") -> Symbol:
    return build.op("Transpose", x, name=name, perm=perm)


def reshape(build: GraphBuilder, x: Symbol, *shape: int, name: str = "") -> Symbol:
    return build.op("Reshape", x, build.const(np.array(shape, np.int64)), name=name)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


def test_two_become_one() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 4])
    graph = finished(
        build, turn(build, turn(build, x, 1, 2, 0, name="first"), 0, 2, 1, name="second")
    )
    expected = GraphBuilder()
    y = turn(expected, expected.input("x", DType.F32, [2, 3, 4]), 1, 0, 2)
    assert rewrite(graph, CancelTransposes()) == {
        "transpose(transpose(x, p), q) = transpose(x, pq)": 1
    }
    assert structure(graph) == structure(finished(expected, y))
    assert carried(graph, only(graph, "Transpose")) == (["first", "second"], [])


def test_two_that_undo_each_other_vanish() -> None:
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [None, 3, "n"]))
    graph = finished(build, turn(build, turn(build, x, 0, 2, 1), 0, 2, 1))
    assert rewrite(graph, CancelTransposes()) == {"transpose(transpose(x)) = x": 1}
    assert operators(graph) == ["Relu"]
    relu = only(graph, "Relu").id
    assert [(stone.reason, stone.into) for stone in graph.ledger.tombstones] == [
        (Reason.CANCELLED, relu)
    ] * 2


def test_default_permutation() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    graph = finished(build, build.op("Relu", build.op("Transpose", build.op("Transpose", x))))
    rewrite(graph, CancelTransposes())
    assert operators(graph) == ["Relu"]


def test_an_inner_transpose_that_others_read_stays_for_them() -> None:
    build = GraphBuilder()
    first = turn(build, build.input("x", DType.F32, [2, 3, 4]), 1, 2, 0, name="first")
    build.output("first", first)
    graph = finished(build, turn(build, first, 2, 0, 1, name="back"))
    rewrite(graph, CancelTransposes())
    assert operators(graph) == ["Transpose"]
    assert [
        graph.ledger.source(source).name
        for stone in graph.ledger.tombstones
        for source in stone.origin
    ] == ["back"]


def test_identity() -> None:
    build = GraphBuilder()
    graph = finished(
        build, build.op("Relu", turn(build, build.input("x", DType.F32, [2, 3]), 0, 1))
    )
    assert rewrite(graph, CancelTransposes()) == {"transpose(x, identity) = x": 1}
    assert [stone.reason for stone in graph.ledger.tombstones] == [Reason.IDENTITY]


@pytest.mark.parametrize(
    ("shape", "perm", "target"),
    [
        ((1, 3, 1, 4), (0, 2, 1, 3), (1, 1, 3, 4)),
        ((2, 1, 3), (1, 0, 2), (1, 2, 3)),
        (("n", 1, 3), (1, 0, 2), (1, -1, 3)),
        (("n", 1, 3), (0, 2, 1), (0, 3, 1)),
        (("n", "m", 1, 3), (0, 2, 1, 3), (0, 1, -1, 3)),
    ],
)
def test_moving_axes_of_size_one_is_reshaping(
    shape: tuple[Dim, ...], perm: tuple[int, ...], target: tuple[int, ...]
) -> None:
    build = GraphBuilder()
    graph = finished(build, turn(build, build.input("x", DType.F32, shape), *perm, name="turn"))
    assert rewrite(graph, CancelTransposes()) == {"transpose of axes of size 1 = reshape": 1}
    assert graph.const_value(only(graph, "Reshape").inputs[1]).tolist() == list(target)  # type: ignore[union-attr]
    assert carried(graph, only(graph, "Reshape")) == (["turn"], [])


@pytest.mark.parametrize("shape", [(2, 3), (0, 1), ("n", "m"), (None, 4)])
def test_real_transposes_stay(shape: tuple[Dim, ...]) -> None:
    build = GraphBuilder()
    assert is_left_alone(
        finished(build, turn(build, build.input("x", DType.F32, shape), 1, 0)), CancelTransposes()
    )


def test_axes_merged_moved_and_split_again() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 5, 4])
    y = reshape(
        build,
        turn(build, reshape(build, x, -1, 5, 4, name="merge"), 0, 2, 1, name="turn"),
        2,
        3,
        4,
        5,
        name="split",
    )
    graph = finished(build, y)
    expected = GraphBuilder()
    rewrite(graph, CancelTransposes())
    assert structure(graph) == structure(
        finished(expected, turn(expected, expected.input("x", DType.F32, [2, 3, 5, 4]), 0, 1, 3, 2))
    )
    assert carried(graph, only(graph, "Transpose")) == (["merge", "turn", "split"], [])


def test_axes_merged_with_an_open_batch() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["batch", 3, 5, 4])
    graph = finished(
        build, reshape(build, turn(build, reshape(build, x, -1, 5, 4), 0, 2, 1), -1, 3, 4, 5)
    )
    rewrite(graph, CancelTransposes())
    assert operators(graph) == ["Transpose"]
    assert only(graph, "Transpose").attrs == {"perm": (0, 1, 3, 2)}


def test_axes_split_otherwise_than_they_were_merged() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 4, 2, 5, 3])
    y = reshape(
        build,
        turn(build, reshape(build, x, 8, 5, 3, name="merge"), 0, 2, 1, name="turn"),
        1,
        8,
        3,
        5,
        name="split",
    )
    graph = finished(build, y)
    rewrite(graph, CancelTransposes())
    assert operators(graph) == ["Reshape", "Transpose"]
    assert carried(graph, only(graph, "Reshape")) == (["merge"], [])
    assert carried(graph, only(graph, "Transpose")) == (["turn", "split"], [])


def test_reshapes_that_cut_across_stay() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [6, 20])
    assert is_left_alone(
        finished(build, reshape(build, turn(build, reshape(build, x, 2, 3, 20), 2, 1, 0), 10, 12)),
        CancelTransposes(),
    )


def test_there_and_back_with_axes_of_size_one_between() -> None:
    build = GraphBuilder()
    x = build.op("Neg", build.input("x", DType.F32, [1, 4, 1, 5]))
    y = turn(
        build,
        reshape(build, turn(build, x, 0, 2, 3, 1, name="there"), 1, 5, 4, name="drop"),
        0,
        2,
        1,
        name="back",
    )
    graph = finished(build, y)
    rewrite(graph, CancelTransposes())
    assert operators(graph) == ["Neg", "Reshape"]
    assert carried(graph, only(graph, "Reshape")) == (["there", "drop", "back"], [])


def test_there_and_elsewhere_stays() -> None:
    for sizes, perm in (((1, 5, 4), (1, 2, 0)), ((1, 4, 5), (0, 2, 1))):
        build = GraphBuilder()
        x = build.op("Neg", build.input("x", DType.F32, [1, 4, 1, 5]))
        y = turn(build, reshape(build, turn(build, x, 0, 2, 3, 1), *sizes), *perm)
        graph = finished(build, y)
        rewrite(graph, CancelTransposes())
        assert "Transpose" in operators(graph)


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
