"""How the output of a convolution is covered by register tiles, and which pixels of a tile each
position of the kernel reaches.

Padding is never stored and never multiplied: a tile at the border leaves out the pixels that a
position of the kernel does not reach. Which those are is known when the code is made; only the
first and last kernel row of a tile one row high are found at run time.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """One spatial axis of a convolution or pool: output position p reads input position `p·stride +
    tap·dilation - begin` for each tap.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    begin: int

    def reaches(self, position: int, tap: int) -> bool:
        """Does the tap lie on the input, not in the padding?"""
        return 0 <= position * self.stride + tap * self.dilation - self.begin < self.size

    @property
    def is_inside(self) -> bool:
        """Do all positions lie on the input with all their taps?"""
        return (
            self.begin <= 0
            and (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation - self.begin
            < self.size
        )


@dataclass(frozen=True, slots=True)
class Read:
    """Positions of the kernel that the same pixels of a tile read: `count` columns from `first` on,
    of one kernel row or of every row in reach.
    """

    row: int | None
    first: int
    count: int
    pixels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile: so many rows of so many pixels, numbered row by row, and what they read."""

    rows: int
    columns: int
    reads: tuple[Read, ...]

    @property
    def pixels(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles number `first` to `first + count - 1` along an axis, all of one shape; the first one
    begins at `start`, each other `step` further.
    """

    first: int
    count: int
    start: int
    step: int
    shape: Shape


class Axis(enum.Enum):
    """Along what the tiles of an image are numbered."""

    TILES = "tiles"
    """The image is one row, divided into tiles."""
    ROWS = "rows"
    """Every row is divided into the same tiles, one row high."""
    BANDS = "bands"
    """Rows are so short that a tile holds several of them, whole."""


@dataclass(frozen=True, slots=True)
class Cover:
    """The tiles of one image."""

    axis: Axis
    runs: tuple[Run, ...]
    """Along the rows for `BANDS`, else along the columns of a row."""
    units: int
    """Tiles, rows or bands, by which work can be divided."""

    @property
    def largest(self) -> int:
        """Pixels of the largest tile."""
        return max(run.shape.pixels for run in self.runs)


def cover(rows: Field, columns: Field, pixels: int) -> Cover:
    """Tiles of at most `pixels` pixels, as equal as can be: 27 pixels are 14 + 13, not 14 + 13
    zeros.
    """
    high = min(pixels // columns.out, rows.out)
    if high > 1:
        heights = _even(rows.out, high)
        return Cover(Axis.BANDS, _stacked(rows, columns, heights), len(heights))
    widths = _even(columns.out, pixels)
    runs = _along(columns, widths)
    return (
        Cover(Axis.TILES, runs, len(widths)) if rows.out == 1 else Cover(Axis.ROWS, runs, rows.out)
    )


def _even(total: int, limit: int) -> list[int]:
    """`total` in parts of at most `limit`: all of one size if that is not much less, else as few
    and as equal as possible, larger ones first.
    """
    for size in range(limit, limit * 7 // 10, -1):
        if total % size == 0:
            # One size is one piece of code, and a slightly smaller tile is no slower.
            return [size] * (total // size)
    parts = -(-total // limit)
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def _along(columns: Field, widths: Sequence[int]) -> tuple[Run, ...]:
    """Tiles one row high; kernel rows are found at run time."""

    # Most tiles lie inside the input with all their taps, and there are thousands of them.
    whole: dict[int, Shape] = {}

    def shape(start: int, width: int) -> Shape:
        end = start + width
        if columns.reaches(start, 0) and columns.reaches(end - 1, columns.kernel - 1):
            if width not in whole:
                every = Read(None, 0, columns.kernel, tuple(range(width)))
                whole[width] = Shape(1, width, (every,))
            return whole[width]
        return Shape(1, width, _reads(columns, None, range(start, end), lambda pixel: True))

    return _runs(widths, shape)


def _stacked(rows: Field, columns: Field, heights: Sequence[int]) -> tuple[Run, ...]:
    """Tiles of several whole rows."""

    def shape(start: int, height: int) -> Shape:
        places = [column for _ in range(height) for column in range(columns.out)]
        reached = [
            [rows.reaches(start + row, tap) for row in range(height)] for tap in range(rows.kernel)
        ]
        if height == 1 or all(itertools.chain(*reached)):
            return Shape(height, columns.out, _reads(columns, None, places, lambda pixel: True))
        reads: list[Read] = []
        for tap, hit in enumerate(reached):
            reads += _reads(columns, tap, places, lambda pixel, hit=hit: hit[pixel // columns.out])  # type: ignore[misc]
        return Shape(height, columns.out, tuple(reads))

    return _runs(heights, shape)


def _reads(
    columns: Field, row: int | None, places: Sequence[int], hit: Callable[[int], bool]
) -> tuple[Read, ...]:
    """What the pixels in these columns read, taps with the same readers together."""
    found: list[Read] = []
    for tap in range(columns.kernel):
        pixels = tuple(
            pixel
            for pixel, column in enumerate(places)
            if hit(pixel) and columns.reaches(column, tap)
        )
        if not pixels:
            continue
        if found and found[-1].pixels == pixels and found[-1].first + found[-1].count == tap:
            found[-1] = Read(row, found[-1].first, found[-1].count + 1, pixels)
        else:
            found.append(Read(row, tap, 1, pixels))
    return tuple(found)


def _runs(sizes: Sequence[int], shape_at: Callable[[int, int], Shape]) -> tuple[Run, ...]:
    """The tiles one after another, neighbours of one shape together."""
    found: list[Run] = []
    start = 0
    for number, size in enumerate(sizes):
        shape = shape_at(start, size)
        if found and found[-1].shape == shape:
            found[-1] = Run(found[-1].first, found[-1].count + 1, found[-1].start, size, shape)
        else:
            found.append(Run(number, 1, start, size, shape))
        start += size
    return tuple(found)
