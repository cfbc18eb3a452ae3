"""IntegerConv as a product of bytes: a row is a pixel's window, the columns are the filters of a
group.
"""

from __future__ import annotations

import math

from whence.errors import UnsupportedError
from whence.extent import surely_equal
from whence.graph import Node
from whence.kernels.conv.direct import input_buffer
from whence.kernels.conv.general import lower_conv_general
from whence.kernels.conv.tiles import Field
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Var, of
from whence.kernels.integer.depthwise import is_depthwise, lower_integer_depthwise
from whence.kernels.integer.epilogue import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.integer.gather import Gather
from whence.kernels.integer.packing import PackBytes
from whence.kernels.integer.product import (
    CODES,
    FLOPS_PER_NS,
    image_axes,
    packed_kernel,
    plan,
    zero_point,
    zero_points,
)
from whence.kernels.integer.product_program import IntegerProduct
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int


def lower_integer_conv(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is an IntegerConv of whatever kind."""
    source, weights = data_operands(anchor)
    out_shape, x_shape = group.shape(anchor.ref()), group.shape(source)
    if 0 in (*out_shape, *x_shape):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    if (
        group.graph.const_value(weights) is None
        or not {group.dtype(source), group.dtype(weights)} <= CODES
        or len(x_shape) > 4
    ):
        return lower_conv_general(group, anchor, tile)
    if is_depthwise(group, anchor):
        return lower_integer_depthwise(group, anchor, tile)
    return _lower_product(group, anchor, tile)


def _lower_product(group: Group, anchor: Node, tile: Tile) -> Kernel:
    source, weights = data_operands(anchor)
    values = group.graph.const_value(weights)
    assert values is not None
    groups = get_int(anchor.attrs, "group", 1)
    out_shape, x_shape = group.shape(anchor.ref()), group.shape(source)
    made, channels, taken = out_shape[-1] // groups, x_shape[-1], values.shape[-1]
    rows, columns = image_axes(anchor, x_shape[1:-1], values.shape[1:-1])
    depth = math.prod(values.shape[1:])
    pixels = math.prod(out_shape[:-1])
    shape = plan(groups, pixels, made, depth, tile)
    x_zero = zero_point(group, anchor.operand("x_zero_point"))
    matrix = values.reshape(groups, made, depth).transpose(0, 2, 1)
    zeros = zero_points(group, anchor, x_zero, anchor.operand("w_zero_point"), matrix)
    packing = PackBytes(groups, (depth, 1), made, True, shape.lanes, shape.panels, zeros)
    lies_ready = groups == 1 and _is_pointwise(rows) and _is_pointwise(columns)
    flat = (
        of(Var(ROW, pixels)) * out_shape[-1] + of(Var(BATCH, groups)) * made + of(Var(COLUMN, made))
    )
    micro = IntegerProduct(
        shape=shape,
        source=input_buffer(group, anchor, source),
        source_type=group.dtype(source),
        base=of(0) if groups == 1 else of(Var(BATCH, groups)) * taken,
        row_stride=channels,
        gather=None if lies_ready else Gather(rows, columns, channels, taken),
        x_zero=x_zero,
        weights=input_buffer(group, anchor, weights),
        weights_type=group.dtype(weights),
        packing=packing,
        weights_base=of(0),
        w_zero=None,
        outputs=group.stores(anchor, ACCUMULATOR, flat),
    )
    return packed_kernel(group, anchor, micro, FLOPS_PER_NS)


def _is_pointwise(field: Field) -> bool:
    """Does every output position read the input position of the same number?"""
    return (
        field.kernel == field.stride == 1
        and surely_equal(field.begin, 0)
        and surely_equal(field.size, field.out)
    )
