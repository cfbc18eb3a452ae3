"""x + 0, x * 1, -(-x) and the like are x, unless broadcasting makes more of x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import operators
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder
from whence.passes.const_values import is_filled_with
from whence.passes.simplify import remove_neutral_arithmetic
from whence.passes.simplify.remove_neutral_arithmetic import RemoveNeutralArithmetic
from whence.types import Dim, DType


def with_constant(
    op: str,
    value: Any,
    shape: tuple[Dim, ...] | None,
    *,
    left: bool = False,
    dtype: Any = np.float32,
) -> Graph:
    build = GraphBuilder()
    x, c = (
        build.input("x", DType.of(np.zeros(0, dtype)), shape),
        build.const(np.asarray(value, dtype)),
    )
    build.output("y", build.op(op, *((c, x) if left else (x, c)), name="neutral"))
    return build.finish()


@pytest.mark.parametrize(
    ("constant", "shape", "leaves"),
    [
        ((), (), True),
        ((), None, True),
        ((1,), None, False),
        ((1,), (), False),
        ((3,), (2, 3), True),
        ((1, 1), (2, 3), True),
        ((2, 3), (2, 3), True),
        ((2, 1), (2, 3), True),
        ((1, 1, 1), (2, 3), False),
        ((4, 1, 1), (2, 3), False),
        ((2, 3), (1, 3), False),
        ((2, 3), (None, 3), False),
        ((1, 3), (None, 3), True),
        ((3,), ("n", 3), True),
        ((0,), (1,), False),
    ],
)
def test_a_constant_that_enlarges_is_not_neutral(
    constant: tuple[int, ...], shape: tuple[Dim, ...] | None, leaves: bool
) -> None:
    graph = with_constant("Add", np.zeros(constant), shape)
    RemoveNeutralArithmetic().run(Rewriter(graph, "test"))
    assert (operators(graph) == []) is leaves


def test_a_constant_is_looked_at_once_however_many_read_it(monkeypatch) -> None:
    build = GraphBuilder()
    value, one, two = (
        build.input("x", DType.F32, [4]),
        build.const(np.ones(4, np.float32)),
        build.const(np.full(4, 2, np.float32)),
    )
    for _ in range(300):
        value = build.op("Mul", build.op("Mul", value, one), two)
    build.output("y", value)
    graph = build.finish()
    looks = 0

    def counting(array: np.ndarray, item: float) -> bool:
        nonlocal looks
        looks += 1
        return is_filled_with(array, item)

    monkeypatch.setattr(remove_neutral_arithmetic, "is_filled_with", counting)
    RemoveNeutralArithmetic().run(Rewriter(graph, "test"))
    assert looks == 2
    assert operators(graph) == ["Mul"] * 300
