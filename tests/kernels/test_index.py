"""Indices in normal form have the value of what they were made of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from whence.kernels.index import Index, Looked, Quotient, Remainder, Var, of

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
            case Looked():
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
