"""MatMulInteger as a product of bytes, with a constant right-hand side or one that is packed at run
time.
"""

from __future__ import annotations

import math

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.conv.direct import input_buffer
from whence.kernels.expressions import cast
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Index, Var, of
from whence.kernels.integer.epilogue import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.integer.packing import PackBytes
from whence.kernels.integer.product import (
    CODES,
    FLOPS_PER_NS,
    packed_kernel,
    plan,
    zero_point,
    zero_points,
)
from whence.kernels.integer.product_program import IntegerProduct
from whence.kernels.ir import Expr, Kernel
from whence.kernels.product.gemm import batch_base
from whence.kernels.tile import Tile
from whence.types import DType


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
        zeros = zero_points(group, anchor, x_zero, b_zero, weights.reshape(1, depth, columns))
        packing = PackBytes(1, depth, columns, False, shape.lanes, shape.panels, zeros)
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
    return packed_kernel(group, anchor, micro, micro.scratch_bytes, FLOPS_PER_NS)


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
