"""A picture of a word: read from a PNG file, shown in a terminal, and as numbers for a model."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from whence.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY = 0
# Shades from paper to ink, two pixels above each other in a character: upper, lower.
_BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}


def read_grey_png(file: Path) -> np.ndarray:
    """The pixels of a PNG file, bytes by row and column. Of the many kinds of PNG only this one:
    grey, eight bits, not interlaced.
    """
    data = file.read_bytes()
    if not data.startswith(_SIGNATURE):
        raise InputError(f"'{file}' is not a PNG file")
    chunks: dict[bytes, bytes] = {}
    position = len(_SIGNATURE)
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        chunks[kind] = chunks.get(kind, b"") + data[position + 8 : position + 8 + length]
        position += 12 + length
    try:
        width, height, *layout = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        if layout != [8, _GREY, 0, 0, 0]:
            raise InputError(f"'{file}' is not a grey PNG file of eight bits without interlacing")
        return _unfiltered(zlib.decompress(chunks[b"IDAT"]), width, height)
    except (KeyError, IndexError, ValueError, struct.error, zlib.error) as error:
        raise InputError(f"'{file}' is a damaged PNG file: {error}") from error


def _unfiltered(data: bytes, width: int, height: int) -> np.ndarray:
    """Each row is one byte that says how it is predicted, and what the prediction was off by."""
    pixels = np.zeros((height, width), np.uint8)
    above = [0] * width
    for y in range(height):
        start = y * (width + 1)
        row = list(data[start + 1 : start + 1 + width])
        left = corner = 0
        for x, off in enumerate(row):
            row[x] = left = off + _predicted(data[start], left, above[x], corner) & 0xFF
            corner = above[x]
        pixels[y] = above = row
    return pixels


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    match kind:
        case 0:
            return 0
        case 1:
            return left
        case 2:
            return up
        case 3:
            return (left + up) // 2
        case 4:
            # Paeth: the neighbour nearest to left + up - corner.
            guess = left + up - corner
            return min((left, up, corner), key=lambda value: abs(guess - value))
    raise ValueError(f"no way to predict a row is called {kind}")


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
