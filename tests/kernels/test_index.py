"""Indices in normal form have the value of what they were made of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from whence.kernels.expressions import below
from whence.kernels.index import Index, LoadedIndex, Quotient, Remainder, Var, of
from whence.kernels.ir import Fn, Literal, Op, Position

VARIABLES = (Var("i", 5), Var("j", 4), Var("k", 3))


def value(index: Index, at: Mapping[Var, int]) -> int:
    total = index.const
    for atom, coefficient in index.terms:
        match atom:
            case Var():
                total += coefficient * at[atom]
            case Quotient(inner, by):
                total += coefficient * (value(inner, at) // by)
            case Remainder(inner, by):
                total += coefficient * (value(inner, at) % by)
            case LoadedIndex():
                raise AssertionError("nothing is looked up here")
    return total


@given(
    st.integers(-40, 40),
    st.lists(st.integers(-24, 24), min_size=3, max_size=3),
    st.integers(1, 24),
    st.integers(1, 24),
)
def test_quotients_and_remainders(const: int, coefficients: list[int], by: int, again: int) -> None:
    index = of(const)
    for var, coefficient in zip(VARIABLES, coefficients, strict=True):
        index = index + of(var) * coefficient
    made = {
        "//": index // by,
        "%": index % by,
        "// //": index // by // again,
        "% //": index % by // again,
        "// %": index // by % again,
    }
    for place in itertools.product(*(range(var.extent) for var in VARIABLES)):
        at = dict(zip(VARIABLES, place, strict=True))
        whole = value(index, at)
        expected = {
            "//": whole // by,
            "%": whole % by,
            "// //": whole // by // again,
            "% //": whole % by // again,
            "// %": whole // by % again,
        }
        assert {name: value(each, at) for name, each in made.items()} == expected


def test_a_common_factor_is_divided_out() -> None:
    x = of(Var("x", 100))
    assert (x * 4 + 3) // 16 == x // 4
    assert (x * 4 + 3) % 16 == (x % 4) * 4 + 3
    assert (x * 4 + 5) // 16 == (x + 1) // 4


@given(
    st.integers(-8, 8),
    st.lists(st.integers(0, 24), min_size=3, max_size=3),
    st.integers(-8, 130),
)
def test_what_cannot_decide_a_comparison_is_left_out(
    const: int, coefficients: list[int], limit: int
) -> None:
    index = of(const)
    for var, coefficient in zip(VARIABLES, coefficients, strict=True):
        index = index + of(var) * coefficient
    made = below(index, limit)
    for place in itertools.product(*(range(var.extent) for var in VARIABLES)):
        at = dict(zip(VARIABLES, place, strict=True))
        match made:
            case Literal(answer):
                assert answer is (value(index, at) < limit)
            case Op(Fn.LT, (Position(left), Literal(right))):
                assert (value(left, at) < right) is (value(index, at) < limit)
            case _:
                raise AssertionError(made)


def test_lanes_of_a_block_do_not_decide_a_comparison_with_whole_blocks() -> None:
    block, lane = of(Var("block", 6)), of(Var("lane", 16))
    match below(block * 16 + lane, 32):
        case Op(Fn.LT, (Position(left), _)):
            assert left == block * 16
        case other:
            raise AssertionError(other)
