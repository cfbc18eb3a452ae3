"""The inputs of a model in several places in memory, in turns.

Where an input lies makes up to a tenth of the time of the kernel that reads it, in all runs of a
process: two profiles would differ by as much, and the runs of neither would show it. In several
places, the shortest time is that of the best of them, and how far they lie apart is seen. All
places begin as far from a cache line as the given one: vectors that straddle two lines would be
charged to the operator that reads the input, and are not what the caller has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.building.aligned_memory import ALIGNMENT
from whence.ops.definition import Value

_PLACES, _MOST_BYTES = 8, 1 << 28
# So many that the shortest of them tells what the kernel takes there.
_RUNS = 24


class InputBuffers:
    """Copies are made when their turn comes, and kept: what is freed is often given out again."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._places = [tuple(values)]
        size = sum(each.nbytes for each in values if isinstance(each, np.ndarray))
        self._count = max(1, min(_PLACES, _MOST_BYTES // max(1, size)))
        self._runs = 0

    def next(self) -> Sequence[Value]:
        """Those of the next run."""
        number = self._runs // _RUNS % self._count
        self._runs += 1
        if number == len(self._places):
            self._places.append(tuple(map(copy_elsewhere, self._places[0])))
        return self._places[number]


def copy_elsewhere(value: Value) -> Value:
    """A copy in other memory, as far from the beginning of a cache line."""
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return value
    block = np.empty(value.nbytes + 2 * ALIGNMENT, np.uint8)
    start = (value.ctypes.data - block.ctypes.data) % ALIGNMENT
    copy = block[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy
