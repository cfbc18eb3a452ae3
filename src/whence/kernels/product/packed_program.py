"""Products straight from packed weights of 2, 4 or 8 bits, as a program.

A column is a lane, so a vector of 32-bit words holds the next codes of as many columns. In each of
its bytes lie one or more codes, so that one shift and one mask make four codes of every column
ready (`packed_codes.py`). Two ways from there:

- integer: rows of A are quantised to int8, block by block, when a worker begins, or by all workers
  together where rows are many; four products a lane are added at once, and the sum of a block
  becomes a real number by the scales of both sides.
- real: codes become float32, times their scale, and rows of A multiply them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.builder import Builder, Memory, Pointer, splat, zeros
from whence.kernels.device.packed import packed_product_on_device
from whence.kernels.ir import (
    FULLY,
    Count,
    Expr,
    Fn,
    Kernel,
    Micro,
    Name,
    Op,
    Primitive,
    Splat,
    Stmt,
    Store,
    count,
    least,
)
from whence.kernels.product.gemm_program import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.product.packed_codes import code_of, quad_of
from whence.kernels.product.packed_rows import LARGEST_CODE, Rows, quantised_rows, real_rows
from whence.machine import CACHE_LINE
from whence.types import DType

_WORD = 32
_PAIR_LIMIT = 1 << 15
"""Of a sum of 16 bits; see `codegen/packed_vectors.py`."""
_UNROLLED = 4
"""Words of a column whose products are written out, a power of 2 as all their numbers are."""
_AHEAD = 4096
"""Prefetch distance, in bytes."""


@dataclass(frozen=True, slots=True)
class PackedProduct(Micro):
    """C[m, n] = epilogue(Σ_k A[m, k] · W[k, n]). A work item is a part of the rows of a panel of
    columns.
    """

    rows: int
    columns: int
    depth: int
    bits: int
    block: int
    """Numbers that share a scale, along the depth."""
    integer: bool
    """Are rows of A quantised?"""
    a: str
    words: str
    """Codes, `[panel][block][word][vector][lane]`."""
    scales: str
    """`[panel][block][vector][lane]`."""
    zeros: str | None
    """Zero points as bytes, `[panel][block][vector][lane]`; `None` for the middle of the range."""
    lanes: int
    vectors: int
    """Of a panel."""
    tile_rows: int
    tile_vectors: int
    """Divides `vectors`."""
    row_parts: int
    """Work items of a panel."""
    shares_rows: bool
    """Do the workers quantise the rows of A together, before they multiply?"""
    output: Store
    """What is stored, from the accumulator and the variables `m`, `n`, `batch`."""

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def panels(self) -> int:
        return -(-self.columns // self.width)

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    @property
    def tasks(self) -> int:
        return self.panels * self.row_parts

    @property
    def block_words(self) -> int:
        """Words of a block of one column."""
        return self.block * self.bits // _WORD

    @property
    def quads(self) -> int:
        """Of a word."""
        return 8 // self.bits

    @property
    def padded(self) -> int:
        """The depth in whole blocks."""
        return self.blocks * self.block

    @property
    def pads(self) -> bool:
        """Are rows of A copied because they do not fill whole blocks?"""
        return self.padded != self.depth

    @property
    def scratch(self) -> tuple[int, int, int]:
        """In words of 4 bytes: rows of A (quantised, or filled up), their scales and corrections,
        one row on its way to being quantised.
        """
        if not self.integer:
            return (self.rows * self.padded if self.pads else 0), 0, 0
        staged = self.padded if self.pads else 0
        return self.rows * self.padded // 4, 2 * self.rows * self.blocks, staged

    @property
    def middle(self) -> int:
        """The zero point, where none are given."""
        return 1 << (self.bits - 1)

    @property
    def steps(self) -> int:
        """Quads that may be added before their sum is made int32."""
        return (_PAIR_LIMIT - 1) // (2 * ((1 << self.bits) - 1) * LARGEST_CODE)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        rows = quantised_rows(build, self) if self.integer else real_rows(build, self)
        with build.tasks(kernel.tasks) as task:
            panel = task if self.row_parts == 1 else build.count("panel", task // self.row_parts)
            build.bind(BATCH, 0)
            stride = self.blocks * self.width
            words = build.pointer(
                "words", build.buffer(self.words, DType.I32), panel * (stride * self.block_words)
            )
            scales = build.pointer("scales", build.buffer(self.scales), panel * stride)
            zero_points = (
                None
                if self.zeros is None
                else build.pointer("zeros", build.buffer(self.zeros, DType.U8), panel * stride)
            )
            item = _WorkItem(self, panel * self.width, rows, words, scales, zero_points)
            _row_tiles(build, item, task % self.row_parts)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return packed_product_on_device(self, kernel)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the parts of a work item share."""

    it: PackedProduct
    n0: Count
    """Its first column."""
    a: Rows
    words: Pointer
    scales: Pointer
    zeros: Pointer | None


def _row_tiles(build: Builder, item: _WorkItem, part: Count) -> None:
    """Those of a part of the rows; the rows that fill no tile are the last part's."""
    it = item.it
    whole, tiles = it.rows // it.tile_rows * it.tile_rows, -(-it.rows // it.tile_rows)
    size = -(-tiles // it.row_parts) * it.tile_rows
    is_all = it.row_parts == 1
    first = count(0) if is_all else part * size
    last = count(whole) if is_all else least(first + size, whole)
    if whole:
        with build.loop("m0", last, begin=first, step=it.tile_rows) as m0:
            _row_tile(build, item, m0, it.tile_rows)
    if whole < it.rows:
        with build.scope() if is_all else build.when(part.equals(it.row_parts - 1)):
            _row_tile(build, item, count(whole), it.rows - whole)


def _row_tile(build: Builder, item: _WorkItem, m0: Count, rows: int) -> None:
    it = item.it
    with build.loop("v0", it.vectors, step=it.tile_vectors) as v0:
        sums = build.sums(rows, it.tile_vectors, lanes=it.lanes)
        with build.loop("b", it.blocks) as b:
            if rows == it.rows:
                _prefetch(build, item, b)
            else:
                _prefetch_next_panel(build, item, m0, v0, b)
            if it.integer:
                _integer_block(build, item, sums, m0, rows, v0, b)
            else:
                _real_block(build, item, sums, m0, rows, v0, b)
        _store(build, item, sums, m0, rows, v0)


def _prefetch(build: Builder, item: _WorkItem, b: Count) -> None:
    """What is read once comes from memory: codes and scales of a later block."""
    it, line = item.it, CACHE_LINE // 4
    for pointer, size in ((item.words, it.width * it.block_words), (item.scales, it.width)):
        share = -(-size * it.tile_vectors // it.vectors)
        ahead = max(1, _AHEAD // 4 // size) * size
        for number in range(0, share, line):
            build.prefetch(pointer, b * size + ahead + number)


def _prefetch_next_panel(build: Builder, item: _WorkItem, m0: Count, v0: Count, b: Count) -> None:
    """While rows are many, weights come from memory once for all of them: each block of each tile
    prefetches its part of what the next panel has.
    """
    it, line = item.it, CACHE_LINE // 4
    passes = -(-it.rows // it.tile_rows) * (it.vectors // it.tile_vectors)
    number = (m0 // it.tile_rows) * (it.vectors // it.tile_vectors) + v0 // it.tile_vectors
    for pointer, size in ((item.words, it.width * it.block_words), (item.scales, it.width)):
        lines = -(-it.blocks * size // line)
        part = -(-lines // (passes * it.blocks))
        place = build.count("place", it.blocks * size + (number * it.blocks + b) * (part * line))
        for each in range(part):
            build.prefetch(pointer, place + each * line)


def _words(build: Builder, item: _WorkItem, v0: Count, b: Count, number: Count) -> list[Name]:
    it = item.it
    place = (b * it.block_words + number) * it.width + v0 * it.lanes
    return [
        build.let(f"word{j}", item.words.vector(place + j * it.lanes, it.lanes))
        for j in range(it.tile_vectors)
    ]


def _by_block(item: _WorkItem, pointer: Pointer, v0: Count, b: Count, j: int) -> Expr:
    return pointer.vector(b * item.it.width + v0 * item.it.lanes + j * item.it.lanes, item.it.lanes)


def _zero_points(item: _WorkItem, v0: Count, b: Count, j: int) -> Expr:
    assert item.zeros is not None
    return Op(Fn.CAST, (_by_block(item, item.zeros, v0, b, j),), DType.F32, item.it.lanes)


def _integer_block(
    build: Builder, item: _WorkItem, sums: Memory, m0: Count, rows: int, v0: Count, b: Count
) -> None:
    """Add the sum of a block's products, by the scales of both sides."""
    it, lanes = item.it, item.it.lanes
    assert item.a.scales is not None
    assert item.a.corrections is not None
    each = (("i", rows), ("j", it.tile_vectors))
    totals = build.array("totals", rows, it.tile_vectors, dtype=DType.I32, lanes=lanes)
    with build.loop("i", rows, unroll=FULLY) as i:
        # What zero points take away is where sums begin, if it is the same for all columns.
        begin = (
            Splat(item.a.corrections[(m0 + i) * it.blocks + b], lanes)
            if item.zeros is None
            else zeros(lanes, DType.I32)
        )
        for vector in range(it.tile_vectors):
            build.assign(totals[i, vector], begin)
    if it.bits < 8:
        # Sums in the machine's own form may overflow sooner than a block ends.
        chunk = min(max(1, it.steps // it.quads), _UNROLLED, it.block_words)
        with build.loop("w0", it.block_words, step=chunk) as w0:
            parts = build.array("part", rows, it.tile_vectors, dtype=DType.I32, lanes=lanes)
            with build.unrolled(*each) as (i, j):
                begun = Primitive(f"small_begin_i32x{lanes}", (totals[i, j],), DType.I32, lanes)
                build.assign(parts[i, j], begun)
            for number in range(chunk):
                _dot(build, item, parts, m0, rows, v0, b, w0 + number)
            with build.unrolled(*each) as (i, j):
                ends = (parts[i, j], totals[i, j])
                ended = Primitive(f"small_end_i32x{lanes}", ends, DType.I32, lanes)
                build.assign(totals[i, j], ended)
    else:
        with build.loop("w0", it.block_words) as w0:
            _dot(build, item, totals, m0, rows, v0, b, w0)
    for vector in range(it.tile_vectors):
        with build.scope():
            scale = build.let("scale", _by_block(item, item.scales, v0, b, vector))
            offset = None
            if item.zeros is not None:
                offset = build.let("offset", _zero_points(item, v0, b, vector) * scale)
            with build.loop("i", rows, unroll=FULLY) as i:
                place = (m0 + i) * it.blocks + b
                row_scale = build.let("row_scale", item.a.scales[place])
                real = Op(Fn.CAST, (totals[i, vector],), DType.F32, lanes)
                if offset is None:
                    build.accumulate(sums[i, vector], real * (scale * row_scale))
                else:
                    correction = Splat(item.a.corrections[place], lanes)
                    centred = real * scale - offset * correction
                    build.accumulate(sums[i, vector], centred * Splat(row_scale, lanes))


def _dot(
    build: Builder,
    item: _WorkItem,
    parts: Memory,
    m0: Count,
    rows: int,
    v0: Count,
    b: Count,
    number: Count,
) -> None:
    """The products of one word of each column."""
    it, lanes = item.it, item.it.lanes
    name = f"small_dot_i32x{lanes}" if it.bits < 8 else f"dot_x{lanes}"
    with build.scope():
        words = _words(build, item, v0, b, number)
        for quad in range(it.quads):
            with build.scope():
                codes = [
                    build.let(f"codes{j}", quad_of(it.bits, word, quad))
                    for j, word in enumerate(words)
                ]
                place = b * (it.block // 4) + number * it.quads + quad
                with build.loop("i", rows, unroll=FULLY) as i:
                    four = item.a.values[(m0 + i) * item.a.stride + place]
                    x = build.let("x", Splat(four, lanes))
                    for j, code in enumerate(codes):
                        part = parts[i, j]
                        made = Primitive(name, (part, code, x), DType.I32, lanes)
                        build.assign(part, made)


def _real_block(
    build: Builder, item: _WorkItem, sums: Memory, m0: Count, rows: int, v0: Count, b: Count
) -> None:
    """Add a block's products: codes become numbers, one row of the panel after the other."""
    it, lanes = item.it, item.it.lanes
    scales, offsets = [], []
    for j in range(it.tile_vectors):
        scale = build.let(f"scale{j}", _by_block(item, item.scales, v0, b, j))
        zero = (
            splat(float(it.middle), lanes) if item.zeros is None else _zero_points(item, v0, b, j)
        )
        scales.append(scale)
        offsets.append(build.let(f"offset{j}", zero * scale))
    with build.loop("w0", it.block_words, unroll=1) as number:
        words = _words(build, item, v0, b, number)
        for quad in range(it.quads):
            for byte in range(4):
                with build.scope():
                    weights = [
                        build.let(
                            f"w{j}", code_of(it.bits, word, quad, byte) * scales[j] - offsets[j]
                        )
                        for j, word in enumerate(words)
                    ]
                    place = b * it.block + (number * it.quads + quad) * 4 + byte
                    with build.loop("i", rows, unroll=FULLY) as i:
                        one = item.a.values[(m0 + i) * item.a.stride + place]
                        x = build.let("x", Splat(one, lanes))
                        for j, weight in enumerate(weights):
                            build.accumulate(sums[i, j], x * weight)


def _store(build: Builder, item: _WorkItem, sums: Memory, m0: Count, rows: int, v0: Count) -> None:
    """Apply the epilogue to the sums of a tile."""
    it = item.it
    width = it.tile_vectors * it.lanes
    made = build.array("out_tile", rows * width)
    with build.unrolled(("i", rows), ("j", it.tile_vectors)) as (i, j):
        build.assign(made.vector(i * width + j * it.lanes, it.lanes), sums[i, j])
    first = build.count("first", item.n0 + v0 * it.lanes)
    columns = build.count("columns", least(it.columns - first, width))
    with build.loop("i", rows) as i:
        build.bind(ROW, m0 + i)
        with build.loop("j", columns, vectorise=True) as j:
            build.bind(COLUMN, first + j)
            build.bind_value(ACCUMULATOR.name, made[i * width + j])
            build.add(it.output)
