"""The constants of a program in one block, which is packed on first use.

A constant that is a file's own bytes is packed from there, and the pages that were read are given
back at once: large weights are in memory once, as kernels want them. A process that only compiles
packs none of them.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from whence.building.aligned_memory import aligned_bytes, ordinary_pages
from whence.building.mapped_pieces import MappedRange
from whence.codegen.target import usable_cores

Packing = Callable[[np.ndarray], np.ndarray]


@runtime_checkable
class PackingInto(Protocol):
    """A packing that can write its result, of float32, where it is wanted."""

    def pack_into(self, weights: np.ndarray, out: np.ndarray, /) -> None: ...


# No more at a time: each has a packed copy until it is in the block.
_MOST_THREADS = 8


class Piece(NamedTuple):
    """A constant that is a file's bytes, and where in the block it will lie."""

    offset: int
    nbytes: int
    value: np.ndarray
    """Mapped from the file."""
    packing: Packing | None


class FileBytes(NamedTuple):
    """Where in a file an array's bytes are."""

    path: Path
    offset: int


def file_bytes_of(array: np.ndarray) -> FileBytes | None:
    """Of an array that is mapped from a file, dense; of any other, nothing."""
    mapped = _mapping(array)
    if mapped is None or mapped.filename is None or not array.flags.c_contiguous:
        return None
    offset = array.ctypes.data - mapped.ctypes.data + mapped.offset
    return FileBytes(Path(mapped.filename), offset)


def _mapping(array: np.ndarray) -> np.memmap | None:
    """The whole mapping that an array is a part of."""
    found, base = None, array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            found = base
        base = base.base  # type: ignore[assignment]
    return found


def release_pages(array: np.ndarray) -> None:
    """The pages of a file that only this array is on leave this process's memory; who reads them
    again gets them from the system's cache.
    """
    mapped = _mapping(array)
    whole = None if mapped is None else mapped._mmap  # type: ignore[attr-defined]
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if mapped is None or not isinstance(whole, mmap.mmap) or advice is None:
        return
    # The mapping begins at a page, before the offset that was asked for.
    begin = array.ctypes.data - mapped.ctypes.data + mapped.offset % mmap.ALLOCATIONGRANULARITY
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (begin + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        with contextlib.suppress(OSError, ValueError):
            whole.madvise(advice, first, last - first)


def _packed_alike(one: Piece, other: Piece) -> bool:
    """Are two pieces the same bytes of a file, packed in the same way and to the same place?"""
    return (one.offset, one.nbytes, one.packing) == (
        other.offset,
        other.nbytes,
        other.packing,
    ) and (one.value is other.value or file_bytes_of(one.value) == file_bytes_of(other.value))


class PackedWeights:
    """A block of constants: those that are there, and those to be packed from files."""

    def __init__(
        self,
        nbytes: int,
        ready: Sequence[tuple[int, np.ndarray]],
        pieces: Sequence[Piece] = (),
        parts: Sequence[MappedRange] = (),
    ) -> None:
        self.nbytes = nbytes
        self._ready = list(ready)
        """Packed constants and where they belong, until the block has them."""
        self.ranges = [(offset, data.nbytes) for offset, data in ready]
        """Where they belong, and their sizes."""
        self.pieces = list(pieces)
        """The others; they stay known, so that the block can be described."""
        self.parts = tuple(parts) or ((MappedRange(0, nbytes),) if nbytes else ())
        """What the block is stored as, each under its content."""
        self._block: np.ndarray | None = None
        self._packing = threading.Lock()

    @classmethod
    def of(cls, block: np.ndarray) -> PackedWeights:
        """A block that is there already."""
        made = cls(block.nbytes, ())
        made._block = block
        return made

    @property
    def block(self) -> np.ndarray:
        """All of them, as kernels want them."""
        with self._packing:
            if self._block is None:
                self._block = self._packed()
            return self._block

    def is_same(self, other: PackedWeights) -> bool:
        """Do the two blocks hold the same bytes in the same places? What is not packed yet is
        compared before it is.
        """
        if self.nbytes != other.nbytes or len(self.pieces) != len(other.pieces):
            return False
        if any(not _packed_alike(*pair) for pair in zip(self.pieces, other.pieces, strict=True)):
            return False
        with self._packing:
            ready = self._ready if self._block is None else [(0, self._block)]
        block = other.block
        return all(np.array_equal(block[at : at + data.nbytes], data) for at, data in ready)

    def range_content(self) -> np.ndarray:
        """The bytes of all ranges, one after the other."""
        with self._packing:
            if self._block is None:
                parts = [data for _, data in self._ready]
            else:
                parts = [self._block[offset : offset + size] for offset, size in self.ranges]
        return np.concatenate(parts)

    def part_content(self, part: MappedRange) -> memoryview:
        """The bytes of a part. A process that only stores them makes no block of them all first."""
        begin, end = part.offset, part.offset + part.nbytes
        with self._packing:
            if self._block is None and not self.pieces:
                inside = [(at - begin, data) for at, data in self._ready if begin <= at < end]
                if len(inside) == 1 and inside[0][1].nbytes == part.nbytes:
                    return inside[0][1].data
                content = np.zeros(part.nbytes, np.uint8)
                for at, data in inside:
                    content[at : at + data.nbytes] = data
                return content.data
        return self.block.data[begin:end]

    def _packed(self) -> np.ndarray:
        block = ordinary_pages(self.nbytes) if self.pieces else aligned_bytes(self.nbytes)
        # Each is let go as soon as it is copied, so that not all are there twice.
        while self._ready:
            offset, data = self._ready.pop()
            block[offset : offset + data.nbytes] = data
        threads = min(usable_cores(), _MOST_THREADS, len(self.pieces))
        if threads > 1:
            # Here, because most starts find everything packed already.
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(lambda piece: _pack_into(block, piece), self.pieces):
                    pass
        else:
            for piece in self.pieces:
                _pack_into(block, piece)
        return block


def _pack_into(block: np.ndarray, piece: Piece) -> None:
    out = block[piece.offset : piece.offset + piece.nbytes]
    if isinstance(piece.packing, PackingInto):
        piece.packing.pack_into(piece.value, out.view(np.float32))
    else:
        packed = piece.value if piece.packing is None else piece.packing(piece.value)
        out[:] = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
    release_pages(piece.value)
