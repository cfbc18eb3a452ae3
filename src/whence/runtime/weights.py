"""All constants that native code reads, packed as it wants them, in one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from whence.runtime.memory import ALIGNMENT, aligned
from whence.runtime.places import Place, Region

if TYPE_CHECKING:
    from whence.graph import Node

Packing = Callable[[np.ndarray], np.ndarray]


class Weights:
    """Collects constants, each packing of each once, then `finish`."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, Packing | None], Place] = {}
        self._arrays: list[tuple[int, np.ndarray]] = []
        self._size = 0

    def place(self, node: Node, packing: Packing | None = None) -> Place:
        """Where the constant will lie."""
        key = (node.id, packing)
        if key not in self._places:
            value = node.value
            assert value is not None
            array = np.ascontiguousarray(value if packing is None else packing(value))
            self._places[key] = Place(Region.WEIGHTS, offset=self._size)
            self._arrays.append((self._size, array))
            self._size += aligned(array.nbytes)
        return self._places[key]

    def finish(self) -> np.ndarray:
        """The block."""
        block = aligned_bytes(self._size)
        for offset, array in self._arrays:
            block[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        self._arrays.clear()
        return block


def aligned_bytes(size: int) -> np.ndarray:
    """A block of memory, all zero, that starts at a cache line."""
    try:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise MemoryError(f"no room for {size:,} bytes of a model's values") from None
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
