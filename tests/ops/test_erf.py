from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whence.ops.formula import erf


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=0), elements=st.floats(-10, 10)))
def test_float64_is_as_good_as_libm(x: np.ndarray) -> None:
    expected = np.vectorize(math.erf, otypes=[np.float64])(x)
    actual = erf(x)
    assert actual.shape == x.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-15, atol=0)


@given(hnp.arrays(np.float32, hnp.array_shapes(), elements=st.floats(-10, 10, width=32)))
def test_float32_is_within_one_rounding(x: np.ndarray) -> None:
    expected = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    assert erf(x).dtype == np.float32
    np.testing.assert_allclose(erf(x), expected, rtol=6e-8, atol=1e-38)


@given(hnp.arrays(np.float64, 20, elements=st.floats(-10, 10)))
def test_erf_is_odd(x: np.ndarray) -> None:
    np.testing.assert_array_equal(erf(-x), -erf(x))


def test_special_values() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 6.0, -40.0])
    y = erf(x)
    np.testing.assert_array_equal(y[[0, 2, 3, 6, 7]], [0, 1, -1, 1, -1])
    assert math.copysign(1, y[1]) == -1
    assert math.isnan(y[4])
    assert y[5] == math.erf(1e-310)


def test_every_border_between_the_ranges_of_approximations() -> None:
    x = np.concatenate(
        [np.nextafter(edge, [-9, 9]) for edge in (-5.93, -4, -0.46875, 0.46875, 4, 5.93)]
    )
    x = np.tile(x, 3000)
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype: Any) -> None:
    x = np.linspace(-3, 3, 50).astype(dtype)
    np.testing.assert_array_equal(erf(x), erf(x.astype(np.float64)).astype(dtype))


def test_strided_input() -> None:
    x = np.linspace(-3, 3, 60).reshape(6, 10)[::2, ::-3]
    np.testing.assert_array_equal(erf(x), erf(x.copy()))
