"""Products of bytes as a program: int32 sums in vector registers, four bytes of a row times four
rows of a panel a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.extent import Relation, decide
from whence.kernels.builder import Builder, Pointer, splat
from whence.kernels.device.integer import integer_product_on_device
from whence.kernels.expressions import cast
from whence.kernels.index import Index
from whence.kernels.integer.byte_vectors import (
    ONES,
    dot,
    flipped,
    quad_order,
    quads,
    unsigned_zero,
    words,
)
from whence.kernels.integer.epilogue import BATCH, COLUMN, IntegerEpilogue
from whence.kernels.integer.gather import Gather, gather_rows
from whence.kernels.integer.packing import PackBytes
from whence.kernels.ir import (
    FULLY,
    Bits,
    Count,
    Counter,
    Expr,
    Fn,
    Kernel,
    Literal,
    Micro,
    Splat,
    Stmt,
    Store,
    lanewise,
    least,
)
from whence.kernels.vectorise import vectorised
from whence.machine import CACHE_LINE
from whence.types import DType

_FEW_SUMS = 8
"""Sums in a tile up to which several steps are written out."""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A product's size and the register tile for it."""

    batch: int
    rows: int
    columns: int
    depth: int
    lanes: int
    panels: tuple[int, ...]
    """Vectors of columns in each panel: at most two sizes, the larger first."""
    tile_rows: int
    blocks: int
    """Parts of the rows, each gathered at once; none has fewer rows than a tile."""
    parts: int
    """Parts of the panels."""
    block_rows: int = 0
    """Rows of a block at most, where their number is open."""

    @property
    def words(self) -> int:
        """Groups of four along the depth, the last one padded."""
        return -(-self.depth // 4)

    @property
    def is_narrow(self) -> bool:
        """Fewer columns than the shortest vector has lanes."""
        return self.columns < self.lanes

    @property
    def most_rows(self) -> int:
        """Of a block."""
        return self.block_rows or -(-self.rows // self.blocks)

    @property
    def tasks(self) -> int:
        return self.batch * self.blocks * self.parts


@dataclass(frozen=True, slots=True)
class IntegerProduct(Micro):
    """The whole product. Work item t is a part of the panels, for a block of rows."""

    shape: ProductShape
    source: str
    source_type: DType
    base: Index
    """Where the rows of a batch item begin, over the variable `batch`."""
    row_stride: int
    gather: Gather | None
    """`None`: rows lie one after another."""
    x_zero: Expr
    weights: str
    weights_type: DType
    packing: PackBytes | None
    """`None`: the right-hand side is not constant, and panels are packed at run time from rows of
    `columns` bytes.
    """
    weights_base: Index
    w_zero: Expr | None
    """Of a right-hand side that is not constant, over the variable `n`."""
    outputs: tuple[Store, ...]

    @property
    def tasks(self) -> int:
        return self.shape.tasks

    @property
    def is_copied(self) -> bool:
        """Are rows gathered, not read where they are?"""
        return self.gather is not None or self.source_type is DType.I8 or self.shape.depth % 4 != 0

    @property
    def has_sums(self) -> bool:
        """Is the sum of each row needed?"""
        if self.packing is not None:
            return self.packing.zeros.has_sums
        return self.w_zero is not None or self.weights_type is DType.U8

    @property
    def middle(self) -> int:
        """How much larger the weights are than signed bytes."""
        return 128 if self.weights_type is DType.U8 else 0

    @property
    def copy_bytes(self) -> int:
        if self.is_copied:
            return -(-self.shape.most_rows * self.shape.words * 4 // CACHE_LINE) * CACHE_LINE
        return 0

    @property
    def sums_bytes(self) -> int:
        return -(-self.shape.most_rows * 4 // CACHE_LINE) * CACHE_LINE if self.has_sums else 0

    @property
    def scratch_bytes(self) -> int:
        """Gathered rows, their sums, then a packed panel."""
        panel = 0
        if self.packing is None:
            panel = self.shape.words * 4 * max(self.shape.panels) * self.shape.lanes
        return self.copy_bytes + self.sums_bytes + panel

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        order = None
        if self.packing is None and not self.shape.is_narrow:
            order = quad_order(build, self.shape.lanes)
        with build.tasks(kernel.tasks) as task:
            _work_item(build, kernel, self, task, order)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return integer_product_on_device(self)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the panels of a work item share."""

    it: IntegerProduct
    kernel: Kernel
    lo: Count
    hi: Count
    """Rows from, to."""
    a: Pointer
    """The rows, `stride` bytes from one to the next."""
    stride: int
    zero: Expr
    sums: Pointer | None
    """Of each row."""
    order: Expr | None


@dataclass(frozen=True, slots=True)
class _Panel:
    """Some vectors of columns: where they begin, their bytes, and what sums start with."""

    starts: list[Count]
    w: Pointer
    start: list[Expr]
    factor: list[Expr]
    """What the sum of each row is multiplied by; empty if it is not needed."""


def _work_item(
    build: Builder, kernel: Kernel, it: IntegerProduct, task: Count, order: Expr | None
) -> None:
    shape = it.shape
    build.bind(BATCH, task // (shape.blocks * shape.parts))
    part = build.count("part", task // shape.blocks % shape.parts)
    block = build.count("block", task % shape.blocks)
    lo = build.count("lo", block * shape.rows // shape.blocks)
    hi = build.count("hi", (block + 1) * shape.rows // shape.blocks)
    x = build.pointer("x", build.buffer(it.source, it.source_type), it.base)
    zero = unsigned_zero(build, it.x_zero, it.source_type)
    stride = shape.words * 4 if it.is_copied else it.row_stride
    if it.is_copied:
        rows = build.scratch("rows", DType.U8, alone=False)
        gather_rows(build, it, x, rows, lo, hi, zero)
        a = build.pointer("a", rows, alone=False)
    else:
        a = build.pointer("a", x, lo * stride)
    sums = None
    if it.has_sums:
        sums = build.scratch("sums", DType.I32, it.copy_bytes // 4, alone=False)
        with build.loop("i", hi - lo) as i:
            total = build.variable("total", Literal(0, DType.I32))
            with build.loop("k", shape.depth) as k:
                build.accumulate(total, cast(a[i * stride + k], DType.I32))
            build.assign(sums[i], total)
    _panels(build, _WorkItem(it, kernel, lo, hi, a, stride, zero, sums, order), part)


def _panels(build: Builder, item: _WorkItem, part: Count) -> None:
    """The panels of a work item, each with all rows of its block."""
    shape = item.it.shape
    sizes = sorted(set(shape.panels), reverse=True)
    small, larger = sizes[-1], sum(size > sizes[-1] for size in shape.panels)
    number = len(shape.panels)
    end = (part + 1) * number // shape.parts
    with build.loop("panel", end, begin=part * number // shape.parts) as panel:
        first = panel * small + (least(panel, larger) if larger else 0)
        vector = build.count("vector", first)
        if not larger:
            _rows(build, item, _panel(build, item, vector, small))
            return
        with build.when(panel < larger):
            _rows(build, item, _panel(build, item, vector, sizes[0]))
        with build.otherwise():
            _rows(build, item, _panel(build, item, vector, small))


def _panel(build: Builder, item: _WorkItem, vector: Count, vectors: int) -> _Panel:
    it, shape, lanes = item.it, item.it.shape, item.it.shape.lanes
    starts = []
    for j in range(vectors):
        first = (vector + j) * lanes
        if shape.columns % lanes:
            first = least(first, max(shape.columns - lanes, 0))
        starts.append(build.count(f"n{j}", first))
    if it.packing is None:
        return _pack(build, item, starts)
    size = it.packing.vector_bytes
    weights = build.buffer(it.weights, DType.I8)
    group = Counter(BATCH) * (sum(shape.panels) * size)
    head = build.pointer("head", weights, group + vector * size)
    row = lanes * 4
    start: list[Expr] = []
    factor: list[Expr] = []
    for j in range(vectors):
        from_weights = words(head.vector(j * row, row))
        scaled = from_weights * -item.zero if it.packing.zeros.x is None else from_weights
        start.append(build.let(f"start{j}", scaled))
        if it.has_sums:
            read = words(head.vector((vectors + j) * row, row))
            factor.append(build.let(f"factor{j}", read))
    w = build.pointer("w", head, vectors * row * (1 + it.has_sums))
    return _Panel(starts, w, start, factor)


def _rows(build: Builder, item: _WorkItem, panel: _Panel) -> None:
    """A panel with all rows of the block, a tile at a time."""
    shape = item.it.shape
    if decide(shape.tile_rows, Relation.LE, shape.rows):
        _tiles(build, item, panel, shape.tile_rows)
        return
    with build.when(item.hi - item.lo >= shape.tile_rows):
        _tiles(build, item, panel, shape.tile_rows)
    with build.otherwise():
        _tiles(build, item, panel, 1)


def _tiles(build: Builder, item: _WorkItem, panel: _Panel, rows: int) -> None:
    """The rows of a block, so many at a time; there are as many."""
    shape, lanes, vectors = item.it.shape, item.it.shape.lanes, len(panel.starts)
    row = shape.lanes * 4
    with build.loop("tile0", item.hi, begin=item.lo, step=rows) as tile0:
        # The last tile begins early rather than end late.
        m0 = build.count("m0", least(tile0, item.hi - rows))
        at = build.pointer("at", item.a, (m0 - item.lo) * item.stride, alone=False)
        sums = build.array("sum", rows, vectors, dtype=DType.I32, lanes=lanes)
        with build.loop("i", rows, unroll=FULLY) as i:
            for j in range(vectors):
                begin = panel.start[j]
                if item.sums is not None:
                    begin = begin + item.sums[m0 - item.lo + i] * panel.factor[j]
                build.assign(sums[i, j], begin)
        unroll = 1 if rows * vectors > _FEW_SUMS else 4
        with build.loop("k", shape.words, unroll=unroll) as k:
            w = [
                build.let(f"w{j}", words(panel.w.vector((k * vectors + j) * row, row)))
                for j in range(vectors)
            ]
            with build.loop("i", rows, unroll=FULLY) as i:
                bytes_of = words(at.vector(i * item.stride + k * 4, 4))
                four = build.let("four", Splat(bytes_of, lanes))
                for j in range(vectors):
                    build.assign(sums[i, j], dot(sums[i, j], four, w[j]))
        epilogue = IntegerEpilogue(item.it.outputs, shape.columns, lanes, rows, m0)
        epilogue.store(build, item.kernel, panel.starts, lambda i, j: sums[i, j])


# ---- a right-hand side that is not constant ----


def _pack(build: Builder, item: _WorkItem, starts: list[Count]) -> _Panel:
    """A panel into scratch, with the sum of each column on the way."""
    it, shape, lanes = item.it, item.it.shape, item.it.shape.lanes
    vectors, row = len(starts), shape.lanes * 4
    packed = build.scratch("packed", DType.I8, it.copy_bytes + it.sums_bytes, alone=False)
    b = build.pointer("b", build.buffer(it.weights, it.weights_type), it.weights_base)
    columns = [build.variable(f"column{j}", splat(0, lanes, DType.I32)) for j in range(vectors)]
    whole, rest = divmod(shape.depth, 4)
    for first, last, present in ((0, whole, 4), (whole, shape.words, rest)):
        if first == last:
            continue
        with build.loop("k", last, begin=first) as k:
            for j in range(vectors):
                with build.scope():
                    four = build.let("four", _quads(build, item, b, k, starts[j], present))
                    place = packed.vector((k * vectors + j) * row, row)
                    build.assign(place, Bits(four, DType.I8))
                    ones = Splat(ONES, lanes)
                    build.assign(columns[j], dot(columns[j], ones, four))
    start: list[Expr] = []
    factor: list[Expr] = []
    for j, column in enumerate(columns):
        total: Expr = column
        if it.has_sums:
            left = build.let(f"left{j}", _left(build, it, j, starts[j]))
            total = total - left * Literal(shape.depth, DType.I32)
            factor.append(build.let(f"factor{j}", -left))
        start.append(build.let(f"start{j}", total * -item.zero))
    return _Panel(starts, packed, start, factor)


def _quads(
    build: Builder, item: _WorkItem, b: Pointer, k: Count, start: Count, present: int
) -> Expr:
    """Four rows of a vector's columns side by side, as signed bytes; rows behind the last are 0."""
    it, shape, lanes = item.it, item.it.shape, item.it.shape.lanes
    middle = Literal(it.middle, b.dtype)
    if item.order is None:
        narrow = build.array("bytes", lanes * 4, dtype=b.dtype)
        build.assign(narrow.vector(0, lanes * 4), splat(0, lanes * 4, b.dtype))
        with build.loop("c", shape.columns) as c, build.loop("t", present) as t:
            byte = b[(k * 4 + t) * shape.columns + c]
            build.assign(narrow[c * 4 + t], lanewise(Fn.BIT_XOR, byte, middle))
        return words(narrow.vector(0, lanes * 4))
    rows: list[Expr] = [
        b.vector((k * 4 + t) * shape.columns + start, lanes) for t in range(present)
    ]
    rows += [Splat(middle, lanes)] * (4 - present)
    joined = quads(rows, item.order)
    return flipped(joined) if it.middle else joined


def _left(build: Builder, it: IntegerProduct, j: int, start: Count) -> Expr:
    """The zero points of a vector's columns, of signed bytes."""
    shape, lanes = it.shape, it.shape.lanes
    middle = splat(it.middle, lanes, DType.I32)
    if it.w_zero is None:
        return splat(0, lanes, DType.I32) - middle
    lane = next((var for var in it.w_zero.variables() if var.name == COLUMN), None)
    if lane is None:
        return Splat(it.w_zero, lanes) - middle
    zeros = build.array(f"zeros{j}", lanes, dtype=DType.I32)
    wide = None if shape.is_narrow else vectorised(it.w_zero, lane, lanes, {})
    if wide is not None:
        with build.scope():
            build.bind(COLUMN, start)
            build.assign(zeros.vector(0, lanes), wide)
    else:
        build.assign(zeros.vector(0, lanes), splat(0, lanes, DType.I32))
        with build.loop("lane", min(shape.columns, lanes)) as number:
            build.bind(COLUMN, start + number)
            build.assign(zeros[number], it.w_zero)
    return zeros.vector(0, lanes) - middle
