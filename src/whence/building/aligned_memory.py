"""Memory that begins at a cache line."""

from __future__ import annotations

import mmap
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


def ordinary_pages(size: int) -> np.ndarray:
    """As `aligned_bytes`, in pages of the ordinary size. NumPy asks for huge ones, which a virtual
    machine may have to get from its host first: for gigabytes that takes seconds.
    """
    try:
        return np.frombuffer(
            mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8
        )[:size]
    except (OSError, OverflowError, ValueError):
        raise MemoryError(f"no room for {size:,} bytes of a model's values") from None


def aligned_bytes(size: int) -> np.ndarray:
    """A block of memory, all zero, that starts at a cache line."""
    try:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise MemoryError(f"no room for {size:,} bytes of a model's values") from None
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
