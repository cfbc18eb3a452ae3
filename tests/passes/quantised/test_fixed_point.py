"""Fixed-point numbers."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whence.passes.quantised.fixed_point import fixed_point


@given(st.floats(2.0**-31, 2.0**29))
def test_as_close_as_31_bits_allow(real: float) -> None:
    found = fixed_point(real)
    assert found is not None
    assert 1 << 30 <= found.multiplier < 1 << 31
    assert math.isclose(found.multiplier * 2.0 ** (found.shift - 31), real, rel_tol=2.0**-31)


def _parts(real: float) -> list[int]:
    found = fixed_point(real)
    assert found is not None
    return [int(part) for part in found]


def test_the_ends() -> None:
    assert _parts(0.0) == [0, 0]
    assert _parts(2.0**-40) == [0, 0]
    assert _parts(1.0) == [1 << 30, 1]
    assert _parts(-0.75) == [-3 << 29, 0]
    # The fraction rounds up to one, which has a larger exponent.
    assert _parts(1.0 - 2.0**-40) == [1 << 30, 1]
    assert fixed_point(2.0**31) is None
    assert fixed_point(math.inf) is None
    assert fixed_point(np.array([1.0, 2.0**31])) is None


def test_several_numbers_are_as_each_by_itself() -> None:
    reals = [0.5, 0.0, 1.0 - 2.0**-40, -0.75, 2.0**-33]
    several = fixed_point(np.array(reals))
    assert several is not None
    for index, real in enumerate(reals):
        one = fixed_point(real)
        assert one is not None
        assert [each.shape for each in one] == [(), ()]
        assert one == tuple(each[index] for each in several)
