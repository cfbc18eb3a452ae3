"""The loops over the tiles of a cover, and over the kernel rows that a tile reads; and the products
inside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from whence.extent import surely_equal
from whence.kernels.builder import Builder, Memory, Pointer
from whence.kernels.conv.tiles import Axis, Cover, Field, OpenCover, Read, TileShape
from whence.kernels.ir import (
    Condition,
    Count,
    CountValue,
    Expr,
    Splat,
    chosen,
    count,
    least,
    most,
)
from whence.types import DType

# As many products in a row as it takes to make the loop around them free.
_PRODUCTS = 24


@dataclass(frozen=True, slots=True)
class TileAt:
    """A tile, where it begins in the output, and which kernel rows lie on its input."""

    shape: TileShape
    row: Count
    column: Count
    kernel_rows: tuple[Count, Count] | None
    """From and to, for a tile one row high unless all of them do."""


@dataclass(frozen=True, slots=True)
class EdgeAt:
    """A tile that finds out at run time what its pixels read."""

    pixels: int
    place: Count
    """The number of its first pixel in the image."""
    have: Count
    """So many of its pixels are pixels of the image."""


def each_tile(
    build: Builder,
    cover: Cover | OpenCover,
    rows: Field,
    first: Count,
    last: Count,
    tile: Callable[[TileAt], None],
    edge: Callable[[EdgeAt], None],
    edge_cost: int,
) -> None:
    """The tiles of the units `first` to `last` of a cover. Where the size of the image is open,
    some are edge tiles, a pixel of which costs `edge_cost` eighths of what one of another does.
    """
    if isinstance(cover, OpenCover):
        _each_open_tile(build, cover, rows, first, last, tile, edge, edge_cost)
        return
    if cover.axis is Axis.ROWS:
        with build.loop("row", last, begin=first) as row:
            inside = _kernel_rows(build, rows, row)
            for run in cover.runs:
                begin, end = build.size(run.start), build.size(run.start + run.count * run.step)
                with build.loop("column", end, begin=begin, step=run.step) as column:
                    tile(TileAt(run.shape, row, column, inside))
        return
    for run in cover.runs:
        since = most(first, build.size(run.first)) if run.first else first
        until = least(last, build.size(run.first + run.count))
        with build.loop("unit", until, begin=since) as unit:
            at = unit * run.step + build.size(run.start - run.first * run.step)
            if cover.axis is Axis.TILES:
                row, column = build.count("row", 0), build.count("column", at)
            else:
                row, column = build.count("row", at), build.count("column", 0)
            inside = _kernel_rows(build, rows, row) if run.shape.rows == 1 else None
            tile(TileAt(run.shape, row, column, inside))


def _each_open_tile(
    build: Builder,
    cover: OpenCover,
    rows: Field,
    first: Count,
    last: Count,
    inside: Callable[[TileAt], None],
    edge: Callable[[EdgeAt], None],
    edge_cost: int,
) -> None:
    widest, columns = cover, cover.columns
    out, begin = count(columns.out), -(-columns.begin // columns.stride)

    def known(shape: TileShape, row: Count, column: Count) -> None:
        inside(TileAt(shape, row, column, _kernel_rows(build, rows, row)))

    def tile(cover: OpenCover, row: Count, column: Count, end: Count, length: Count) -> None:
        has_padding = column + cover.largest > end
        if not surely_equal(begin, 0):
            has_padding = (column < begin) | has_padding
        with build.when(has_padding):
            at_border(cover, row, column, end, length)
        with build.otherwise():
            known(cover.inside, row, column)

    def at_border(cover: OpenCover, row: Count, column: Count, end: Count, length: Count) -> None:
        pixels = cover.largest
        # Narrower tiles are chosen only for rows in which all but the first and the last one lie
        # inside.
        may_be_edge = cover is widest or not cover.knows_ends
        # Where rows are short, no tile ends before they do.
        fits = end >= pixels
        borders: list[tuple[TileShape, Condition]] = []
        if cover.left is not None:
            borders.append((cover.left, column.equals(0) & fits))
        if cover.right is not None and not cover.is_row:
            is_last = (column + pixels).equals(out) & (column >= begin)
            borders.append((cover.right, is_last & fits))

        with ExitStack() as branches:
            for number, (shape, condition) in enumerate(borders, 1):
                if number == len(borders) and not may_be_edge:
                    known(shape, row, column)
                    return
                with build.when(condition):
                    known(shape, row, column)
                branches.enter_context(build.otherwise())
            have = build.count("have", least(pixels, length - column))
            place = build.count("place", row * out + column)
            if not cover.is_row or pixels == 1:
                edge(EdgeAt(pixels, place, have))
                return
            # A few pixels left at the end are a large part of a small image.
            with build.when(have <= pixels // 2):
                edge(EdgeAt(pixels // 2, place, have))
            with build.otherwise():
                edge(EdgeAt(pixels, place, have))

    if widest.is_row:
        with build.loop("unit", last, begin=first) as unit:
            column = build.count("column", unit * widest.largest)
            tile(widest, count(0), column, count(columns.all_inside), out)
        return

    def every_row(cover: OpenCover) -> None:
        latest = build.count("latest", out - cover.largest)
        with (
            build.loop("row", last, begin=first) as row,
            build.loop("start", out, step=cover.largest) as start,
        ):
            column = build.count("column", least(start, latest))
            tile(cover, row, column, count(columns.all_inside), out)

    def joined_or_widest() -> None:
        # Rows one after another if no tile fits, or too many pixels would be computed twice.
        is_joined = chosen_pixels.equals(0)
        lines = build.count("lines", chosen(is_joined, 1, last - first))
        length = build.count("length", chosen(is_joined, (last - first) * out, out))
        end = build.count("inside_end", chosen(is_joined, 0, columns.all_inside))
        latest = build.count("latest", chosen(is_joined, length, out - widest.largest))
        with build.loop("line", lines) as line:
            row = build.count("row", first + line)
            with build.loop("start", length, step=widest.largest) as start:
                tile(widest, row, build.count("column", least(start, latest)), end, length)

    chosen_pixels = _chosen_pixels(build, widest, edge_cost)
    if widest.narrower is None:
        joined_or_widest()
        return
    with build.when(chosen_pixels.equals(widest.narrower.largest)):
        every_row(widest.narrower)
    with build.otherwise():
        joined_or_widest()


def _chosen_pixels(build: Builder, cover: OpenCover, edge_cost: int) -> Count:
    """In how wide tiles the rows of an image are cheapest; 0: one after another, in edge tiles.
    Costs are in eighths of a pixel, a tile is one pixel more.
    """
    columns = cover.columns
    out, begin = count(columns.out), -(-columns.begin // columns.stride)
    end = build.count("all_inside", columns.all_inside)
    found = build.count("tile_pixels", 0)
    least_cost = build.count("tile_cost", out * edge_cost)
    for each in filter(None, (cover, cover.narrower)):
        pixels = each.largest
        before_last = build.count("before_last", (out - 1) // pixels * pixels)
        cost = (before_last // pixels + 1) * (8 * (pixels + 1))
        if not each.knows_ends:
            cost = cost + chosen(end < out, (edge_cost - 8) * pixels, 0)
        cost = build.count("cost", cost)
        # Tiles other than the first and the last one reach no padding.
        fits = (end >= pixels) & (before_last <= end) & (out - pixels >= begin)
        is_better = fits & (cost < least_cost) & (count(begin) <= pixels)
        found = build.count("tile_pixels", chosen(is_better, pixels, found))
        least_cost = build.count("tile_cost", chosen(is_better, cost, least_cost))
    return found


def edge_reads(
    build: Builder,
    tile: EdgeAt,
    rows: Field,
    columns: Field,
    row_stride: int,
    pixel_stride: int,
) -> Memory:
    """Where each tap of each pixel of an edge tile reads, relative to the image: by tap, then
    pixel; -1 is padding. Pixels that the tile does not have read what its last one does.
    """
    taps = rows.kernel * columns.kernel
    at = build.array("at", taps * tile.pixels, dtype=DType.I64)
    row = build.count_variable("edge_row", tile.place // count(columns.out))
    column = build.count_variable("edge_column", tile.place % count(columns.out))
    with build.loop("i", tile.pixels) as i:
        top = build.count("top", row * rows.stride - rows.begin)
        left = build.count("left", column * columns.stride - columns.begin)
        with build.loop("kh", rows.kernel) as kh, build.loop("kw", columns.kernel) as kw:
            y = build.count("y", top + kh * rows.dilation)
            x = build.count("x", left + kw * columns.dilation)
            on_input = (y >= 0) & (y < rows.size) & (x >= 0) & (x < columns.size)
            place = chosen(on_input, y * row_stride + x * pixel_stride, -1)
            build.assign(at[(kh * columns.kernel + kw) * tile.pixels + i], CountValue(place))
        with build.when(i + 1 < tile.have):
            build.set(column, column + 1)
            with build.when(column.equals(columns.out)):
                build.set(column, 0)
                build.set(row, row + 1)
    return at


def _kernel_rows(build: Builder, rows: Field, row: Count) -> tuple[Count, Count] | None:
    """The kernel rows that lie on the input of an output row."""
    if rows.is_inside:
        return None
    taps, dilation = rows.kernel, rows.dilation
    above = build.count("above", rows.begin - row * rows.stride)
    below = build.count("below", above + build.size(rows.size))
    first = chosen(above <= 0, 0, (above + (dilation - 1)) // dilation)
    last = chosen(
        below <= 0,
        0,
        chosen(below > (taps - 1) * dilation, taps, (below + (dilation - 1)) // dilation),
    )
    return build.count("kh_first", first), build.count("kh_last", last)


def each_kernel_row(
    build: Builder, rows: Field, tile: TileAt, read: Callable[[Count, list[Read]], None]
) -> None:
    """The kernel rows that a tile reads; `read` is also given which of the tile's reads belong to
    it: those of one row, or of every row in reach.
    """
    found: defaultdict[int | None, list[Read]] = defaultdict(list)
    for each in tile.shape.reads:
        found[each.row].append(each)
    for row, reads in sorted(found.items(), key=lambda item: -1 if item[0] is None else item[0]):
        if row is None and (rows.kernel > 1 or not rows.is_inside):
            begin, end = tile.kernel_rows or (count(0), count(rows.kernel))
            with build.loop("kh", end, begin=begin) as kh:
                read(kh, reads)
        else:
            with build.scope():
                read(build.count("kh", row or 0), reads)


def copies(pixels: int, vectors: int) -> int:
    """Of the products of a channel, to make the loop around them free."""
    return -(-_PRODUCTS // (pixels * vectors))


def add_products(
    build: Builder,
    sums: Memory,
    vectors: int,
    weights: Pointer,
    row: Count,
    values: Iterable[tuple[int, Expr]],
) -> None:
    """A channel's values, by pixel, times a row of weights, which is so many vectors long."""
    lanes = sums.lanes
    w = [build.let(f"w{j}", weights.vector(row + j * lanes, lanes)) for j in range(vectors)]
    for pixel, value in values:
        with build.scope():
            a = build.let("a", Splat(value, lanes))
            for j, weight in enumerate(w):
                build.accumulate(sums[pixel, j], a * weight)
