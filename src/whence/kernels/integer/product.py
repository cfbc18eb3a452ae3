"""Products of bytes: convolutions with constant weights and matrix products, exact in 32 bits, the
epilogue applied on the way out.

out[b, m, n] = epilogue(Σ_k (x[b, m, k] - x_zero) · (w[b, k, n] - w_zero[n]))

What is multiplied are unsigned bytes x' = x or x + 128 and signed bytes w' = w - s, with a shift s
for each column chosen so that w' fits:

Σ (x - x_zero) (w - w_zero) = Σ x' w' - x_zero' · (Σ w' - K · w_zero') - w_zero' · Σ x'

with x_zero' = x_zero or x_zero + 128 and w_zero' = w_zero - s. The second term is one number for
each column, from which sums start. The third is 0 for most models, whose weights are centred; if
not, the sum of each row is needed too.

Rows that do not lie in memory as they are read, or are signed, are first gathered for a block of
rows; padding is gathered as x_zero, so it adds nothing. The last vector of columns, and the last
tile of rows, begin early rather than end late: some results are made twice, none in part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.conv.epilogue import Output
from whence.kernels.conv.tiles import Field
from whence.kernels.cost import FEWEST_ITEMS, ITEMS_PER_THREAD
from whence.kernels.elements import Indices
from whence.kernels.expressions import cast, literal
from whence.kernels.group import Group
from whence.kernels.index import Index, ravel, unravel
from whence.kernels.ir import Buffer, Expr, Micro, Name
from whence.kernels.tile import Tile
from whence.machine import CACHE_LINE
from whence.types import DType

BATCH, ROW, COLUMN = "batch", "m", "n"
"""The variables of an epilogue."""
ACCUMULATOR = Name("acc", DType.I32)

CODES = frozenset({DType.I8, DType.U8})

# Accumulators by the lanes of the machine's vectors: without an instruction for it, a sum of four
# products takes registers of its own.
_ACCUMULATORS = {16: 28, 8: 8, 4: 16}
# Rows of the smallest tile worth its name, and the most vectors of columns that a single row keeps
# busy.
_FEW_ROWS, _MOST_VECTORS, _MOST_ROWS = 3, 8, 24
# No work item is so small that handing it out is noticed.
_ITEM_FLOPS = 1 << 20
_ITEM_BYTES = 1 << 16
FLOPS_PER_NS = 320
"""With short sums a third of that, but then it is stores that count."""
# What starting a tile costs, in rows, and how much more than the least may be computed for the sake
# of more work items.
_TILE_COST = 3.0
_SPARE = 1.04


@dataclass(frozen=True, slots=True)
class Gather:
    """How the bytes of a row are collected: for each tap of a window `taken` channels, of
    `channels` that lie side by side.
    """

    rows: Field
    columns: Field
    channels: int
    taken: int


@dataclass(frozen=True, slots=True)
class Shape:
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
        return -(-self.rows // self.blocks)

    @property
    def tasks(self) -> int:
        return self.batch * self.blocks * self.parts

    def starts(self, vectors: range) -> list[int]:
        """The first column of each vector."""
        return [min(vector * self.lanes, max(self.columns - self.lanes, 0)) for vector in vectors]


@dataclass(frozen=True, slots=True)
class IntegerProduct(Micro):
    """The whole product as one statement; a renderer writes the loops."""

    shape: Shape
    source: str
    base: Index
    """Where the rows of a batch item begin, over the variable `batch`."""
    row_stride: int
    gather: Gather | None
    """`None`: rows lie one after another."""
    is_signed: bool
    """Of the rows."""
    x_zero: Expr
    weights: str
    packing: PackBytes | None
    """`None`: the right-hand side is not constant, and panels are packed at run time from rows of
    `columns` bytes.
    """
    weights_base: Index
    weights_signed: bool
    w_zero: Expr | None
    """Of a right-hand side that is not constant, over the variable `n`."""
    outputs: tuple[Output, ...]

    @property
    def is_copied(self) -> bool:
        """Are rows gathered, not read where they are?"""
        return self.gather is not None or self.is_signed or self.shape.depth % 4 != 0

    @property
    def has_sums(self) -> bool:
        """Is the sum of each row needed?"""
        return (
            self.packing.has_sums
            if self.packing is not None
            else self.w_zero is not None or not self.weights_signed
        )

    @property
    def copy_bytes(self) -> int:
        return (
            -(-self.shape.most_rows * self.shape.words * 4 // CACHE_LINE) * CACHE_LINE
            if self.is_copied
            else 0
        )

    @property
    def sums_bytes(self) -> int:
        return -(-self.shape.most_rows * 4 // CACHE_LINE) * CACHE_LINE if self.has_sums else 0

    @property
    def scratch_bytes(self) -> int:
        """Gathered rows, their sums, then a packed panel."""
        panel = (
            0
            if self.packing is not None
            else self.shape.words * 4 * max(self.shape.panels) * self.shape.lanes
        )
        return self.copy_bytes + self.sums_bytes + panel


@dataclass(frozen=True, slots=True)
class PackBytes:
    """Weights in panels. Each is a row of starting values, a row of factors if sums are needed,
    then the depth in fours, column by column.
    """

    batch: int
    depth: int
    columns: int
    by_column: bool
    """The weights are [batch, columns, depth], else [batch, depth, columns]."""
    lanes: int
    panels: tuple[int, ...]
    x_zero: int | None
    """Of the unsigned bytes; `None` if it is known only at run time, and starting values are to be
    multiplied by it.
    """
    w_zero: tuple[int, ...]
    """One, or one for each column of all batch items."""
    has_sums: bool

    @property
    def vector_bytes(self) -> int:
        """Of a vector's columns in all rows."""
        return self.lanes * 4 * (1 + self.has_sums + -(-self.depth // 4))

    @property
    def elements(self) -> int:
        return self.batch * sum(self.panels) * self.vector_bytes

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        matrix, left = centre(self._matrix(weights), self.w_zero)
        start = matrix.sum(axis=1, dtype=np.int64) - self.depth * left
        start = start if self.x_zero is None else start * -self.x_zero
        words = -(-self.depth // 4)
        width = max(self.columns, self.lanes)
        codes = np.zeros((self.batch, words * 4, width), np.int8)
        codes[:, : self.depth, : self.columns] = matrix
        head = np.zeros((self.batch, 2, width), np.int32)
        head[:, 0, : self.columns] = start.astype(np.int32)
        head[:, 1, : self.columns] = -left
        pieces, first = [], 0
        for panel in self.panels:
            at = np.concatenate(
                [
                    np.arange(self.lanes) + min(vector * self.lanes, width - self.lanes)
                    for vector in range(first, first + panel)
                ]
            )
            rows = (
                np.ascontiguousarray(head[:, : 1 + self.has_sums, at])
                .reshape(self.batch, -1)
                .view(np.int8)
            )
            quads = (
                codes[:, :, at]
                .reshape(self.batch, words, 4, at.size)
                .transpose(0, 1, 3, 2)
                .reshape(self.batch, -1)
            )
            pieces.append(np.concatenate([rows, quads], axis=1))
            first += panel
        return np.ascontiguousarray(np.concatenate(pieces, axis=1)).reshape(-1)

    def _matrix(self, weights: np.ndarray) -> np.ndarray:
        if self.by_column:
            return weights.reshape(self.batch, self.columns, self.depth).transpose(0, 2, 1)
        return weights.reshape(self.batch, self.depth, self.columns)


def centre(weights: np.ndarray, w_zero: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Weights [batch, depth, columns] as signed bytes, and what is left of the zero point of each
    column, [batch, columns].
    """
    batch, _, columns = weights.shape
    zero = np.array(w_zero, np.int64)
    zero = np.broadcast_to(
        zero.reshape(batch, columns) if zero.size > 1 else zero, (batch, columns)
    )
    low, high = (
        weights.min(axis=1).astype(np.int64) - zero,
        weights.max(axis=1).astype(np.int64) - zero,
    )
    fits = (low >= -128) & (high <= 127)
    shift = np.where(fits, zero, 128 if weights.dtype == np.uint8 else 0)
    return (weights.astype(np.int16) - shift[:, np.newaxis].astype(np.int16)).astype(
        np.int8
    ), zero - shift


def plan(
    batch: int, rows: int, columns: int, depth: int, tile: Tile, *, packed: bool = True
) -> Shape:
    """The register tile of a product, and how it is divided into work items."""
    lanes = next((size for size in (16, 8, 4) if size <= min(tile.lanes, columns)), 4)
    vectors = -(-columns // lanes)
    budget = _ACCUMULATORS[tile.lanes]
    if rows <= _FEW_ROWS:
        panel = min(vectors, max(1, min(_MOST_VECTORS, budget // rows)))
    else:
        panel = min(vectors, 3 if vectors == 3 and budget >= 24 else 2)
    count = -(-vectors // panel)
    small, larger = divmod(vectors, count)
    panels = (small + 1,) * larger + (small,) * (count - larger)

    flops, weight_bytes = 2 * batch * rows * columns * depth, batch * columns * depth
    items = max(FEWEST_ITEMS, ITEMS_PER_THREAD * tile.threads)
    wanted = -(-min(items, max(1, flops // _ITEM_FLOPS, weight_bytes // _ITEM_BYTES)) // batch)
    most_rows = min(rows, budget // panel, _MOST_ROWS)
    fitting = -(-rows * depth // (tile.cache_bytes // 2))
    # A right-hand side that comes from far away, or is packed by whoever reads it, is better read
    # once by one worker.
    shared = packed and columns * depth <= tile.cache_bytes // 2
    parts = 1 if shared else min(count, wanted)
    blocks, tile_rows = _blocks(rows, most_rows, fitting, max(fitting, -(-wanted // parts)))
    parts = min(count, -(-wanted // blocks)) if shared else parts
    return Shape(batch, rows, columns, depth, lanes, panels, tile_rows, blocks, parts)


def _blocks(rows: int, most_rows: int, least: int, most: int) -> tuple[int, int]:
    """How many blocks of rows, and the rows of a tile: as many blocks as cost next to nothing.

    The last tile of a block begins early, so rows that do not divide evenly are computed twice; and
    each tile reads the panel once more.
    """
    found: list[tuple[float, int, int]] = []
    for blocks in range(min(least, rows), min(most, rows) + 1):
        sizes = [(block + 1) * rows // blocks - block * rows // blocks for block in range(blocks)]
        cost, tile_rows = min(
            (sum(-(-size // height) for size in sizes) * (height + _TILE_COST), -height)
            for height in range(1, min(most_rows, *sizes) + 1)
        )
        found.append((cost, blocks, -tile_rows))
    enough = min(found)[0] * _SPARE
    _, blocks, tile_rows = max(
        (each for each in found if each[0] <= enough), key=lambda each: each[1]
    )
    return blocks, tile_rows


def zero_point(group: Group, ref: Ref | None) -> Expr:
    """The zero point of a whole tensor."""
    if ref is None:
        return literal(0, DType.I32)
    shape = group.shape(ref)
    if math.prod(shape) != 1:
        raise UnsupportedError(f"group '{group.name}' has a zero point for each row")
    return cast(group.elements().value(ref, tuple(Index(0) for _ in shape)), DType.I32)


def constants(group: Group, anchor: Node, ref: Ref | None, default: int = 0) -> tuple[int, ...]:
    """The integers of a constant zero point."""
    if ref is None:
        return (default,)
    value = group.graph.const_value(ref)
    if value is None:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has constant weights with a zero point that is not"
        )
    return tuple(int(item) for item in value.reshape(-1))


def packed_params(group: Group, anchor: Node, ref: Ref, elements: int) -> tuple[Buffer, ...]:
    """The kernel's parameters with the weights as bytes in another order."""
    if any(other is not anchor and ref in other.inputs for other in group.members):
        raise UnsupportedError(
            f"group '{group.name}' reads the weights of '{anchor.name}' elsewhere too"
        )
    params, position = list(group.params()), group.inputs.index(ref)
    params[position] = Buffer(params[position].name, DType.I8, elements, params[position].role)
    return tuple(params)


def epilogue(group: Group, anchor: Node, flat: Index) -> tuple[Output, ...]:
    """What the group stores for the anchor's sum at position `flat`: the operators fused behind
    it.
    """
    out_shape = group.shape(anchor.ref())

    def given(index: Indices) -> Expr:
        if ravel(index, out_shape) != flat:
            raise UnsupportedError(f"group '{group.name}' moves elements after '{anchor.name}'")
        return ACCUMULATOR

    tail = group.elements({anchor.ref(): given})
    found = []
    for number, result in enumerate(group.outputs):
        if math.prod(group.shape(result)) != math.prod(out_shape):
            raise UnsupportedError(
                f"group '{group.name}' changes how many elements '{anchor.name}' makes"
            )
        found.append(
            Output(f"out{number}", flat, tail.value(result, unravel(flat, group.shape(result))))
        )
    return tuple(found)
