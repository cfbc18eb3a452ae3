"""Where the constants that native code reads lie in one block, packed as it wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.building.aligned_memory import aligned
from whence.building.location import Location, MemoryRegion
from whence.building.mapped_pieces import PAGE, MappedRange
from whence.building.packed_weights import PackedWeights, Packing, Piece, file_bytes_of
from whence.graph.equal_bytes import equal_bytes

if TYPE_CHECKING:
    from whence.graph import Node

# Constants that differ do so early, as a rule: few are compared to their end.
_BEGINNING = 4096
# A constant of a file that is at least as large is packed only when the block is needed.
_LARGE = 1 << 20
_SLAB = 1 << 16
"""Bytes of a part for small constants; a constant that is as large is a part by itself."""


class Weights:
    """Collects constants, each packing of each once, and once what is equal; then `finish`.

    `gap` is how many bytes to leave unused before each and at the end. Without one, the block is
    divided into `parts` that begin at pages: large constants each by itself, small ones together,
    so that programs which pack a constant alike can share its memory (`building/mapped_pieces.py`).
    """

    def __init__(self, gap: int = 0) -> None:
        self._gap = gap
        self._size = gap
        self._slab = (0, 0)
        """Between which offsets there is room for small constants."""
        self.parts: list[MappedRange] = []
        self.used: list[tuple[int, int]] = []
        """Where each begins and ends."""
        self._places: dict[tuple[int, Packing | None], Location] = {}
        self._arrays: list[tuple[int, np.ndarray]] = []
        self._pieces: list[Piece] = []
        self._alike: dict[tuple[Packing | None, int, bytes], tuple[int, np.ndarray]] = {}

    def place(
        self, node: Node, packing: Packing | None = None, nbytes: int | None = None
    ) -> Location:
        """Where the constant will lie. What takes so many bytes once it is packed need not be
        packed to know that.
        """
        key = (node.id, packing)
        if key not in self._places:
            value = node.value
            assert value is not None
            if packing is None:
                nbytes = value.nbytes
            if nbytes is not None and value.nbytes >= _LARGE and file_bytes_of(value) is not None:
                offset, is_new = self._offset(packing, value.reshape(-1).view(np.uint8), nbytes)
                if is_new:
                    self._pieces.append(Piece(offset, nbytes, value, packing))
            else:
                array = np.ascontiguousarray(value if packing is None else packing(value))
                offset = self.bytes_at(array.reshape(-1).view(np.uint8))
            self._places[key] = Location(MemoryRegion.WEIGHTS, offset=offset)
        return self._places[key]

    def bytes_at(self, data: np.ndarray) -> int:
        """Where these bytes will lie."""
        offset, is_new = self._offset(None, data, data.nbytes)
        if is_new:
            self._arrays.append((offset, data))
        return offset

    def _offset(self, packing: Packing | None, data: np.ndarray, nbytes: int) -> tuple[int, bool]:
        """Where the bytes will lie that take so many when they are packed, and whether nothing
        equal does: tied weights are often in a file twice, and equal small constants a hundred
        times.
        """
        key = packing, data.nbytes, data[:_BEGINNING].tobytes()
        # One of those that begin alike is looked at, not all of them: a file could have any number.
        offset, alike = self._alike.get(key, (0, None))
        if alike is not None and equal_bytes(alike, data):
            return offset, False
        offset = self._reserve(nbytes)
        self._alike.setdefault(key, (offset, data))
        return offset, True

    def _reserve(self, nbytes: int) -> int:
        offset = self._size if self._gap else self._room(nbytes)
        self._size = max(self._size, offset + aligned(nbytes) + self._gap)
        self.used.append((offset, offset + nbytes))
        return offset

    def _room(self, nbytes: int) -> int:
        """Where so many bytes find room in a part."""
        offset, end = self._slab
        if nbytes >= _SLAB:
            return self._new_part(nbytes)
        if offset + nbytes > end:
            offset = self._new_part(_SLAB)
            end = offset + _SLAB
        self._slab = offset + aligned(nbytes), end
        return offset

    def _new_part(self, nbytes: int) -> int:
        last = self.parts[-1] if self.parts else MappedRange(0, 0)
        offset = -(-(last.offset + last.nbytes) // PAGE) * PAGE
        self.parts.append(MappedRange(offset, nbytes))
        return offset

    def finish(self) -> PackedWeights:
        """The block."""
        self._alike.clear()
        if self.parts:
            # The last part ends with its last constant.
            offset, nbytes = self.parts[-1]
            self.parts[-1] = MappedRange(offset, min(nbytes, self._size - offset))
        made = PackedWeights(self._size, self._arrays, self._pieces, self.parts)
        self._arrays, self._pieces = [], []
        return made
