"""Expressions are graphs: what several operators share is written once, however deep the
expression is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.graph.builder import Symbol
from whence.kernels.index import Index, LoadedIndex
from whence.kernels.ir import Expr, Fn, Load, Op, walk
from whence.types import DType

Step = Callable[[Cases, Symbol, list[Symbol]], Symbol]


def _where(cases: Cases, x: Symbol, given: list[Symbol]) -> Symbol:
    condition, _, w = given
    return cases.op("Where", condition, cases.op("Add", x, w), cases.op("Sub", x, w))


def _two_conditions(cases: Cases, x: Symbol, given: list[Symbol]) -> Symbol:
    first, second, w = given
    return cases.op(
        "Max", cases.op("Where", first, x, w), cases.op("Where", second, x, cases.op("Neg", w))
    )


STEPS: dict[str, Step] = {
    "mean": lambda cases, x, _: cases.op("Mean", x, x),
    "transposed": lambda cases, x, _: cases.op("Max", cases.op("Transpose", x), x),
    "absolute": lambda cases, x, _: cases.op("Neg", cases.op("Abs", x)),
    "where": _where,
    "two_conditions": _two_conditions,
    "distance": lambda cases, x, given: cases.op(
        "Sub", cases.op("Max", x, given[2]), cases.op("Min", x, given[2])
    ),
    "not_a_number": lambda cases, x, given: cases.op("Where", cases.op("IsNaN", x), given[2], x),
}
INTEGERS = frozenset({"absolute"})


def _chain(cases: Cases, name: str, length: int) -> Symbol:
    given = [cases.feed(cases.rng.random((4, 4)) < 0.5) for _ in range(2)]
    given.append(cases.normal(4, 4))
    x = cases.feed(np.arange(-8, 8).reshape(4, 4)) if name in INTEGERS else cases.normal(4, 4)
    for _ in range(length):
        x = STEPS[name](cases, x, given)
    return x


def _length(*names: str, steps: int, pad: bool = False) -> int:
    """Of the code of chains that are right."""
    cases = Cases()
    for name in names:
        x = _chain(cases, name, steps)
        if pad:
            x = cases.op("Pad", x, cases.const(np.array([1, 2, 1, 3])))
        cases.expect(x, name)
    return sum(len(function.text) for unit in cases.check().units for function in unit.functions)


@pytest.mark.parametrize("pad", [False, True])
def test_code_grows_with_the_graph(pad: bool):
    short, long = (_length(*STEPS, steps=steps, pad=pad) for steps in (12, 36))
    assert long < 4 * short


def test_gathers_of_gathers_share_their_index():
    sizes = []
    for steps in (8, 24):
        cases = Cases()
        x = cases.feed(np.arange(6))
        tables = [cases.const(np.array(row)) for row in ([3, 5, 1, 2, 0, 4], [1, 0, 5, 4, 2, 3])]
        for _ in range(steps):
            first, second = (cases.op("Gather", table, x) for table in tables)
            x = cases.op("Mod", cases.op("Add", first, second), cases.const(np.array(6)))
        cases.expect(x, "index")
        program = cases.check()
        sizes.append(sum(len(each.text) for unit in program.units for each in unit.functions))
    assert sizes[1] < 6 * sizes[0]


def _deep(length: int, buffer: str = "in0") -> Expr:
    value: Expr = Load(buffer, Index(0), DType.F32)
    for number in range(length):
        if number % 100 == 99:
            value = Load("in1", Index(0, ((LoadedIndex(value, 8), 1),)), DType.F32)
        value = Op(Fn.ADD, (value, value), DType.F32)
    return value


def test_deep_expressions_are_compared_and_hashed_part_by_part():
    first, second, other = _deep(5000), _deep(5000), _deep(5000, "in2")
    assert first == second
    assert hash(first) == hash(second)
    assert first != other
    assert len(list(walk(first, second))) == 5000 + 1 + 50
    assert _deep(20).size == 2**21 - 1
    assert first.size == 2**30
