"""The matrix product as a program: accumulators in vector registers, one broadcast of A times a row
of B's panel a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whence.extent import estimate, is_symbolic, surely_equal
from whence.kernels.builder import Builder, Memory, Pointer, zeros
from whence.kernels.device.product import gemm_on_device
from whence.kernels.index import Index
from whence.kernels.ir import (
    FULLY,
    Count,
    Countable,
    Kernel,
    Literal,
    Micro,
    Name,
    Splat,
    Stmt,
    Store,
    count,
    least,
)
from whence.kernels.tile import Tile
from whence.machine import CACHE_LINE
from whence.types import DType

ROW, COLUMN, BATCH = "m", "n", "batch"
ACCUMULATOR = Name("acc", DType.F32)
ZERO = Literal(0.0, DType.F32)
STREAM_AHEAD = 8192
"""Prefetch distance, in floats, of weights that are read once: further ahead, and they would be
gone from the cache again.
"""

_LINE = CACHE_LINE // 4
"""Floats in a cache line."""
_UNROLLED = 2
"""Steps of a sum that are written out, at least."""
_LONGEST = 8
"""And at most."""
_STREAMS = 4
"""Places of a panel that a single row is multiplied with in turns."""
_PAGE = 1024
"""Floats in a page of memory, where hardware prefetchers begin again."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in a buffer: element (row, column) of batch item b lies at `base(b) + row·row_stride
    + column·column_stride`.
    """

    buffer: str
    base: Index
    row_stride: int
    column_stride: int


@dataclass(frozen=True, slots=True)
class Gemm(Micro):
    """The whole product. Work item t is a panel of columns of a block of rows."""

    batch: int
    rows: int
    columns: int
    depth: int
    a: Matrix
    b: Matrix
    packed: bool
    """`b` is already in panels `[columns / width][depth][width]`, the last one padded with
    zeros.
    """
    tile: Tile
    block_rows: int
    """Rows a work item covers; its panel of B stays in cache over them."""
    block_depth: int
    """Divides the depth: so much of a panel is gone through by all rows before the next."""
    output: Store
    """What is stored, from the accumulator and the variables `m`, `n`, `batch`."""

    @property
    def panels(self) -> int:
        return -(-self.columns // self.tile.width)

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block_rows)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        with build.tasks(kernel.tasks) as task:
            _work_item(build, self, task)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return gemm_on_device(self, ROW, COLUMN, BATCH)

    @property
    def divided(self) -> bool:
        """Are sums spilled to memory between the blocks of a panel?"""
        return not surely_equal(self.block_depth, self.depth)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the parts of a work item share."""

    gemm: Gemm
    first: Count
    """The first row of the block."""
    n0: Count
    """The first column of the panel."""
    columns: Count
    """Columns of the panel that there are."""
    a: Pointer
    b: Pointer
    """The panel."""
    held: Memory | None
    """Sums of the blocks of the depth so far."""


def _work_item(build: Builder, gemm: Gemm, task: Count) -> None:
    width, rows = gemm.tile.width, gemm.tile.rows
    build.bind(BATCH, task // (gemm.panels * gemm.blocks))
    panel = build.count("panel", task // gemm.blocks % gemm.panels)
    block = build.count("block", task % gemm.blocks)
    n0 = build.count("n0", panel * width)
    columns = build.count("columns", least(gemm.columns - n0, width))
    a = build.pointer("a", build.buffer(gemm.a.buffer), gemm.a.base)
    if gemm.packed:
        b = build.pointer("b", build.buffer(gemm.b.buffer), panel * (gemm.depth * width))
    else:
        b = _pack(build, gemm, n0, columns)
    first = build.count("first", block * gemm.block_rows)
    last = build.count("last", least(first + gemm.block_rows, gemm.rows))
    held = build.array("held", gemm.block_rows * width) if gemm.divided else None
    item = _WorkItem(gemm, first, n0, columns, a, b, held)

    def tiles(k0: Count) -> None:
        if is_symbolic(gemm.rows):
            _even_tiles(build, item, first, last, k0)
            return
        with build.loop("m0", last - (rows - 1), begin=first, step=rows) as m0:
            _tile(build, item, rows, m0, k0)
        for rest in sorted(_remainders(gemm)):
            with build.when(((last - first) % rows).equals(rest)):
                _tile(build, item, rest, build.count("m0", last - rest), k0)

    if gemm.divided:
        with build.loop("k0", gemm.depth, step=gemm.block_depth) as k0:
            tiles(k0)
    else:
        tiles(count(0))


def _even_tiles(build: Builder, item: _WorkItem, first: Count, last: Count, k0: Count) -> None:
    """As few tiles as an open number of rows needs, all about equally high: a low one at the end
    would wait for each of its few sums.
    """
    most = item.gemm.tile.rows
    rows = build.count("rows", last - first)
    tiles = build.count("tiles", (rows + (most - 1)) // most)
    with build.loop("tile", tiles) as tile:
        m0 = build.count("m0", first + tile * rows // tiles)
        height = build.count("height", first + (tile + 1) * rows // tiles - m0)
        number = first // most + tile
        for each in range(most, 0, -1):
            with build.when(height.equals(each)):
                _tile(build, item, each, m0, k0, number)


def _remainders(gemm: Gemm) -> set[int]:
    """The heights of the tile that ends a block of rows."""
    blocks = range(0, gemm.rows, gemm.block_rows)
    sizes = {min(gemm.block_rows, gemm.rows - first) for first in blocks}
    return {size % gemm.tile.rows for size in sizes} - {0}


def _pack(build: Builder, gemm: Gemm, n0: Count, columns: Count) -> Pointer:
    """Copy this work item's panel of B into scratch, zeros behind the last column."""
    width, lanes = gemm.tile.width, gemm.tile.lanes
    by_row, by_column = gemm.b.row_stride, gemm.b.column_stride
    packed = build.scratch("pack")
    base = count(gemm.b.base)
    source = build.pointer("from", build.buffer(gemm.b.buffer), base + n0 * by_column)
    # Where columns lie along memory, a square of registers at a time.
    is_transposed = surely_equal(by_row, 1) and not surely_equal(by_column, 1)
    squares = gemm.depth // lanes * lanes if is_transposed else 0
    if not surely_equal(squares, 0):
        with build.loop("j", width, step=lanes) as j, build.loop("k", squares, step=lanes) as k:
            square = build.array("square", lanes, lanes=lanes)
            with build.unrolled(("i", lanes)) as (i,):
                with build.when(j + i < columns):
                    build.assign(square[i], source.vector((j + i) * by_column + k, lanes))
                with build.otherwise():
                    build.assign(square[i], zeros(lanes))
            build.transpose(square)
            with build.unrolled(("i", lanes)) as (i,):
                build.assign(packed.vector((k + i) * width + j, lanes), square[i])
    if not surely_equal(squares, gemm.depth):
        with build.loop("k", gemm.depth, begin=squares) as k:
            with build.loop("j", columns) as j:
                build.assign(packed[k * width + j], source[k * by_row + j * by_column])
            with build.loop("j", width, begin=columns) as j:
                build.assign(packed[k * width + j], ZERO)
    return build.pointer("b", packed)


@dataclass(frozen=True, slots=True)
class _Pace:
    """Cache lines of the next panel to prefetch, every so many steps of the sum."""

    steps: int
    lines: int


def _pace(gemm: Gemm) -> _Pace:
    """Weights come from far away, and memory answers only so many requests at a time. While one
    block of a panel is at work, which takes all steps of all its tiles of rows, the next is
    prefetched at an even pace; with the last, what lies behind it: mostly the next product's first.
    """
    tiles, lines = -(-estimate(gemm.rows) // gemm.tile.rows), -(-gemm.tile.width // _LINE)
    common = math.gcd(tiles, lines)
    if tiles // common > _LONGEST:
        return _Pace(min(tiles // lines, _LONGEST), 1)
    repeats = max(1, _UNROLLED * common // tiles)
    return _Pace(tiles // common * repeats, lines // common * repeats)


def _is_stream(gemm: Gemm) -> bool:
    """Does a product read each weight once, a cache line in a step of the sum?"""
    once = gemm.packed and surely_equal(gemm.rows, 1) and not gemm.divided
    return (
        once
        and not is_symbolic(gemm.depth)
        and gemm.tile.width <= _LINE
        and gemm.depth * gemm.tile.width >= _STREAMS * _PAGE
    )


def _row(build: Builder, item: _WorkItem, m0: Count) -> None:
    """The sums of a single row, in several parts of the depth side by side.

    Hardware prefetchers follow each part, so that more of memory is on its way at a time than they
    would fetch for one stream; and the sums of one part need not wait for each other.
    """
    gemm, tile = item.gemm, item.gemm.tile
    at = build.pointer("at", item.a, m0 * gemm.a.row_stride)
    sums = build.sums(_STREAMS, tile.vectors, lanes=tile.lanes)
    part = gemm.depth // _STREAMS

    def step(stream: int, k: Count) -> None:
        with build.scope():
            x = build.let("x", Splat(at[k * gemm.a.column_stride], tile.lanes))
            for j in range(tile.vectors):
                b = item.b.vector(k * tile.width + j * tile.lanes, tile.lanes)
                build.accumulate(sums[stream, j], x * b)

    with build.loop("k", part, unroll=_UNROLLED) as k:
        for stream in range(_STREAMS):
            step(stream, k + stream * part)
    for rest in range(_STREAMS * part, gemm.depth):
        step(0, count(rest))
    for stream in range(1, _STREAMS):
        for vector in range(tile.vectors):
            build.accumulate(sums[0, vector], sums[stream, vector])
    _store(build, item, 1, m0, sums)


def _tile(
    build: Builder, item: _WorkItem, rows: int, m0: Count, k0: Count, number: Count | None = None
) -> None:
    """The sums of a tile over a block of the depth that begins at `k0`, and what becomes of them
    after the last. Tiles are as high as can be unless it has a number.
    """
    if _is_stream(item.gemm):
        _row(build, item, m0)
        return
    gemm, held = item.gemm, item.held
    tile, depth = gemm.tile, gemm.block_depth
    at = build.pointer("at", item.a, m0 * gemm.a.row_stride + k0 * gemm.a.column_stride)
    row = build.pointer("row", item.b, k0 * tile.width)
    each = (("i", rows), ("j", tile.vectors))

    def held_at(i: Count, j: Count) -> Count:
        return (m0 - item.first + i) * tile.width + j * tile.lanes

    if held is None:
        sums = build.sums(rows, tile.vectors, lanes=tile.lanes)
    else:
        sums = build.array("sum", rows, tile.vectors, lanes=tile.lanes)
        with build.when(k0.equals(0)), build.unrolled(*each) as (i, j):
            build.assign(sums[i, j], zeros(tile.lanes))
        with build.otherwise(), build.unrolled(*each) as (i, j):
            build.assign(sums[i, j], held.vector(held_at(i, j), tile.lanes))
    pace = _pace(gemm) if gemm.packed else _Pace(_UNROLLED, 0)
    whole = depth // pace.steps * pace.steps
    before = m0 // tile.rows if number is None else number
    ahead = _ahead(build, gemm, row, before, pace) if pace.lines else None
    if not surely_equal(whole, 0):
        with build.loop("k", whole, step=pace.steps) as k:
            if ahead is not None:
                for line in range(pace.lines):
                    build.prefetch(ahead, line * _LINE)
                build.advance(ahead, pace.lines * _LINE)
            for step in range(pace.steps):
                _step(build, gemm, sums, rows, at, row, k + step)
    if is_symbolic(depth):
        with build.loop("k", depth, begin=whole, unroll=1) as k:
            _step(build, gemm, sums, rows, at, row, k)
    else:
        for step in range(whole, depth):
            _step(build, gemm, sums, rows, at, row, count(step))
    if held is None:
        _store(build, item, rows, m0, sums)
    else:
        with build.when(k0 < gemm.depth - depth), build.unrolled(*each) as (i, j):
            build.assign(held.vector(held_at(i, j), tile.lanes), sums[i, j])
        with build.otherwise():
            _store(build, item, rows, m0, sums)


def _ahead(build: Builder, gemm: Gemm, row: Pointer, before: Count, pace: _Pace) -> Pointer:
    """Where prefetching begins while the tile of rows behind so many is computed."""
    tile, panel = gemm.tile, gemm.block_depth * gemm.tile.width
    # A panel that is read once is a stream: what is prefetched too early would be gone from the
    # cache again.
    distance = panel if estimate(gemm.rows) > tile.rows else min(panel, STREAM_AHEAD)
    every = gemm.block_depth // pace.steps * pace.lines * _LINE
    if is_symbolic(gemm.rows):
        # A call may have many more tiles than the pace is for: all of the next is near by then.
        before = least(before, -(-estimate(gemm.rows) // tile.rows))
    return build.pointer("ahead", row, distance + before * every, alone=False)


def _step(
    build: Builder, gemm: Gemm, sums: Memory, rows: int, at: Pointer, row: Pointer, k: Count
) -> None:
    """The products of column `k` of A with row `k` of the panel."""
    tile = gemm.tile
    with build.scope():
        b = [
            build.let(f"b{j}", row.vector(k * tile.width + j * tile.lanes, tile.lanes))
            for j in range(tile.vectors)
        ]
        with build.loop("i", rows, unroll=FULLY) as i:
            a = at[i * gemm.a.row_stride + k * gemm.a.column_stride]
            x = build.let("x", Splat(a, tile.lanes))
            for j in range(tile.vectors):
                build.accumulate(sums[i, j], x * b[j])


def _store(build: Builder, item: _WorkItem, rows: int, m0: Count, sums: Memory) -> None:
    """Apply the epilogue to the sums of a tile."""
    tile = item.gemm.tile
    made = build.array("out_tile", rows * tile.width)
    with build.unrolled(("i", rows), ("j", tile.vectors)) as (i, j):
        build.assign(made.vector(i * tile.width + j * tile.lanes, tile.lanes), sums[i, j])
    store_rows(build, item.gemm, made, rows, m0, item.n0, item.columns)


def store_rows(
    build: Builder,
    gemm: Gemm,
    made: Memory | Pointer,
    rows: Countable,
    m0: Count,
    n0: Count,
    columns: Count,
) -> None:
    """Apply the epilogue to so many rows of sums, as wide as the tile, which are those of the
    product from `m0` on, and its `columns` from `n0` on.
    """
    width = gemm.tile.width

    def store(i: Count, limit: Countable) -> None:
        with build.loop("j", limit, vectorise=True) as j:
            build.bind(COLUMN, n0 + j)
            build.bind_value(ACCUMULATOR.name, made[i * width + j])
            build.add(gemm.output)

    with build.loop("i", rows) as i:
        build.bind(ROW, m0 + i)
        with build.when(columns.equals(width)):
            store(i, width)
        with build.otherwise():
            store(i, columns)
