"""Casts after casts become one or none, but never where the first loses something."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from whence.ops.tensor.cast import cast
from whence.passes.simplify.merge_casts import is_lossless
from whence.types import DType

F16, F32, F64, BF16 = DType.F16, DType.F32, DType.F64, DType.BF16
I8, I32, I64, U8, BOOL = DType.I8, DType.I32, DType.I64, DType.U8, DType.BOOL


def values_of(dtype: DType) -> np.ndarray:
    """The values at which a type ends, and some between."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy.name)
        return np.array(sorted({info.min, info.min + 1, 0, 1, info.max - 1, info.max}), dtype.numpy)
    tiny = ml_dtypes.finfo(dtype.numpy).tiny
    return np.array([0.0, -0.0, 1 / 3, 1e-3, tiny, np.inf, -np.inf, np.nan]).astype(dtype.numpy)


def is_nan(values: np.ndarray) -> np.ndarray:
    return np.isnan(values.astype(np.float64))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    list(
        itertools.permutations(
            [BOOL, U8, I8, DType.U16, I32, I64, DType.U64, F16, BF16, F32, F64], 2
        )
    ),
)
def test_lossless_means_that_every_value_comes_back(narrow: DType, wide: DType) -> None:
    values = values_of(narrow)
    back = cast(cast(values, wide), narrow)
    same = back.tolist() == values.tolist() or bool(
        np.all((back == values) | (is_nan(back) & is_nan(values)))
    )
    if is_lossless(narrow, wide):
        assert same
    elif wide.is_float or wide is BOOL or narrow.is_float:
        assert not same
