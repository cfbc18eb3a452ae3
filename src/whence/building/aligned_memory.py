"""Memory that begins at a cache line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.machine import CACHE_LINE

ALIGNMENT = CACHE_LINE
"""So that no value shares a line with another, and no vector straddles two."""


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def empty_array(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """An array of any contents, or a MemoryError, whatever the reason that there is none."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise MemoryError(f"no room for an array {dtype}{list(shape)}") from None


def aligned_bytes(size: int) -> np.ndarray:
    """A block of memory, all zero, that starts at a cache line."""
    try:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise MemoryError(f"no room for {size:,} bytes of a model's values") from None
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
