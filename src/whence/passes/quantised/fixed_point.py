"""Real numbers as LiteRT's fixed-point arithmetic has them: multipliers with a shift, codes with a
scale and a zero point.

What is rounded here is rounded to nearest, halves away from zero, as C's `round` does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.ops.quantised.quantise import integer_range, round_away
from whence.types import DType

_SMALLEST_SHIFT, _LARGEST_SHIFT = -31, 30


class FixedPoint(NamedTuple):
    """The number multiplier · 2^(shift - 31), or one for each element, as FixedPointScale takes
    them.
    """

    multiplier: np.ndarray
    shift: np.ndarray


def fixed_point(real: float | np.ndarray) -> FixedPoint | None:
    """The nearest fixed-point numbers with 31 significant bits. Below 2^-32 that is zero, above
    2^30 there is none.
    """
    if not np.all(np.isfinite(real)):
        return None
    fraction, shift = np.frexp(np.asarray(real, np.float64))
    multiplier = round_away(fraction * 2.0**31)
    carries = np.abs(multiplier) == 2.0**31
    multiplier, shift = np.where(carries, multiplier / 2, multiplier), shift + carries
    known = (multiplier != 0) & (shift >= _SMALLEST_SHIFT)
    if np.any(known & (shift > _LARGEST_SHIFT)):
        return None
    return FixedPoint(
        np.where(known, multiplier, 0).astype(np.int32), np.where(known, shift, 0).astype(np.int32)
    )


def all_codes(dtype: DType) -> np.ndarray:
    """Every code of the type, in the order of a table for LookUp."""
    low, high = integer_range(dtype)
    return np.arange(low, high + 1, dtype=np.int32)
