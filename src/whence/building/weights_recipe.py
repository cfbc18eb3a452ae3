"""How large weights are packed from the bytes of the model's own files, as a record of the cache.

Weights that are stored as they are packed are quick to start with, and take the disk twice. Large
ones are packed again at every start instead, from the file, whose digest the record was found by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whence.building.packed_weights import PackedWeights, Packing, Piece, file_bytes_of


class StoredPiece(NamedTuple):
    """A piece of the block, by the bytes of a file that it is packed from."""

    offset: int
    nbytes: int
    file: str
    file_offset: int
    dtype: str
    shape: tuple[int, ...]
    packing: Packing | None


def encode_recipe(
    packed: PackedWeights, model: Path, names: Sequence[str]
) -> list[StoredPiece] | None:
    """The pieces of a block, if they are in the model's file or in files of these names beside it.
    The ranges that have their own content are `packed.ranges`.
    """
    files = {(model.parent / name).resolve(): name for name in (*names, model.name)}
    pieces = []
    for piece in packed.pieces:
        found = file_bytes_of(piece.value)
        name = None if found is None else files.get(found.path.resolve())
        if found is None or name is None:
            return None
        value = piece.value
        pieces.append(
            StoredPiece(
                piece.offset,
                piece.nbytes,
                name,
                found.offset,
                value.dtype.str,
                value.shape,
                piece.packing,
            )
        )
    return pieces


def decode_recipe(
    nbytes: int,
    ranges: Sequence[tuple[int, int]],
    content: memoryview,
    pieces: Sequence[StoredPiece],
    files: Mapping[str, Path],
) -> PackedWeights | None:
    """The block, to be packed from these files. `None` if they or the content are not what they
    were.
    """
    stored = np.frombuffer(content, np.uint8) if content.nbytes else np.empty(0, np.uint8)
    if sum(size for _, size in ranges) != stored.size:
        return None
    import ml_dtypes  # noqa: F401  # NumPy knows its types by their names only then

    ready, begin = [], 0
    for offset, size in ranges:
        ready.append((int(offset), stored[begin : begin + size]))
        begin += size
    mapped: dict[str, np.ndarray] = {}
    made = []
    for piece in pieces:
        if piece.file not in mapped:
            try:
                mapped[piece.file] = np.memmap(files[piece.file], np.uint8, mode="r")
            except OSError:
                return None
        dtype = np.dtype(piece.dtype)
        size = dtype.itemsize * int(np.prod(piece.shape, dtype=np.int64))
        raw = mapped[piece.file][piece.file_offset : piece.file_offset + size]
        value = raw.view(np.ndarray).view(dtype).reshape(piece.shape)
        made.append(Piece(piece.offset, piece.nbytes, value, piece.packing))
    return PackedWeights(nbytes, ready, made)
