"""A picture of a word: read from a PGM file, shown in a terminal, and as numbers for a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from whence.errors import InputError

_KIND = b"P5"
# Shades from paper to ink, two pixels above each other in a character: upper, lower.
_BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}


def read_pgm(file: Path) -> np.ndarray:
    """The pixels of a grey picture in the binary form of Netpbm, bytes by row and column."""
    try:
        kind, size, _, data = file.read_bytes().split(b"\n", 3)
        width, height = map(int, size.split())
        if kind != _KIND:
            raise ValueError(f"it begins with {kind!r}, not {_KIND!r}")
        return np.frombuffer(data, np.uint8).reshape(height, width)
    except ValueError as error:
        raise InputError(f"'{file}' is not a PGM file: {error}") from error


def draw(pixels: np.ndarray, columns: int) -> list[str]:
    """The picture, dark on light, in lines of at most so many characters."""
    height, width = pixels.shape
    step = -(-width // columns)
    rows, cells = height // step // 2 * 2, width // step
    means = pixels[: rows * step, : cells * step].reshape(rows, step, cells, step).mean((1, 3))
    dark = means < (float(pixels.min()) + float(pixels.max())) / 2
    lines = [
        "".join(_BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(*pair, strict=True))
        for pair in zip(dark[::2], dark[1::2], strict=True)
    ]
    return [line.rstrip() for line in lines]


def as_input(pixels: np.ndarray) -> np.ndarray:
    """A batch of one picture with three channels between -1 and 1, as text recognisers take it."""
    grey = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(np.broadcast_to(grey, (1, 3, *grey.shape)))
