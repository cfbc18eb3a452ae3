"""Reading constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.graph import Graph, Ref
from whence.graph.builder import GraphBuilder
from whence.passes.const_values import const_bool, const_ints, is_filled_with
from whence.types import DType


def holding(value: Any) -> tuple[Graph, Ref]:
    build = GraphBuilder()
    build.output("y", build.const(value))
    graph = build.finish()
    return graph, next(node.ref() for node in graph if node.is_const)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.array([1, -2]), (1, -2)),
        (np.int32(7), (7,)),
        (np.zeros(0, np.int64), ()),
        (np.float32(1), None),
    ],
)
def test_lists_of_integers(value: Any, found: tuple[int, ...] | None) -> None:
    assert const_ints(*holding(value)) == found


def test_what_is_long_is_data() -> None:
    assert const_ints(*holding(np.zeros(4097, np.int64))) is None


@pytest.mark.parametrize(
    ("value", "found"),
    [(np.array(True), True), (np.array([False]), False), (np.array([True, True]), None)],
)
def test_truth_values(value: Any, found: bool | None) -> None:
    assert const_bool(*holding(value)) is found


def test_what_is_absent_or_computed_has_no_value() -> None:
    build = GraphBuilder()
    build.output("y", build.op("Shape", build.input("x", DType.F32, [2])))
    graph = build.finish()
    assert const_ints(graph, None) is None
    assert const_bool(graph, None) is None
    assert const_ints(graph, graph[1].ref()) is None


@pytest.mark.parametrize(
    ("value", "item", "filled"),
    [
        ([1, 1], 1, True),
        ([1, 2], 1, False),
        ([2, 1], 1, False),
        ([], 1, False),
        ([np.nan], np.nan, False),
        ([np.inf], np.inf, True),
    ],
)
def test_filled(value: list[float], item: float, filled: bool) -> None:
    assert is_filled_with(np.array(value, np.float32), item) is filled


def test_text_is_not_filled_with_a_number() -> None:
    assert not is_filled_with(np.array(["1"], np.object_), 1)
