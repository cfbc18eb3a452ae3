"""What passes ask about operands."""

from __future__ import annotations

import numpy as np
import pytest

from whence.graph.builder import GraphBuilder
from whence.passes.operands import (
    broadcasts_into,
    is_addition,
    is_exact_attribute,
    other_operand,
    same_shape,
    scalar_factor,
    with_const,
)
from whence.types import Dim, DType, TensorType


@pytest.mark.parametrize(
    ("shape", "target", "fits"),
    [
        ((), (2, 3), True),
        ((3,), (2, 3), True),
        ((1, 3), (2, 3), True),
        ((2, 1), (2, 3), True),
        (("n", 3), ("n", 3), True),
        ((3,), (None, 3), True),
        ((2, 3), (1, 3), False),
        ((1, 2, 3), (2, 3), False),
        (("m", 3), ("n", 3), False),
        ((None, 3), (None, 3), False),
        ((3,), None, False),
        (None, (3,), False),
    ],
)
def test_broadcasts_into(
    shape: tuple[Dim, ...] | None, target: tuple[Dim, ...] | None, fits: bool
) -> None:
    assert broadcasts_into(shape, target) is fits


def test_same_shape_needs_every_dimension() -> None:
    def kind(*dims: Dim) -> TensorType:
        return TensorType(DType.F32, dims)

    assert same_shape(kind("n", 3), kind("n", 3))
    assert not same_shape(kind(None, 3), kind(None, 3))
    assert not same_shape(kind(1, 3), kind(2, 3))
    assert not same_shape(TensorType(DType.F32), TensorType(DType.F32))
    assert not same_shape(kind(3), None)


def test_with_const_wants_exactly_one() -> None:
    build = GraphBuilder()
    x, c = build.input("x", DType.F32, [2]), build.const(np.ones(2, np.float32))
    for left, right in ((x, c), (c, x), (x, x), (c, c)):
        build.output(f"{left.entry}{right.entry}", build.op("Sub", left, right))
    graph = build.finish()
    found = [with_const(graph, node) for node in graph if node.op == "Sub"]
    assert [None if each is None else each.const_first for each in found] == [
        False,
        True,
        None,
        None,
    ]


def test_other_operand_of_a_square_is_none() -> None:
    build = GraphBuilder()
    x, y = build.input("x", DType.F32, [2]), build.input("y", DType.F32, [2])
    build.output("a", build.op("Add", x, y))
    build.output("b", build.op("Sum", x, x))
    build.output("c", build.op("Sum", x, y, x))
    graph = build.finish()
    first, second = (node.ref() for node in graph.inputs)
    pair, square, triple = (node for node in graph if node.op in {"Add", "Sum"})
    assert other_operand(pair, first) == second
    assert other_operand(pair, pair.ref()) is None
    assert other_operand(square, first) is None
    assert [is_addition(node) for node in (pair, square, triple)] == [True, True, False]


def test_scalar_factor() -> None:
    build = GraphBuilder()
    x, two, stack = (
        build.input("x", DType.F32, [2]),
        build.const(np.float32(2)),
        build.const(np.full((1, 1), 2, np.float32)),
    )
    operators = [
        ("Mul", x, two),
        ("Mul", two, x),
        ("Div", x, two),
        ("Div", two, x),
        ("Mul", x, stack),
        ("Add", x, two),
    ]
    for number, (op, left, right) in enumerate(operators):
        build.output(str(number), build.op(op, left, right))
    graph = build.finish()
    found = [scalar_factor(graph, node) for node in graph if node.op in {"Mul", "Div", "Add"}]
    assert [None if each is None else each[1] for each in found] == [
        2.0,
        2.0,
        0.5,
        None,
        None,
        None,
    ]


def test_attributes_hold_float32() -> None:
    assert is_exact_attribute(0.1, DType.F32)
    assert not is_exact_attribute(0.1, DType.F64)
    assert is_exact_attribute(0.5, DType.F64)
    assert not is_exact_attribute(1e39, DType.F32)
    assert not is_exact_attribute(float("nan"), DType.F32)
