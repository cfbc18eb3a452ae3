"""Comparing large constants bit by bit."""

from __future__ import annotations

import numpy as np

# Few enough that comparing them stays in a processor's cache.
_PART = 1 << 18


def equal_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Do two arrays have the same bytes, in row-major order? They are compared part by part, up to
    the first that differs: quicker than hashing both, and without an array of all comparisons.
    """
    if one.nbytes != other.nbytes:
        return False
    left, right = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    return all(
        np.array_equal(left[begin : begin + _PART], right[begin : begin + _PART])
        for begin in range(0, left.size, _PART)
    )
