"""A block of memory that is made of files: pieces of it are mapped, one behind the other.

Whoever maps the same file shares its pages, so that constants which several programs pack alike are
in memory once, however they lie in the block of each.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whence.building.aligned_memory import aligned_bytes

PAGE = mmap.PAGESIZE
_FIXED = 0x10
"""MAP_FIXED, on Linux and macOS: the mapping takes the place of what is there."""


class MappedRange(NamedTuple):
    """A range of a block."""

    offset: int
    """A multiple of the page size."""
    nbytes: int


def block_of(size: int, pieces: Sequence[MappedRange], files: Sequence[Path]) -> np.ndarray:
    """A block of this size, read-only, with the content of the files as its pieces; zeros lie
    between them.
    """
    if not hasattr(mmap, "MAP_PRIVATE") or any(piece.offset % PAGE for piece in pieces):
        return _copied(size, pieces, files)
    # The address space of the whole; its pages are nowhere before they are written. It is unmapped
    # with everything in it when the last array over it is gone.
    whole = mmap.mmap(-1, max(size, 1))
    block = np.frombuffer(whole, np.uint8, size)
    begin = block.ctypes.data
    place = ctypes.CDLL(None, use_errno=True).mmap
    place.restype = ctypes.c_void_p
    place.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    for piece, file in zip(pieces, files, strict=True):
        with file.open("rb") as opened:
            _check(file, opened.fileno(), piece)
            wanted = begin + piece.offset
            found = place(
                wanted, piece.nbytes, mmap.PROT_READ, mmap.MAP_PRIVATE | _FIXED, opened.fileno(), 0
            )
            if found != wanted:
                raise OSError(ctypes.get_errno(), f"cannot map '{file}'")
    block.flags.writeable = False
    return block


def _copied(size: int, pieces: Sequence[MappedRange], files: Sequence[Path]) -> np.ndarray:
    """Where files cannot be mapped to a given place."""
    block = aligned_bytes(size)
    for piece, file in zip(pieces, files, strict=True):
        with file.open("rb") as opened:
            _check(file, opened.fileno(), piece)
            block[piece.offset : piece.offset + piece.nbytes] = np.fromfile(opened, np.uint8)
    block.flags.writeable = False
    return block


def _check(file: Path, number: int, piece: MappedRange) -> None:
    """A page behind the end of a file that is too short could not be read."""
    if os.fstat(number).st_size != piece.nbytes:
        raise OSError(f"'{file}' has not {piece.nbytes} bytes")
