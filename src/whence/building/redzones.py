"""Memory between values that no code may touch, where AddressSanitizer watches.

Its runtime knows where a block from the system begins and ends. The values of a model lie in one
block each for the arena and the weights: what lies between two of them has to be told.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from whence.building.aligned_memory import ALIGNMENT
from whence.building.location import MemoryRegion
from whence.errors import GraphError, UnsupportedError

if TYPE_CHECKING:
    from whence.building.program import Details


def used_ranges(details: Details) -> list[tuple[int, int]]:
    """Where in the arena values begin and end."""
    return [
        (place.offset, place.offset + details.graph.nbytes(ref))
        for ref, place in details.layout.places.items()
        if place.region is MemoryRegion.ARENA
    ]


def watched_bytes(
    size: int, used: Iterable[tuple[int, int]], content: np.ndarray | None = None
) -> np.ndarray:
    """A block of memory that starts at a cache line, zero or with this content. The process ends
    with a report when native code touches a byte of it outside the used ranges.
    """
    process = ctypes.CDLL(None)
    try:
        poison = process.__asan_poison_memory_region
    except AttributeError:
        raise UnsupportedError(
            "code that checks its addresses needs AddressSanitizer's runtime in the process; load"
            " it first (LD_PRELOAD=libasan.so)"
        ) from None
    poison.argtypes, poison.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    gaps = gaps_between(used, size)
    block = _from_system(process, size)
    if content is not None:
        block[:] = content
    for begin, end in gaps:
        poison(block.ctypes.data + begin, end - begin)
    return block


def gaps_between(used: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """What of so many bytes is in none of these ranges."""
    gaps, free = [], 0
    for begin, end in sorted(used):
        if end > size:
            raise GraphError(f"a value lies at bytes {begin} to {end} of a block of {size}")
        if free < begin:
            gaps.append((free, begin))
        free = max(free, end)
    return [*gaps, (free, size)] if free < size else gaps


def _from_system(process: ctypes.CDLL, size: int) -> np.ndarray:
    """Zeros in memory that nobody else has before the system's `free` took it, which forgets what
    was poisoned. NumPy's own may be another array's, in another thread, while an array's finalizer
    has yet to run.
    """
    process.calloc.argtypes, process.calloc.restype = (ctypes.c_size_t,) * 2, ctypes.c_void_p
    process.free.argtypes, process.free.restype = (ctypes.c_void_p,), None
    address = process.calloc(1, size + ALIGNMENT)
    if not address:
        raise MemoryError(f"no room for {size:,} bytes of a model's values")
    owner = (ctypes.c_uint8 * (size + ALIGNMENT)).from_address(address)
    weakref.finalize(owner, process.free, address).atexit = False
    start = -address % ALIGNMENT
    return np.frombuffer(memoryview(owner).cast("B"), np.uint8)[start : start + size]
