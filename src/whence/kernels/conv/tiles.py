"""How the output of a convolution is covered by register tiles, and which pixels of a tile each
position of the kernel reaches.

Padding is never stored and never multiplied: a tile at the border leaves out the pixels that a
position of the kernel does not reach. Which those are is known when the code is made; only the
first and last kernel row of a tile one row high are found at run time.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whence.extent import (
    Relation,
    decide,
    estimate,
    is_symbolic,
    larger,
    smaller,
    surely_equal,
)

# So long a row has no end in reach of its beginning.
_FAR = 1 << 20


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
    end: int | None = None
    """Padding behind the input, if windows reach no further."""

    def reaches(self, position: int, tap: int) -> bool:
        """Does the tap lie on the input, not in the padding?"""
        return 0 <= position * self.stride + tap * self.dilation - self.begin < self.size

    def reached_by(self, tap: int) -> tuple[int, int]:
        """The first position whose tap lies on the input, and the first behind the last such."""
        offset = self.begin - tap * self.dilation
        return -(-offset // self.stride), -(-(offset + self.size) // self.stride)

    @property
    def is_inside(self) -> bool:
        """Do all positions lie on the input with all their taps, whatever its size?"""
        if self.begin > 0:
            return False
        last = (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation - self.begin
        if is_symbolic(self.size) and self.end is not None and self.end <= 0:
            return True
        return decide(last, Relation.LT, self.size) is True

    @property
    def is_pointwise(self) -> bool:
        """Does every output position read the input position of the same number?"""
        return (
            self.kernel == self.stride == 1
            and surely_equal(self.begin, 0)
            and surely_equal(self.size, self.out)
        )

    @property
    def is_open(self) -> bool:
        """Is its size known only at run time?"""
        return is_symbolic(self.size) or is_symbolic(self.out)

    @property
    def all_inside(self) -> int:
        """So many positions from the first on have no tap behind the input."""
        room = self.size + self.begin - (self.kernel - 1) * self.dilation - 1
        return smaller(larger(room + self.stride, 0) // self.stride, self.out)

    def estimated(self) -> Field:
        """The axis to compare costs by."""
        return replace(self, size=estimate(self.size), out=estimate(self.out))


ONE_ROW = Field(1, 1, 1, 1, 1, 0)
"""The rows of an image of one axis."""


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
class TileShape:
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
    shape: TileShape


class Axis(enum.Enum):
    """Along what the tiles of an image are numbered."""

    TILES = "tiles"
    """The image is one row, divided into tiles."""
    ROWS = "rows"
    """Every row is divided into the same tiles, one row high."""
    BANDS = "bands"
    """Rows are so short that a tile holds several of them, whole."""


@dataclass(frozen=True, slots=True)
class OpenCover:
    """The tiles of an image whose size is known only at run time. All have the same number of
    pixels, neighbours in a row. The last one of a row begins so early that it ends with the row:
    some pixels are computed twice then. What the first and the last one read is known beforehand in
    most cases; other tiles that read padding are edge tiles, which find out at run time what each
    of their pixels reads. If rows are so short that no other tile fits, or that too many pixels
    would be computed twice, they are one after another, and edge tiles go over their ends.
    """

    inside: TileShape
    """A tile that reads no padding left and right of it."""
    left: TileShape | None
    """The first tile of a row, where that reads padding."""
    right: TileShape | None
    """The last tile of a row, where that reads padding and it is known how much."""
    columns: Field
    is_row: bool
    """The image is one row, and a unit is a tile; else a unit is a row."""
    units: int
    narrower: OpenCover | None = None
    """The same image in narrower tiles, for rows that these divide better."""

    @property
    def largest(self) -> int:
        """Pixels of a tile."""
        return self.inside.pixels

    @property
    def knows_ends(self) -> bool:
        """Is it known what the first and the last tile of a row read that is long enough?"""
        begin, end = self.columns.begin, self.columns.end
        return (self.left is not None or surely_equal(begin, 0)) and (
            self.right is not None or (end is not None and surely_equal(end, 0))
        )

    @property
    def per_unit(self) -> int:
        """Tiles of a unit."""
        return 1 if self.is_row else -(-self.columns.out // self.largest)


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

    @property
    def per_unit(self) -> int:
        """Tiles of a unit."""
        return sum(run.count for run in self.runs) if self.axis is Axis.ROWS else 1


def open_cover(rows: Field, columns: Field, pixels: int, narrower: int = 0) -> OpenCover:
    """Tiles of at most `pixels` pixels for an image of any size, for the size at hand as equal as
    can be; and of `narrower` ones, if that is less.
    """
    is_row = not is_symbolic(rows.out) and rows.out == 1
    across = estimate(columns.out)
    if across >= pixels and not is_row:
        pixels = -(-across // -(-across // pixels))
    widest = _tiles_of(rows, columns, pixels, is_row)
    if is_row or not 1 < narrower < pixels:
        return widest
    return replace(widest, narrower=_tiles_of(rows, columns, narrower, is_row))


def _tiles_of(rows: Field, columns: Field, pixels: int, is_row: bool) -> OpenCover:
    everything = Read(None, 0, columns.kernel, tuple(range(pixels)))
    units = -(-columns.out // pixels) if is_row else rows.out
    return OpenCover(
        TileShape(1, pixels, (everything,)),
        _left_tile(columns, pixels),
        _right_tile(columns, pixels),
        columns,
        is_row,
        units,
    )


def _left_tile(columns: Field, pixels: int) -> TileShape | None:
    """What the first pixels of a row read that is long enough for all else to be inside."""
    if is_symbolic(columns.begin) or columns.begin <= 0:
        return None
    long = replace(columns, size=_FAR, out=_FAR)
    return TileShape(1, pixels, _reads(long, None, range(pixels)))


def _right_tile(columns: Field, pixels: int) -> TileShape | None:
    """What the last pixels of such a row read. With strides, that is another matter for each
    remainder of its length.
    """
    if (
        columns.stride != 1
        or columns.end is None
        or is_symbolic(columns.begin)
        or is_symbolic(columns.end)
        or columns.end <= 0
    ):
        return None
    size = _FAR + (columns.kernel - 1) * columns.dilation - columns.begin - columns.end
    long = replace(columns, size=size, out=_FAR)
    places = range(_FAR - pixels, _FAR)
    return TileShape(1, pixels, _reads(long, None, places))


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
    # There are thousands of tiles. From one position to the next where a tap comes onto the input,
    # or leaves it, those of one width are all alike.
    borders = sorted(
        {border for tap in range(columns.kernel) for border in columns.reached_by(tap)}
    )
    found: list[Run] = []
    number = start = 0
    for width, same in itertools.groupby(widths):
        left = sum(1 for _ in same)
        while left:
            ahead = borders[bisect.bisect(borders, start) :][:1]
            count = min(left, max(1, (ahead[0] - start) // width)) if ahead else left
            places = range(start, start + width)
            shape = TileShape(1, width, _reads(columns, None, places))
            _add_run(found, Run(number, count, start, width, shape))
            number, start, left = number + count, start + count * width, left - count
    return tuple(found)


def _stacked(rows: Field, columns: Field, heights: Sequence[int]) -> tuple[Run, ...]:
    """Tiles of several whole rows."""
    found: list[Run] = []
    start = 0
    for number, height in enumerate(heights):
        places = [*range(columns.out)] * height
        reached = [
            [rows.reaches(start + row, tap) for row in range(height)] for tap in range(rows.kernel)
        ]
        reads: list[Read] = []
        if height == 1 or all(itertools.chain(*reached)):
            reads += _reads(columns, None, places)
        else:
            for tap, hit in enumerate(reached):
                pixels = [pixel for pixel in range(len(places)) if hit[pixel // columns.out]]
                reads += _reads(columns, tap, places, pixels)
        shape = TileShape(height, columns.out, tuple(reads))
        _add_run(found, Run(number, 1, start, height, shape))
        start += height
    return tuple(found)


def _reads(
    columns: Field, row: int | None, places: Sequence[int], among: Sequence[int] | None = None
) -> tuple[Read, ...]:
    """What the pixels in these columns read, or some of them, taps with the same readers
    together.
    """
    found: list[Read] = []
    for tap in range(columns.kernel):
        pixels = tuple(
            pixel
            for pixel in (range(len(places)) if among is None else among)
            if columns.reaches(places[pixel], tap)
        )
        if not pixels:
            continue
        if found and found[-1].pixels == pixels and found[-1].first + found[-1].count == tap:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
        else:
            found.append(Read(row, tap, 1, pixels))
    return tuple(found)


def _add_run(found: list[Run], run: Run) -> None:
    """Append a run, or lengthen the last one if its tiles have the same shape."""
    if found and found[-1].shape == run.shape:
        found[-1] = replace(found[-1], count=found[-1].count + run.count)
    else:
        found.append(run)
