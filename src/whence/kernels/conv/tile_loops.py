"""The loops over the tiles of a cover, and over the kernel rows that a tile reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whence.kernels.builder import Builder
from whence.kernels.conv.tiles import Axis, Cover, Field, Shape
from whence.kernels.ir import Count, chosen, count, least, most


@dataclass(frozen=True, slots=True)
class TileAt:
    """A tile, where it begins in the output, and which kernel rows lie on its input."""

    shape: Shape
    row: Count
    column: Count
    kernel_rows: tuple[Count, Count] | None
    """From and to, for a tile one row high unless all of them do."""


def each_tile(
    build: Builder,
    cover: Cover,
    rows: Field,
    first: Count,
    last: Count,
    tile: Callable[[TileAt], None],
) -> None:
    """The tiles of the units `first` to `last` of a cover."""
    if cover.axis is Axis.ROWS:
        with build.loop("row", last, begin=first) as row:
            inside = _kernel_rows(build, rows, row)
            for run in cover.runs:
                end = run.start + run.count * run.step
                with build.loop("column", end, begin=run.start, step=run.step) as column:
                    tile(TileAt(run.shape, row, column, inside))
        return
    for run in cover.runs:
        begin = most(first, run.first) if run.first else first
        with build.loop("unit", least(last, run.first + run.count), begin=begin) as unit:
            at = unit * run.step + (run.start - run.first * run.step)
            if cover.axis is Axis.TILES:
                row, column = build.count("row", 0), build.count("column", at)
            else:
                row, column = build.count("row", at), build.count("column", 0)
            inside = _kernel_rows(build, rows, row) if run.shape.rows == 1 else None
            tile(TileAt(run.shape, row, column, inside))


def _kernel_rows(build: Builder, rows: Field, row: Count) -> tuple[Count, Count] | None:
    """The kernel rows that lie on the input of an output row."""
    if rows.is_inside:
        return None
    taps, dilation = rows.kernel, rows.dilation
    above = build.count("above", rows.begin - row * rows.stride)
    below = build.count("below", above + rows.size)
    first = chosen(above <= 0, 0, (above + (dilation - 1)) // dilation)
    last = chosen(
        below <= 0,
        0,
        chosen(below > (taps - 1) * dilation, taps, (below + (dilation - 1)) // dilation),
    )
    return build.count("kh_first", first), build.count("kh_last", last)


def each_kernel_row(
    build: Builder, rows: Field, tile: TileAt, read: Callable[[Count, int | None], None]
) -> None:
    """The kernel rows that a tile reads; `read` is also given which of the tile's reads belong to
    it: those of one row, or of every row in reach.
    """
    found = {each.row for each in tile.shape.reads}
    for row in sorted(found, key=lambda row: -1 if row is None else row):
        if row is None and (rows.kernel > 1 or not rows.is_inside):
            begin, end = tile.kernel_rows or (count(0), count(rows.kernel))
            with build.loop("kh", end, begin=begin) as kh:
                read(kh, row)
        else:
            with build.scope():
                read(build.count("kh", row or 0), row)
