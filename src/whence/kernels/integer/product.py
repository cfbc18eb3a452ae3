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
from dataclasses import replace

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import estimate, is_symbolic
from whence.graph import Node, Ref
from whence.kernels.conv.direct import input_buffer, require_sole_reader
from whence.kernels.cost import FEWEST_ITEMS, ITEMS_PER_THREAD
from whence.kernels.expressions import cast
from whence.kernels.group import Group, Packed, data_operands
from whence.kernels.index import Index, Var, of
from whence.kernels.integer.depthwise_program import IntegerSlide
from whence.kernels.integer.epilogue import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.integer.packing import PackBytes, ZeroPoints, centre
from whence.kernels.integer.product_program import IntegerProduct, ProductShape
from whence.kernels.ir import Expr, Kernel, Literal
from whence.kernels.product.gemm import batch_base
from whence.kernels.tile import Tile
from whence.rates import ArithmeticUnit
from whence.types import DType

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
# Tiles that a block has at least where the number of rows is open: blocks are as equal as can be,
# and half of this has to be one.
_LEAST_OPEN_TILES = 4
# What starting a tile costs, in rows, and how much more than the least may be computed for the sake
# of more work items.
_TILE_COST = 3.0
_SPARE = 1.04


def plan(
    batch: int, rows: int, columns: int, depth: int, tile: Tile, *, packed: bool = True
) -> ProductShape:
    """The register tile of a product, and how it is divided into work items."""
    if is_symbolic(rows) or is_symbolic(batch):
        return _open_plan(batch, rows, columns, depth, tile, packed=packed)
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
    return ProductShape(batch, rows, columns, depth, lanes, panels, tile_rows, blocks, parts)


def _open_plan(
    batch: int, rows: int, columns: int, depth: int, tile: Tile, *, packed: bool
) -> ProductShape:
    """The tile of many rows, and blocks of about as many as for the number at hand: none has fewer
    rows than a tile, unless there are no more.
    """
    usual = plan(
        estimate(batch), max(estimate(rows), _MOST_ROWS), columns, depth, tile, packed=packed
    )
    tile_rows = min(_ACCUMULATORS[tile.lanes] // max(usual.panels), _MOST_ROWS)
    block_rows = max(usual.most_rows, _LEAST_OPEN_TILES * tile_rows)
    blocks = -(-rows // block_rows)
    return replace(
        usual, batch=batch, rows=rows, tile_rows=tile_rows, blocks=blocks, block_rows=block_rows
    )


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
        return Literal(0, DType.I32)
    if math.prod(group.shape(ref)) != 1:
        raise UnsupportedError(f"group '{group.name}' has a zero point for each row")
    return cast(group.elements().only(ref), DType.I32)


def zero_points(group: Group, anchor: Node, x_zero: Expr, weights: np.ndarray) -> ZeroPoints:
    """Those of an anchor with constant weights [batch, depth, columns]."""
    ref = anchor.operand("w_zero_point", "b_zero_point")
    value = np.zeros(1, np.int64) if ref is None else group.graph.const_value(ref)
    if value is None:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has constant weights with a zero point that is not"
        )
    w_zero = tuple(int(item) for item in value.reshape(-1))
    signed = group.dtype(anchor.first_input) is DType.I8
    known = x_zero.value + 128 * signed if isinstance(x_zero, Literal) else None
    return ZeroPoints(known, w_zero, bool(np.any(centre(weights, w_zero)[1])))


def packed_kernel(group: Group, anchor: Node, micro: IntegerProduct | IntegerSlide) -> Kernel:
    """A kernel whose weights, if they are packed, are bytes in another order."""
    _, ref = data_operands(anchor)
    packed = {}
    if micro.packing is not None:
        require_sole_reader(group, anchor, ref)
        packed[ref] = Packed(micro.packing, micro.packing.elements, DType.I8)
    kernel = group.kernel(micro.tasks, micro, scratch_bytes=micro.scratch_bytes, packed=packed)
    # Sliding windows multiply in pairs, no faster than float32.
    is_product = isinstance(micro, IntegerProduct)
    return replace(kernel, unit=ArithmeticUnit.INT8 if is_product else ArithmeticUnit.F32)


def lower_integer_gemm(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a MatMulInteger."""
    a, b = data_operands(anchor)
    if not {group.dtype(a), group.dtype(b)} <= CODES:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' multiplies {group.dtype(a)} by {group.dtype(b)}"
        )
    a_shape, b_shape = group.shape(a), group.shape(b)
    if len(a_shape) < 2 or len(b_shape) < 2 or 0 in (*a_shape, *b_shape):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' has a vector or an empty operand")
    # Panels and what is packed are for numbers.
    rows, depth, columns = a_shape[-2], int(a_shape[-1]), int(b_shape[-1])
    batch_shape: tuple[int, ...] = ()
    if math.prod(b_shape[:-2]) == 1:
        # One B for all of A: the batch dimensions are more rows.
        rows *= math.prod(a_shape[:-2])
    else:
        batch_shape = group.shape(anchor.ref())[:-2]
    batch = Var(BATCH, math.prod(batch_shape))
    weights = None if batch.extent > 1 else group.graph.const_value(b)
    shape = plan(batch.extent, rows, columns, depth, tile, packed=weights is not None)
    x_zero = zero_point(group, anchor.operand("a_zero_point"))
    b_zero = anchor.operand("b_zero_point")
    packing = w_zero = None
    if weights is not None:
        zeros = zero_points(group, anchor, x_zero, weights.reshape(1, depth, columns))
        packing = PackBytes(1, (depth, 1), columns, False, shape.lanes, shape.panels, zeros)
    elif b_zero is not None:
        w_zero = _column_zero(group, anchor, b_zero, columns)
    flat = (of(batch) * rows + of(Var(ROW, rows))) * columns + of(Var(COLUMN, columns))
    micro = IntegerProduct(
        shape=shape,
        source=input_buffer(group, anchor, a),
        source_type=group.dtype(a),
        base=batch_base(of(batch), batch_shape, a_shape),
        row_stride=depth,
        gather=None,
        x_zero=x_zero,
        weights=input_buffer(group, anchor, b),
        weights_type=group.dtype(b),
        packing=packing,
        weights_base=batch_base(of(batch), batch_shape, b_shape),
        w_zero=w_zero,
        outputs=group.stores(anchor, ACCUMULATOR, flat),
    )
    return packed_kernel(group, anchor, micro)


def _column_zero(group: Group, anchor: Node, ref: Ref, columns: int) -> Expr:
    shape = group.shape(ref)
    if math.prod(shape) == 1:
        return zero_point(group, ref)
    if math.prod(shape) != columns or shape[-1] != columns:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has zero points of shape {list(shape)}"
        )
    return cast(
        group.elements().value(ref, (*(Index(0) for _ in shape[1:]), of(Var(COLUMN, columns)))),
        DType.I32,
    )
