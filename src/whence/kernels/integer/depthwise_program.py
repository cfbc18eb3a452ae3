"""Depthwise convolution of bytes as a program: each input column's bytes, four rows to a lane,
times the weights of every tap that meets it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from whence.kernels.builder import Builder, Pointer, splat
from whence.kernels.conv.tiles import Cover, Field, OpenCover, TileShape
from whence.kernels.device.integer import integer_slide_on_device
from whence.kernels.integer.byte_vectors import (
    ONES,
    dot,
    flipped,
    quad_order,
    quads,
    unsigned_zero,
    words,
)
from whence.kernels.integer.epilogue import IntegerEpilogue
from whence.kernels.integer.packing import PackBytes
from whence.kernels.ir import Count, Expr, Kernel, Micro, Splat, Stmt, Store, chosen, count, least
from whence.types import DType

_BORDER = -1
"""In place of an input column: padding."""


@dataclass(frozen=True, slots=True)
class IntegerSlide(Micro):
    """The whole operator. Work item t is some rows of an image, and some vectors of channels."""

    images: int
    channels: int
    lanes: int
    rows: Field
    columns: Field
    cover: Cover | OpenCover
    """Tiles along a row of the output."""
    chunks: int
    """Parts of the output's rows."""
    parts: int
    """Parts of the vectors of channels."""
    source: str
    source_type: DType
    x_zero: Expr
    weights: str
    packing: PackBytes
    outputs: tuple[Store, ...]

    @property
    def vectors(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def quads(self) -> int:
        """Groups of four kernel rows."""
        return -(-self.rows.kernel // 4)

    @property
    def scratch_bytes(self) -> int:
        """Of a row of padding."""
        return 0 if self.rows.is_inside else self.columns.size * self.channels

    @property
    def tasks(self) -> int:
        return self.images * self.chunks * self.parts

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        order = quad_order(build, self.lanes)
        raw = build.let("raw", self.x_zero)
        zero = unsigned_zero(build, raw, self.source_type)
        border = build.let("border", Splat(zero * ONES, self.lanes))
        padding = build.scratch("padding", self.source_type) if self.scratch_bytes else None
        if padding is not None:
            build.fill(padding, 0, self.scratch_bytes, raw)
        with build.tasks(kernel.tasks) as task:
            image = build.count("image", task // (self.chunks * self.parts))
            chunk = build.count("chunk", task // self.parts % self.chunks)
            part = build.count("part", task % self.parts)
            size = self.rows.size * self.columns.size * self.channels
            x = build.pointer("x", build.buffer(self.source, self.source_type), image * size)
            out = self.rows.out
            last = (chunk + 1) * out // self.chunks
            with build.loop("row", last, begin=chunk * out // self.chunks) as row:
                taps = _input_rows(build, self, x, row, padding)
                end = (part + 1) * self.vectors // self.parts
                with build.loop("vector", end, begin=part * self.vectors // self.parts) as vector:
                    m0 = (image * out + row) * self.columns.out
                    item = _WorkItem(self, kernel, taps, order, zero, border, m0)
                    _vector(build, item, vector)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return integer_slide_on_device(self)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the vectors of channels of an output row share."""

    it: IntegerSlide
    kernel: Kernel
    rows: list[Pointer]
    """The input row of each kernel row."""
    order: Expr
    zero: Expr
    border: Expr
    m0: Count
    """The number of the row's first pixel."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of a vector of channels."""

    channel: Count
    start: Expr
    factor: Expr | None
    taps: dict[tuple[int, int], Expr]
    """By kernel column, and four kernel rows."""


def _input_rows(
    build: Builder, it: IntegerSlide, x: Pointer, row: Count, padding: Pointer | None
) -> list[Pointer]:
    rows, row_bytes, found = it.rows, it.columns.size * it.channels, []
    for tap in range(rows.kernel):
        y = build.count(f"y{tap}", row * rows.stride + (tap * rows.dilation - rows.begin))
        if padding is None:
            found.append(build.pointer(f"row{tap}", x, y * row_bytes))
        else:
            inside = (y >= 0) & (y < rows.size)
            found.append(build.choose_pointer(f"row{tap}", inside, x, y * row_bytes, padding))
    return found


def _vector(build: Builder, item: _WorkItem, vector: Count) -> None:
    """All tiles of an output row, for one vector of channels."""
    it, lanes = item.it, item.it.lanes
    first = vector * lanes
    if it.channels % lanes:
        # The last vector begins early rather than end late.
        first = least(first, it.channels - lanes)
    channel = build.count("channel", first)
    w = build.pointer("w", build.buffer(it.weights, DType.I8), vector * it.packing.vector_bytes)

    def read(number: int) -> Expr:
        return words(w.vector(number * lanes * 4, lanes * 4))

    start = read(0)
    if it.packing.zeros.x is None:
        start = start * -item.zero
    start = build.let("start", start)
    factor = build.let("factor", read(1)) if it.packing.zeros.has_sums else None
    head = 1 + it.packing.zeros.has_sums
    taps: dict[tuple[int, int], Expr] = {
        (tap, quad): build.let(f"w{tap}_{quad}", read(head + tap * it.quads + quad))
        for tap in range(it.columns.kernel)
        for quad in range(it.quads)
    }
    weights = _Weights(channel, start, factor, taps)
    if isinstance(it.cover, OpenCover):
        _open_row(build, item, weights, it.cover)
        return
    for run in it.cover.runs:
        end = run.start + run.count * run.step
        with build.loop("column", end, begin=run.start, step=run.step) as column:
            _tile(build, item, weights, run.shape, column)


def _open_row(build: Builder, item: _WorkItem, w: _Weights, cover: OpenCover) -> None:
    """The tiles of an output row whose width is open: pixel by pixel where there is padding, and
    everywhere if no tile fits between; the last tile begins early rather than end late.
    """
    columns, pixels = cover.columns, cover.largest
    begin, inside = -(-columns.begin // columns.stride), columns.all_inside
    end = build.count("end", chosen(count(inside - begin) >= pixels, inside, begin))
    with build.loop("column", least(begin, columns.out)) as column:
        _edge(build, item, w, column)
    with build.loop("column", end, begin=begin, step=pixels) as column:
        first = build.count("first", least(column, inside - pixels))
        _tile(build, item, w, cover.inside, first)
    with build.loop("column", columns.out, begin=end) as column:
        _edge(build, item, w, column)


def _edge(build: Builder, item: _WorkItem, w: _Weights, column: Count) -> None:
    """A pixel whose taps are asked where they lie."""
    it, lanes, columns = item.it, item.it.lanes, item.it.columns
    total = build.variable("sum", w.start)
    every = build.variable("all", splat(0, lanes, DType.I32))
    for tap in range(columns.kernel):
        left = build.count(
            f"left{tap}", column * columns.stride + (tap * columns.dilation - columns.begin)
        )
        for quad in range(it.quads):
            taps = min(4, it.rows.kernel - 4 * quad)
            with build.scope():
                four = build.variable("four", item.border)
                with build.when((left >= 0) & (left < columns.size)):
                    at = build.count("at", left * it.channels + w.channel)
                    build.assign(four, _four(item, at, 0, quad, taps))
                build.assign(total, dot(total, four, w.taps[tap, quad]))
                if w.factor is not None:
                    ones = splat(sum(1 << 8 * byte for byte in range(taps)), lanes, DType.I32)
                    build.assign(every, dot(every, four, ones))
    value = total if w.factor is None else total + every * w.factor
    epilogue = IntegerEpilogue(it.outputs, it.channels, lanes, 1, item.m0 + column)
    epilogue.store(build, item.kernel, [w.channel], lambda _, __: value)


def _tile(build: Builder, item: _WorkItem, w: _Weights, shape: TileShape, column: Count) -> None:
    it, lanes, pixels = item.it, item.it.lanes, shape.pixels
    sums = build.array("sum", pixels, dtype=DType.I32, lanes=lanes)
    totals = None
    if w.factor is not None:
        totals = build.array("all", pixels, dtype=DType.I32, lanes=lanes)
    with build.unrolled(("i", pixels)) as (i,):
        build.assign(sums[i], w.start)
        if totals is not None:
            build.assign(totals[i], splat(0, lanes, DType.I32))
    columns = it.columns
    at = build.count("at", (column * columns.stride - columns.begin) * it.channels + w.channel)
    for place, pairs in sorted(_taps_of_columns(it, shape).items()):
        for quad in range(it.quads):
            taps = min(4, it.rows.kernel - 4 * quad)
            with build.scope():
                four = build.let("four", _four(item, at, place, quad, taps))
                ones = splat(sum(1 << 8 * byte for byte in range(taps)), lanes, DType.I32)
                for pixel, tap in pairs:
                    build.assign(sums[pixel], dot(sums[pixel], four, w.taps[tap, quad]))
                    if totals is not None:
                        build.assign(totals[pixel], dot(totals[pixel], four, ones))

    def result(i: Count, _: int) -> Expr:
        if totals is None or w.factor is None:
            return sums[i]
        return sums[i] + totals[i] * w.factor

    m0 = build.count("m0", item.m0 + column)
    epilogue = IntegerEpilogue(it.outputs, it.channels, lanes, pixels, m0)
    epilogue.store(build, item.kernel, [w.channel], result)


def _taps_of_columns(it: IntegerSlide, shape: TileShape) -> dict[int, list[tuple[int, int]]]:
    """By input column, counted from the tile's first: the pixels whose windows hold it, and with
    which tap.
    """
    met: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    reached = {
        (pixel, tap)
        for read in shape.reads
        for tap in range(read.first, read.first + read.count)
        for pixel in read.pixels
    }
    for pixel in range(shape.pixels):
        for tap in range(it.columns.kernel):
            place = _BORDER
            if (pixel, tap) in reached:
                place = pixel * it.columns.stride + tap * it.columns.dilation
            met[place].append((pixel, tap))
    return met


def _four(item: _WorkItem, at: Count, place: int, quad: int, taps: int) -> Expr:
    """The bytes that four kernel rows read in an input column, side by side."""
    it = item.it
    if place == _BORDER:
        return item.border
    rows: list[Expr] = [
        item.rows[4 * quad + tap].vector(at + place * it.channels, it.lanes) for tap in range(taps)
    ]
    rows += [splat(0, it.lanes, DType.U8)] * (4 - taps)
    joined = quads(rows, item.order)
    return flipped(joined) if it.source_type is DType.I8 else joined
