"""SizeTable as polynomials agree with the numbers they stand for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.passes.shapes.size_algebra import (
    Size,
    SizeTable,
    add,
    equal,
    less,
    multiply,
    negate,
    number,
    subtract,
)

NAMES = ("a", "b", "c")
Build = tuple[Any, ...]

# An expression as nested tuples, so that it can be built as a Size and computed as a number.
EXPRESSIONS: st.SearchStrategy[Build] = st.recursive(
    st.one_of(
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
        st.tuples(st.just("number"), st.integers(-4, 6)),
    ),
    lambda inner: st.tuples(
        st.sampled_from(
            ["add", "subtract", "multiply", "divide", "remainder", "smaller", "larger"]
        ),
        inner,
        inner,
    ),
    max_leaves=6,
)
NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "smaller": min,
    "larger": max,
}


def build(sizes: SizeTable, expression: Build) -> Size | None:
    kind, *rest = expression
    if kind == "name":
        return sizes.named(rest[0])
    if kind == "number":
        return number(rest[0])
    left, right = (build(sizes, item) for item in rest)
    if left is None or right is None:
        return None
    functions = {"add": add, "subtract": subtract, "multiply": multiply}
    return functions[kind](left, right) if kind in functions else getattr(sizes, kind)(left, right)


def compute(expression: Build, values: dict[str, int]) -> int | None:
    """As the graph computes it: integer division truncates, the remainder has the sign of the
    divisor, and by zero there is nothing.
    """
    kind, *rest = expression
    if kind == "name":
        return values[rest[0]]
    if kind == "number":
        return int(rest[0])
    left, right = (compute(item, values) for item in rest)
    if left is None or right is None:
        return None
    if kind in NUMBERS:
        return NUMBERS[kind](left, right)
    if right == 0:
        return None
    if kind == "divide":
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left % right


def substitute(sizes: SizeTable, size: Size, values: dict[str, int]) -> int | None:
    """The value of a polynomial in names alone; `None` when it holds something unexpanded."""
    atoms = {sizes.named(name).atom: values[name] for name in NAMES}
    total = 0
    for monomial, coefficient in size.terms:
        for atom in monomial:
            if atom not in atoms:
                return None
            coefficient *= atoms[atom]
        total += coefficient
    return total


@given(EXPRESSIONS, st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES}))
def test_a_size_has_the_value_of_its_expression(expression: Build, values: dict[str, int]) -> None:
    sizes = SizeTable()
    size = build(sizes, expression)
    expected = compute(expression, values)
    if size is None or expected is None:
        return
    found = substitute(sizes, size, values)
    assert found in (None, expected)
    if size.number is not None:
        assert size.number == expected
    if size.least is not None:
        assert size.least <= expected


@given(EXPRESSIONS, EXPRESSIONS, st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES}))
def test_comparisons_hold_for_all_dimensions(
    left: Build, right: Build, values: dict[str, int]
) -> None:
    sizes = SizeTable()
    one, two = build(sizes, left), build(sizes, right)
    a, b = compute(left, values), compute(right, values)
    if one is None or two is None or a is None or b is None:
        return
    assert equal(one, two) in (None, a == b)
    assert less(one, two) in (None, a < b)
    if one == two:
        assert a == b


def test_equal_expressions_are_equal_values() -> None:
    sizes = SizeTable()
    a, b = sizes.named("a"), sizes.named("b")
    product, total, six = multiply(a, b), add(a, b), multiply(number(6), a)
    assert product is not None
    assert total is not None
    assert six is not None
    assert product == multiply(b, a)
    assert subtract(total, b) == a
    assert sizes.divide(product, b) == a
    assert sizes.divide(six, number(3)) == multiply(number(2), a)
    assert sizes.divide(a, b) == sizes.divide(a, b) != sizes.divide(b, a)
    assert sizes.smaller(a, b) == sizes.smaller(b, a)
    assert sizes.remainder(product, a) == number(0)
    assert sizes.named("a") == a != sizes.of("a")


def test_what_bounds_decide() -> None:
    sizes = SizeTable()
    a = sizes.named("a")
    assert equal(a, number(-1)) is False
    assert equal(a, number(3)) is None
    assert less(number(-1), a) is True
    assert less(a, number(0)) is False
    assert sizes.larger(a, number(0)) == a
    assert sizes.smaller(a, number(-1)) == number(-1)


def test_negative_numbers_are_divided_only_when_it_comes_out_even() -> None:
    sizes = SizeTable()
    assert sizes.divide(number(-6), number(3)) == number(-2)
    assert sizes.divide(number(-7), number(3)) is None
    assert sizes.remainder(number(-7), number(3)) is None
    assert sizes.divide(number(7), number(0)) is None


def test_names_are_found_again() -> None:
    sizes = SizeTable()
    a = sizes.named("a")
    assert sizes.name_of(a) == "a"
    assert sizes.name_of(number(3)) is None
    assert sizes.name_of(sizes.of(7)) is None
    doubled = add(a, a)
    assert doubled is not None
    assert sizes.name_of(doubled) is None


@pytest.mark.parametrize("value", [0, 3, -3])
def test_numbers(value: int) -> None:
    assert number(value).number == value
    assert number(value).least == value
    assert negate(number(value)).number == -value


def test_expressions_do_not_grow_without_end() -> None:
    sizes = SizeTable()
    size: Size | None = number(1)
    for at in range(20):
        size = None if size is None else multiply(size, sizes.of(at))
    assert size is None
    size = number(0)
    for at in range(40):
        size = None if size is None else add(size, sizes.of(at))
    assert size is None
