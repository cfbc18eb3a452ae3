"""Attention as a program: a tile of query rows at a time, its scores in scratch between the two
products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from whence.extent import Relation, decide, is_symbolic, surely_equal
from whence.kernels.attention_stream import StoredRows, next_keys, prefetch_row
from whence.kernels.builder import Builder, Memory, Pointer, splat, zeros
from whence.kernels.device.attention import attention_on_device
from whence.kernels.expressions import apply, choose
from whence.kernels.index import Var
from whence.kernels.ir import (
    FULLY,
    Count,
    Countable,
    Expr,
    Fn,
    Kernel,
    Literal,
    Micro,
    Name,
    Op,
    Primitive,
    Splat,
    Stmt,
    Store,
    ValueCount,
    chosen,
    count,
    lanewise,
    least,
    most,
)
from whence.kernels.product.gemm_program import ZERO, Matrix
from whence.kernels.tile import Tile
from whence.types import DType

BATCH, HEAD, ROW, KEY, COLUMN = "batch", "head", "m", "n", "c"
SCORE = Name("acc", DType.F32)
ACCUMULATOR = Name("acc", DType.F32)
_FEW_ROWS = 4
"""StoredRows for which keys are read as they lie."""


@dataclass(frozen=True, slots=True)
class Attention(Micro):
    """All of it. Work item t is a block of query rows of one head."""

    batch: int
    heads: int
    rows: int
    keys: int
    size: int
    """Of a query and a key."""
    width: int
    """Of a value."""
    q: Matrix
    k: Matrix
    v: Matrix
    score: Expr
    """What softmax sees, from the product and the variables `batch`, `head`, `m`, `n`."""
    scale: Literal
    """Positive; softmax is over `scale · score`. A number that is not 1 saves a pass over the
    scores.
    """
    reach: int | None
    """Row m sees no key after `m + reach`; `None` when it may see all. Where there is a `length`,
    rows are the last of so many: `m + reach + length - queries`.
    """
    tile: Tile
    block_tiles: int
    """Tiles of rows in a work item."""
    output: Store
    """What is stored, from the weighted sum and the variables `batch`, `head`, `m`, `c`."""
    length: Expr | None = None
    """The keys that there are, from the variable `batch`; no more than `keys` of them count."""
    queries: int = 0
    """Of each head."""

    @property
    def is_bounded(self) -> bool:
        """Are there keys that a row certainly does not see?"""
        return self.reach is not None or self.length is not None

    @property
    def is_direct(self) -> bool:
        """Are keys read as they lie? Packing pays where many rows read them."""
        return (
            self.length is not None
            and surely_equal(self.rows, self.tile.rows)
            and self.tile.rows <= _FEW_ROWS
            and surely_equal(self.k.column_stride, 1)
            and surely_equal(self.q.column_stride, 1)
            and surely_equal(self.size % self.tile.lanes, 0)
        )

    @property
    def tiles(self) -> int:
        return -(-self.rows // self.tile.rows)

    @property
    def blocks(self) -> int:
        return -(-self.tiles // self.block_tiles)

    @property
    def panels(self) -> int:
        return -(-self.keys // self.tile.width)

    @property
    def row_length(self) -> int:
        """Of a row of scores in scratch. Not a power of two, which would put all rows of a tile
        into the same few cache lines.
        """
        return self.panels * self.tile.width + self.tile.lanes

    @property
    def pack_values(self) -> bool:
        """Are values copied because they do not fill whole vectors where they lie?"""
        return not surely_equal(self.v.column_stride, 1) or self.width % self.tile.lanes != 0

    @property
    def value_stride(self) -> int:
        """From one value to the next, where they are read."""
        return self.padded_width if self.pack_values else self.v.row_stride

    @property
    def padded_width(self) -> int:
        return -(-self.width // self.tile.lanes) * self.tile.lanes

    @property
    def scratch(self) -> tuple[int, int, int]:
        """Floats of packed keys, packed values and scores."""
        packed_values = self.keys * self.padded_width if self.pack_values else 0
        return (
            0 if self.is_direct else self.panels * self.size * self.tile.width,
            packed_values,
            self.tile.rows * self.row_length,
        )

    def known(self, build: Builder) -> Count | None:
        """The keys that there are, if they are counted."""
        if self.length is None:
            return None
        given = build.count("given", ValueCount(self.length))
        return build.count("known", least(most(given, 0), self.keys))

    def seen(self, end: Count, known: Count | None) -> Count:
        """How many keys, from the first one, the rows before `end` see at most."""
        if self.reach is None:
            return count(self.keys) if known is None else known
        behind = end + self.reach
        if known is not None:
            behind = behind + (known - self.queries)
        return least(most(behind, 0), self.keys if known is None else known)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        keys, values, _ = self.scratch
        packed_k = build.scratch("packed_k")
        packed_v = build.scratch("packed_v", offset=keys) if self.pack_values else None
        scores = build.scratch("s", offset=keys + values)
        have = build.count_variable("have", -1)
        with build.tasks(kernel.tasks) as task:
            build.bind(BATCH, task // (self.heads * self.blocks))
            build.bind(HEAD, task // self.blocks % self.heads)
            block = build.count("block", task % self.blocks)
            q, k, v = (
                build.pointer(name, build.buffer(view.buffer), view.base)
                for name, view in (("q", self.q), ("k", self.k), ("v", self.v))
            )
            known = self.known(build)
            # Neighbouring work items share a head, and what was packed for it.
            own = build.count("own", self.k.base)
            with build.when(own.differs(have)):
                build.set(have, own)
                if not self.is_direct:
                    _pack_keys(build, self, k, packed_k, known)
                if packed_v is not None:
                    _pack_values(build, self, v, packed_v, known)
            item = _WorkItem(
                self,
                q,
                k if self.is_direct else packed_k,
                v if packed_v is None else packed_v,
                scores,
                known,
            )
            fills = decide(self.tile.rows, Relation.LE, self.rows)
            if fills or not is_symbolic(self.rows):
                _tiles(build, item, block)
            elif fills is None:
                with build.when(count(self.rows) >= self.tile.rows):
                    _tiles(build, item, block)
                with build.otherwise():
                    _row_by_row(build, item)
            else:
                _row_by_row(build, item)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return attention_on_device(self, BATCH, HEAD, ROW, KEY, COLUMN)


def _tiles(build: Builder, item: _WorkItem, block: Count) -> None:
    """The tiles of a block of rows."""
    it = item.it
    last = least((block + 1) * it.block_tiles, it.tiles)
    with build.loop("tile", last, begin=block * it.block_tiles) as tile:
        _tile(build, item, tile)


def _row_by_row(build: Builder, item: _WorkItem) -> None:
    """Where there are fewer rows than a tile has."""
    it = item.it
    single = replace(item, it=replace(it, tile=replace(it.tile, rows=1)))
    with build.loop("row", it.rows) as row:
        _tile(build, single, row)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the parts of a work item share."""

    it: Attention
    q: Pointer
    keys: Pointer
    """In panels."""
    values: Pointer
    scores: Pointer
    known: Count | None
    """Keys that there are, where that is less than there is room for."""


def _pack_keys(
    build: Builder, it: Attention, k: Pointer, packed: Pointer, known: Count | None
) -> None:
    """K in panels `[keys / width][size][width]`, zeros behind the last key."""
    lanes, width, row = it.tile.lanes, it.tile.width, it.k.row_stride
    padded = it.panels * width
    squares = it.size // lanes * lanes if surely_equal(it.k.column_stride, 1) else 0
    end = count(padded) if known is None else (known + (width - 1)) // width * width
    with build.loop("j", end, step=lanes) as j:
        to = build.pointer("to", packed, j // width * (it.size * width) + j % width, written=True)
        if squares:
            with build.loop("d", squares, step=lanes) as d:
                square = build.array("square", lanes, lanes=lanes)
                with build.unrolled(("i", lanes)) as (i,):
                    read = k.vector((j + i) * row + d, lanes)
                    if surely_equal(padded, it.keys):
                        build.assign(square[i], read)
                    else:
                        with build.when(j + i < it.keys):
                            build.assign(square[i], read)
                        with build.otherwise():
                            build.assign(square[i], zeros(lanes))
                build.transpose(square)
                with build.unrolled(("i", lanes)) as (i,):
                    build.assign(to.vector((d + i) * width, lanes), square[i])
        if squares < it.size:
            with build.loop("d", it.size, begin=squares) as d, build.loop("i", lanes) as i:
                with build.when(j + i < it.keys):
                    build.assign(to[d * width + i], k[(j + i) * row + d * it.k.column_stride])
                with build.otherwise():
                    build.assign(to[d * width + i], ZERO)


def _pack_values(
    build: Builder, it: Attention, v: Pointer, packed: Pointer, known: Count | None
) -> None:
    """V row after row, each filled up with zeros to whole vectors."""
    width = it.padded_width
    with build.loop("j", it.keys if known is None else known) as j:
        with build.loop("c", it.width) as c:
            value = v[j * it.v.row_stride + c * it.v.column_stride]
            build.assign(packed[j * width + c], value)
        if width > it.width:
            with build.loop("c", width, begin=it.width) as c:
                build.assign(packed[j * width + c], ZERO)


def _tile(build: Builder, item: _WorkItem, tile: Count) -> None:
    """All of a tile of query rows."""
    it, rows = item.it, item.it.tile.rows
    # The last tile begins early rather than end late.
    begin = tile * rows
    if not surely_equal(it.rows % rows, 0):
        begin = chosen(tile.equals(it.tiles - 1), it.rows - rows, begin)
    m0 = build.count("m0", begin)
    used = it.seen(m0 + rows, item.known)
    if it.reach is not None:
        used = build.count("used", used)
    if it.is_direct:
        _direct_scores(build, item, m0, used)
    else:
        _scores(build, item, m0, used)
    inverse = _softmax(build, item, m0, used)
    _weighted_sum(build, item, m0, used, inverse)


def _product(
    build: Builder,
    it: Attention,
    vectors: int,
    depth: Countable,
    a: Callable[[Count, Count], Expr],
    b: Callable[[Count, int], Expr],
    prefetch: Callable[[Count], None] = lambda k: None,
) -> Memory:
    """sum[i][j] = Σ_k a(i, k) · b(k, j), `j` a vector's number. `prefetch` is written into each
    step.
    """
    rows, lanes = it.tile.rows, it.tile.lanes
    sums = build.sums(rows, vectors, lanes=lanes)
    with build.loop("k", depth) as k:
        prefetch(k)
        row = [build.let(f"b{j}", b(k, j)) for j in range(vectors)]
        with build.loop("i", rows, unroll=FULLY) as i:
            x = build.let("x", Splat(a(i, k), lanes))
            for number, b_vector in enumerate(row):
                build.accumulate(sums[i, number], x * b_vector)
    return sums


def _scores(build: Builder, item: _WorkItem, m0: Count, used: Count) -> None:
    """The products of the tile's queries with all keys in reach."""
    it = item.it
    width, lanes, q = it.tile.width, it.tile.lanes, it.q
    # Where the number of keys is open, the last panel is computed in full, zeros included.
    whole = it.panels if is_symbolic(it.keys) else it.keys // width
    qt = build.pointer("qt", item.q, m0 * q.row_stride)

    def panel_of(panel: Count, vectors: int) -> None:
        b = build.pointer("b", item.keys, panel * (it.size * width))
        sums = _product(
            build,
            it,
            vectors,
            it.size,
            lambda i, k: qt[i * q.row_stride + k * q.column_stride],
            lambda k, j: b.vector(k * width + j * lanes, lanes),
        )
        with build.unrolled(("i", it.tile.rows), ("j", vectors)) as (i, j):
            place = i * it.row_length + panel * width + j * lanes
            build.assign(item.scores.vector(place, lanes), sums[i, j])

    if not surely_equal(whole, 0):
        end = count(whole)
        if it.is_bounded:
            end = least(whole, (used + (width - 1)) // width)
        with build.loop("panel", end) as panel:
            panel_of(panel, it.tile.vectors)
    if not is_symbolic(it.keys) and it.keys % width:
        vectors = -(-(it.keys % width) // lanes)
        always = not it.is_bounded or not whole
        with build.scope() if always else build.when(used > whole * width):
            panel_of(count(whole), vectors)


def _direct_scores(build: Builder, item: _WorkItem, m0: Count, used: Count) -> None:
    """The same with keys as they lie: each is read once, for all rows."""
    it, lanes = item.it, item.it.tile.lanes
    qt = build.pointer("qt", item.q, m0 * it.q.row_stride)
    keys, values = StoredRows(item.keys, it.k.row_stride), StoredRows(item.values, it.value_stride)
    with build.loop("key", used) as key:
        prefetch_row(build, keys, key, used, values, it.size, 0)
        k = build.pointer("k_row", item.keys, key * it.k.row_stride)
        sums = build.sums(it.rows, lanes=lanes)
        with build.loop("d", it.size, step=lanes, unroll=FULLY) as d:
            part = build.let("part", k.vector(d, lanes))
            with build.loop("i", it.rows, unroll=FULLY) as i:
                build.accumulate(sums[i], qt.vector(i * it.q.row_stride + d, lanes) * part)
        with build.unrolled(("i", it.rows)) as (i,):
            total = Primitive(f"sum_f32x{lanes}", (sums[i],), DType.F32)
            build.assign(item.scores[i * it.row_length + key], total)


def _softmax(build: Builder, item: _WorkItem, m0: Count, used: Count) -> Memory:
    """exp(score - top) in place; what the rows must still be multiplied by is left to the end, when
    there is less to multiply.
    """
    it, lanes = item.it, item.it.tile.lanes
    inverse = build.array("inverse", it.tile.rows)
    whole = build.count("whole", (used + (lanes - 1)) // lanes * lanes)
    with build.loop("i", it.tile.rows) as i:
        build.bind(ROW, m0 + i)
        row = build.pointer("row", item.scores, i * it.row_length, written=True)
        if it.score != SCORE:
            with build.loop(KEY, used, vectorise=True) as key:
                build.bind_value(SCORE.name, row[key])
                build.assign(row[key], it.score)
        with build.loop("rest", whole, begin=used) as key:
            build.assign(row[key], Literal(-math.inf, DType.F32))
        # The lowest number, not minus infinity: a query that sees no key at all then gets zeros.
        lowest = float(np.finfo(np.float32).min)
        tops = build.variable("tops", splat(lowest, lanes))
        totals = build.variable("totals", zeros(lanes))
        with build.loop("key", whole, step=lanes) as key:
            x = build.let("x", row.vector(key, lanes))
            build.assign(tops, lanewise(Fn.CHOOSE, lanewise(Fn.LT, tops, x), x, tops))
        largest = Primitive(f"top_f32x{lanes}", (tops,), DType.F32)
        top = build.let("top", Splat(largest, lanes))
        with build.loop("key", whole, step=lanes) as key:
            scaled = (row.vector(key, lanes) - top) * it.scale
            weight = build.let("weight", Op(Fn.EXP_DOWN, (scaled,), DType.F32, lanes))
            build.assign(row.vector(key, lanes), weight)
            build.accumulate(totals, weight)
        total = build.let("total", Primitive(f"sum_f32x{lanes}", (totals,), DType.F32))
        one = Literal(1.0, DType.F32)
        build.assign(inverse[i], choose(apply(Fn.EQ, total, ZERO), one, one / total))
    return inverse


def _weighted_sum(build: Builder, item: _WorkItem, m0: Count, used: Count, inverse: Memory) -> None:
    it = item.it
    lanes, width, rows = it.tile.lanes, it.tile.width, it.tile.rows
    step = it.value_stride
    whole = it.padded_width // width * width
    following = next_keys(build, it.k, item.keys, Var(HEAD, it.heads)) if it.is_direct else None

    def panel_of(c0: Count, vectors: int, columns: Countable) -> None:
        def prefetch(k: Count) -> None:
            if following is not None:
                values = StoredRows(item.values, step)
                prefetch_row(build, values, k, used, following, vectors * lanes, c0)

        sums = _product(
            build,
            it,
            vectors,
            used,
            lambda i, k: item.scores[i * it.row_length + k],
            lambda k, j: item.values.vector(c0 + k * step + j * lanes, lanes),
            prefetch,
        )
        made = build.array("out_tile", rows * vectors * lanes)
        with build.unrolled(("i", rows), ("j", vectors)) as (i, j):
            scaled = sums[i, j] * Splat(inverse[i], lanes)
            build.assign(made.vector(i * (vectors * lanes) + j * lanes, lanes), scaled)
        with build.loop("i", rows) as i:
            build.bind(ROW, m0 + i)
            with build.loop("j", columns, vectorise=True) as j:
                build.bind(COLUMN, c0 + j)
                build.bind_value(ACCUMULATOR.name, made[i * (vectors * lanes) + j])
                build.add(it.output)

    if whole:
        with build.loop("c0", whole, step=width) as c0:
            # The last whole panel may end in columns that only fill up a vector.
            columns = width if it.width == it.padded_width else least(it.width - c0, width)
            panel_of(c0, it.tile.vectors, columns)
    if whole < it.padded_width:
        with build.scope():
            panel_of(count(whole), (it.padded_width - whole) // lanes, it.width - whole)
