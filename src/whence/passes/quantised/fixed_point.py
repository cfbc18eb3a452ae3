"""Real numbers as LiteRT's fixed-point arithmetic has them: multipliers with a shift, codes with a
scale and a zero point.

What is rounded here is rounded to nearest, halves away from zero, as C's `round` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from whence.ops.quantised.quantise import integer_range
from whence.types import DType

_SMALLEST_SHIFT, _LARGEST_SHIFT = -31, 30


class FixedPoint(NamedTuple):
    """The number multiplier · 2^(shift - 31)."""

    multiplier: int
    shift: int


def fixed_point(real: float) -> FixedPoint | None:
    """The nearest fixed-point number with 31 significant bits. Below 2^-32 that is zero, above 2^30
    there is none.
    """
    if not math.isfinite(real):
        return None
    fraction, shift = math.frexp(real)
    multiplier = int(rounded(fraction * 2.0**31))
    if abs(multiplier) == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if multiplier == 0 or shift < _SMALLEST_SHIFT:
        return FixedPoint(0, 0)
    return None if shift > _LARGEST_SHIFT else FixedPoint(multiplier, shift)


def fixed_points(reals: Iterable[float]) -> tuple[np.ndarray, np.ndarray] | None:
    """Multipliers and shifts of several numbers, as the inputs of FixedPointScale: of one number as
    scalars.
    """
    found = [fixed_point(real) for real in reals]
    known = [each for each in found if each is not None]
    if len(known) < len(found) or not known:
        return None
    shape = () if len(known) == 1 else (len(known),)
    return (
        np.array([each.multiplier for each in known], np.int32).reshape(shape),
        np.array([each.shift for each in known], np.int32).reshape(shape),
    )


def rounded(real: float) -> float:
    return math.copysign(math.floor(abs(real) + 0.5), real)


def code_of(real: float, scale: np.float32, zero_point: int) -> int:
    """The code of a number, not yet limited to what its type holds."""
    ratio = float(np.float32(real) / scale)
    return zero_point + int(rounded(min(max(ratio, -(2.0**40)), 2.0**40)))


def all_codes(dtype: DType) -> np.ndarray:
    """Every code of the type, in the order of a table for LookUp."""
    low, high = integer_range(dtype)
    return np.arange(low, high + 1, dtype=np.int32)
