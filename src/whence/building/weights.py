"""All constants that native code reads, packed as it wants them, in one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from whence.building.aligned_memory import aligned, aligned_bytes
from whence.building.memory_layout import Location, Region

if TYPE_CHECKING:
    from whence.graph import Node

Packing = Callable[[np.ndarray], np.ndarray]


# Constants that differ do so early, as a rule: few are compared to their end.
_BEGINNING = 4096


class Weights:
    """Collects constants, each packing of each once, and once what is equal; then `finish`.

    `gap` is how many bytes to leave unused before each and at the end.
    """

    def __init__(self, gap: int = 0) -> None:
        self._gap = gap
        self._size = gap
        self.used: list[tuple[int, int]] = []
        """Where each begins and ends."""
        self._places: dict[tuple[int, Packing | None], Location] = {}
        self._arrays: list[tuple[int, np.ndarray]] = []
        self._alike: dict[tuple[int, bytes], tuple[int, np.ndarray]] = {}

    def place(self, node: Node, packing: Packing | None = None) -> Location:
        """Where the constant will lie."""
        key = (node.id, packing)
        if key not in self._places:
            value = node.value
            assert value is not None
            array = np.ascontiguousarray(value if packing is None else packing(value))
            self._places[key] = Location(
                Region.WEIGHTS, offset=self._offset(array.reshape(-1).view(np.uint8))
            )
        return self._places[key]

    def bytes_at(self, data: np.ndarray) -> int:
        """Where these bytes will lie."""
        return self._offset(data)

    def _offset(self, data: np.ndarray) -> int:
        """Where the bytes will lie: tied weights are often in a file twice, and equal small
        constants a hundred times.
        """
        offset, alike = self._alike.setdefault(
            (data.nbytes, data[:_BEGINNING].tobytes()), (self._size, data)
        )
        # One of those that begin alike is looked at, not all of them: a file could have any number.
        if alike is not data and np.array_equal(alike, data):
            return offset
        offset = self._size
        self._arrays.append((offset, data))
        self._size += aligned(data.nbytes) + self._gap
        self.used.append((offset, offset + data.nbytes))
        return offset

    def finish(self) -> np.ndarray:
        """The block."""
        block = aligned_bytes(self._size)
        self._alike.clear()
        # Each is let go as soon as it is copied, so that not all are there twice.
        while self._arrays:
            offset, data = self._arrays.pop()
            block[offset : offset + data.nbytes] = data
        return block
