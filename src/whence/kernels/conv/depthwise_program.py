"""Depthwise convolutions and pools as programs: vectors over the channels of a block, each input
vector loaded once for all pixels of a tile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from whence.kernels.builder import Builder, Memory, Pointer, splat
from whence.kernels.conv.epilogue import IMAGE, Epilogue
from whence.kernels.conv.slices import chunk_ends, image_slices
from whence.kernels.conv.tile_loops import (
    EdgeAt,
    TileAt,
    each_kernel_row,
    each_tile,
    edge_reads,
)
from whence.kernels.conv.tiles import Cover, Field, OpenCover, Read, TileShape
from whence.kernels.device.conv import slide_on_device
from whence.kernels.ir import (
    FULLY,
    Count,
    CountValue,
    Expr,
    Fn,
    Kernel,
    Literal,
    Micro,
    Stmt,
    Store,
    ValueCount,
    count,
    lanewise,
    least,
    most,
)
from whence.kernels.ir.slices import Slices
from whence.types import DType

# Of a pixel in an edge tile, in eighths of one in another tile.
_EDGE_COST = 40


@dataclass(frozen=True, slots=True)
class Slide(Micro):
    """The whole operator: work items are blocks of channels of chunks of the image."""

    images: int
    blocks: int
    block: int
    lanes: int
    rows: Field
    columns: Field
    cover: Cover | OpenCover
    chunk: int
    """Units of the cover in a work item."""
    source: str
    weights: str | None
    """In the order block, kernel row, kernel column, channel; `None` for pools."""
    fn: Fn
    """How a window is folded: `ADD` or `MAX`."""
    shares: tuple[tuple[float, ...], ...]
    """For an average, 1 / (kernel rows that count) for each output row, and likewise for columns;
    the sum is multiplied by both. Else empty.
    """
    outputs: tuple[Store, ...]
    counted: tuple[tuple[int, int], ...] | None = None
    """For an average where sizes are open, instead: from where to where positions of each axis
    count.
    """

    @property
    def chunks(self) -> int:
        return -(-self.cover.units // self.chunk)

    @property
    def tasks(self) -> int:
        return self.images * self.blocks * self.chunks

    @property
    def slices(self) -> Slices | None:
        return image_slices(self, chunk_ends(self), chunks_inside=True)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        shares = tuple(
            build.constants(name, values, DType.F32) if len(set(values)) > 1 else None
            for name, values in zip(("row_share", "column_share"), self.shares, strict=False)
        )
        with build.tasks(kernel.tasks) as task:
            _work_item(build, self, kernel, task, shares)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return slide_on_device(self)


_Shares = tuple[Memory | None, ...]
"""Tables of an average's factors by output row and by output column, where they are not all the
same.
"""


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the parts of a work item share."""

    slide: Slide
    kernel: Kernel
    shares: _Shares
    x: Pointer
    w: Pointer | None
    block: Count
    lane0: Count


def _work_item(build: Builder, slide: Slide, kernel: Kernel, task: Count, shares: _Shares) -> None:
    chunks = slide.chunks
    build.bind(IMAGE, task // (slide.blocks * chunks))
    block = build.count("block", task // chunks % slide.blocks)
    first = build.count("first", task % chunks * slide.chunk)
    last = build.count("last", least(first + slide.chunk, slide.cover.units))
    plane = slide.rows.size * slide.columns.size * slide.block
    taps = slide.rows.kernel * slide.columns.kernel * slide.block

    def item(lane0: Count) -> _WorkItem:
        x = build.pointer("x", build.buffer(slide.source), task // chunks * plane + lane0)
        w = None
        if slide.weights is not None:
            w = build.pointer("w", build.buffer(slide.weights), block * taps + lane0)
        return _WorkItem(slide, kernel, shares, x, w, block, lane0)

    whole = item(count(0)) if slide.block == slide.lanes else None

    def by_lanes(tile: Callable[[_WorkItem], None]) -> None:
        if whole is not None:
            tile(whole)
            return
        # The channels of a pixel are a cache line: each tile takes all of them, so that lines come
        # once, not once for every vector.
        with build.loop("lane0", slide.block, step=slide.lanes) as lane0:
            tile(item(lane0))

    def whole_tile(tile: TileAt) -> None:
        by_lanes(lambda item: _tile(build, item, tile))

    def edge_tile(tile: EdgeAt) -> None:
        by_lanes(lambda item: _edge_tile(build, item, tile))

    each_tile(build, slide.cover, slide.rows, first, last, whole_tile, edge_tile, _EDGE_COST)


def _tile(build: Builder, item: _WorkItem, tile: TileAt) -> None:
    slide, pixels = item.slide, tile.shape.pixels
    rows, columns = slide.rows, slide.columns
    at = build.count(
        "at",
        (
            (tile.row * rows.stride - rows.begin) * columns.size
            + tile.column * columns.stride
            - columns.begin
        )
        * slide.block,
    )
    place = build.count("place", tile.row * columns.out + tile.column)
    sums = build.array("sum", pixels, lanes=slide.lanes)
    with build.unrolled(("i", pixels)) as (i,):
        build.assign(sums[i], splat(_start(slide), slide.lanes))
    epilogue = Epilogue(slide.outputs, slide.lanes, slide.block, place, item.block, item.lane0)
    epilogue.prefetch(build, pixels, 1)

    def add_row(kh: Count, reads: list[Read]) -> None:
        """Input vectors from left to right, each with all taps that meet it."""
        met = _taps_of_vectors(slide, tile.shape, reads)
        xk = build.pointer("xk", item.x, at + kh * (rows.dilation * columns.size * slide.block))
        weights: dict[int, Expr] = {}
        if item.w is not None:
            wk = build.pointer("wk", item.w, kh * (columns.kernel * slide.block))
            for tap in sorted({tap for pairs in met.values() for _, tap in pairs}):
                weights[tap] = build.let(f"w{tap}", wk.vector(tap * slide.block, slide.lanes))
        for offset, pairs in sorted(met.items()):
            with build.scope():
                a = build.let("a", xk.vector(offset, slide.lanes))
                for pixel, tap in pairs:
                    value = a * weights[tap] if weights else a
                    build.assign(sums[pixel], lanewise(slide.fn, sums[pixel], value))

    each_kernel_row(build, rows, tile, add_row)
    _average(build, item, tile, sums)
    epilogue.store(build, item.kernel, pixels, 1, lambda i, _: sums[i])


def _start(slide: Slide) -> float:
    """What a window is folded from, and what padding counts as."""
    return 0.0 if slide.fn is Fn.ADD else -math.inf


def _edge_tile(build: Builder, item: _WorkItem, tile: EdgeAt) -> None:
    """A tile whose pixels read padding, or are of several rows, or not all there."""
    slide, pixels, lanes = item.slide, tile.pixels, item.slide.lanes
    rows, columns = slide.rows, slide.columns
    at = edge_reads(build, tile, rows, columns, columns.size * slide.block, slide.block)
    padding = build.constants("padding", (_start(slide),) * lanes, DType.F32)
    sums = build.array("sum", pixels, lanes=lanes)
    with build.unrolled(("i", pixels)) as (i,):
        build.assign(sums[i], splat(_start(slide), lanes))
    with build.loop("tap", rows.kernel * columns.kernel) as tap:
        weight = None
        if item.w is not None:
            weight = build.let("w", item.w.vector(tap * slide.block, lanes))
        for pixel in range(pixels):
            place = build.count(f"at{pixel}", ValueCount(at[tap * pixels + pixel]))
            x = build.choose_pointer(f"x{pixel}", place >= 0, item.x, place, padding.pointer)
            a = x.vector(0, lanes)
            value = a if weight is None else a * weight
            build.assign(sums[pixel], lanewise(slide.fn, sums[pixel], value))
    epilogue = Epilogue(slide.outputs, lanes, slide.block, tile.place, item.block, item.lane0)
    if slide.counted is not None:
        with build.loop("i", pixels) as i:
            number = tile.place + least(i, tile.have - 1)
            row = build.count("row", number // count(columns.out))
            column = build.count("column", number % count(columns.out))
            build.assign(sums[i], sums[i] * _share(build, slide, row, column))
    epilogue.store(build, item.kernel, pixels, 1, lambda i, _: sums[i], tile.have)


def _share(build: Builder, slide: Slide, row: Count, column: Count) -> Expr:
    """1 / (taps that count) of an average's window, where sizes are open."""
    assert slide.counted is not None
    found = []
    axes = ((slide.rows, row), (slide.columns, column))
    for (field, at), (low, high), name in zip(axes, slide.counted, ("down", "across"), strict=True):
        start = build.count(f"{name}_start", at * field.stride - field.begin)
        first, end = _taps_below(field, low - start), _taps_below(field, high - start)
        taps = build.count(name, most(end - first, 1))
        found.append(Literal(1.0, DType.F32) / CountValue(taps, DType.F32))
    return found[0] * found[1]


def _taps_below(field: Field, limit: Count) -> Count:
    """How many taps of a window lie less than so far behind its start."""
    return least(most(limit + (field.dilation - 1), 0) // field.dilation, field.kernel)


def _taps_of_vectors(
    slide: Slide, shape: TileShape, reads: list[Read]
) -> dict[int, list[tuple[int, int]]]:
    """By place in the input, counted from where the tile begins: the pixels whose windows hold it,
    and with which tap.
    """
    rows, columns = slide.rows, slide.columns
    met: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for read in reads:
        for tap in range(read.first, read.first + read.count):
            for pixel in read.pixels:
                down, right = divmod(pixel, shape.columns)
                column = right * columns.stride + tap * columns.dilation
                offset = (down * rows.stride * columns.size + column) * slide.block
                met[offset].append((pixel, tap))
    return met


def _average(build: Builder, item: _WorkItem, tile: TileAt, sums: Memory) -> None:
    slide, shape = item.slide, tile.shape
    if slide.counted is not None:
        with build.loop("i", shape.pixels) as i:
            share = _share(build, slide, tile.row, tile.column + i)
            build.assign(sums[i], sums[i] * share)
        return
    if not slide.shares:
        return
    with build.loop("i", shape.pixels, unroll=FULLY) as i:
        down, right = (
            (tile.row + i // shape.columns, tile.column + i % shape.columns)
            if shape.rows > 1
            else (tile.row, tile.column + i)
        )
        by_row, by_column = (
            Literal(values[0], DType.F32) if table is None else table[place]
            for table, values, place in zip(item.shares, slide.shares, (down, right), strict=True)
        )
        build.assign(sums[i], sums[i] * (by_row * by_column))
