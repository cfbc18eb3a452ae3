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

from whence.building.memory_layout import Region
from whence.errors import UnsupportedError

if TYPE_CHECKING:
    from whence.building.program import Details


def used_ranges(details: Details) -> list[tuple[int, int]]:
    """Where in the arena values begin and end."""
    from whence.building.allocate import nbytes

    return [
        (place.offset, place.offset + nbytes(details.graph, ref))
        for ref, place in details.layout.places.items()
        if place.region is Region.ARENA
    ]


def poison_gaps(block: np.ndarray, used: Iterable[tuple[int, int]]) -> None:
    """Have the process end with a report when native code touches a byte of the block outside these
    ranges.
    """
    process = ctypes.CDLL(None)
    try:
        poison, unpoison = (
            getattr(process, f"__asan_{what}_memory_region") for what in ("poison", "unpoison")
        )
    except AttributeError:
        raise UnsupportedError(
            "code that checks its addresses needs AddressSanitizer's runtime in the process; load"
            " it first (LD_PRELOAD=libasan.so)"
        ) from None
    for function in (poison, unpoison):
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    # NumPy uses small blocks again without giving them back in between.
    owner = block if block.base is None else block.base
    weakref.finalize(owner, unpoison, block.ctypes.data, block.nbytes).atexit = False
    free = 0
    for begin, end in sorted(used):
        if free < begin:
            poison(block.ctypes.data + free, begin - free)
        free = max(free, end)
    if free < block.nbytes:
        poison(block.ctypes.data + free, block.nbytes - free)
