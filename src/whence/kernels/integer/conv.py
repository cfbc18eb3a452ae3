"""IntegerConv, as a product of bytes: a row is a pixel's window, the columns are the filters of a
group. Or, where a channel has a filter of its own, four kernel rows at a time, as the four bytes of
a lane:

out[p, c] = epilogue(Σ_kh Σ_kw (x[at(p, kh, kw), c] - x_zero) · (w[kh, kw, c] - w_zero))

Vectors then run over channels. The bytes that one channel has in four rows of one input column are
put side by side; each such vector serves all pixels of a tile whose window holds the column.
Padding is read from a row of x_zero, so it adds nothing. Corrections for zero points are those of
the product. The last vector of channels begins early rather than end late.
"""

from __future__ import annotations

import math

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import estimate, same_shape
from whence.graph import Node
from whence.kernels.conv.direct import fields, input_buffer
from whence.kernels.conv.general import lower_conv_general
from whence.kernels.conv.tiles import ONE_ROW, Cover, Field, OpenCover, cover, open_cover
from whence.kernels.cost import FEWEST_ITEMS, ITEMS_PER_THREAD
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Var, of
from whence.kernels.integer.depthwise_program import IntegerSlide
from whence.kernels.integer.epilogue import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.integer.gather import Gather
from whence.kernels.integer.packing import PackBytes
from whence.kernels.integer.product import (
    CODES,
    packed_kernel,
    plan,
    zero_point,
    zero_points,
)
from whence.kernels.integer.product_program import IntegerProduct
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int

# Vector registers by the lanes of the machine's vectors, less some for input, order and constants.
_REGISTERS = {16: 26, 8: 10, 4: 24}
_MOST_WEIGHTS = 9
_SHORTEST = 4


def lower_integer_conv(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is an IntegerConv of whatever kind."""
    source, weights = data_operands(anchor)
    out_shape, x_shape = group.shape(anchor.ref()), group.shape(source)
    if 0 in (*out_shape, *x_shape):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    values = group.graph.const_value(weights)
    if (
        values is None
        or not {group.dtype(source), group.dtype(weights)} <= CODES
        or len(x_shape) > 4
    ):
        return lower_conv_general(group, anchor, tile)
    if _is_depthwise(group, anchor):
        return _lower_depthwise(group, anchor, tile, values)
    return _lower_product(group, anchor, tile, values)


def _lower_product(group: Group, anchor: Node, tile: Tile, values: np.ndarray) -> Kernel:
    source, weights = data_operands(anchor)
    groups = get_int(anchor.attrs, "group", 1)
    out_shape, x_shape = group.shape(anchor.ref()), group.shape(source)
    made, channels, taken = out_shape[-1] // groups, x_shape[-1], values.shape[-1]
    rows, columns = _axes(anchor, x_shape, values.shape)
    depth = math.prod(values.shape[1:])
    pixels = math.prod(out_shape[:-1])
    shape = plan(groups, pixels, made, depth, tile)
    x_zero = zero_point(group, anchor.operand("x_zero_point"))
    matrix = values.reshape(groups, made, depth).transpose(0, 2, 1)
    zeros = zero_points(group, anchor, x_zero, matrix)
    packing = PackBytes(groups, (depth, 1), made, True, shape.lanes, shape.panels, zeros)
    lies_ready = groups == 1 and rows.is_pointwise and columns.is_pointwise
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
    return packed_kernel(group, anchor, micro)


def _axes(anchor: Node, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> tuple[Field, Field]:
    """The two spatial axes of a convolution. An image of one axis, or one pixel wide, is one row:
    tiles lie along rows.
    """
    found = fields(anchor, x_shape[1:-1], w_shape[1:-1])
    if len(found) == 1:
        return ONE_ROW, found[0]
    rows, columns = found
    is_narrow = same_shape((columns.size, columns.out, columns.kernel, columns.begin), (1, 1, 1, 0))
    return (columns, rows) if is_narrow else (rows, columns)


# ---- depthwise ----


def _is_depthwise(group: Group, anchor: Node) -> bool:
    """One input channel to each output channel, enough of them for a vector?"""
    source, weights = data_operands(anchor)
    channels = group.shape(source)[-1]
    return (
        channels >= _SHORTEST
        and channels == get_int(anchor.attrs, "group", 1) == group.shape(weights)[0]
    )


def _lower_depthwise(group: Group, anchor: Node, tile: Tile, values: np.ndarray) -> Kernel:
    """A kernel for a group whose anchor is a depthwise IntegerConv with constant weights."""
    source, weights = data_operands(anchor)
    x_shape, out_shape = group.shape(source), group.shape(anchor.ref())
    channels, images = x_shape[-1], x_shape[0]
    rows, columns = _axes(anchor, x_shape, values.shape)
    lanes = next(size for size in (16, 8, 4) if size <= min(tile.lanes, channels))
    x_zero = zero_point(group, anchor.operand("x_zero_point"))
    matrix = values.reshape(1, channels, -1).transpose(0, 2, 1)
    zeros = zero_points(group, anchor, x_zero, matrix)
    panels, kernel = (1,) * -(-channels // lanes), (rows.kernel, columns.kernel)
    packing = PackBytes(1, kernel, channels, True, lanes, panels, zeros)
    held = min(columns.kernel * -(-rows.kernel // 4), _MOST_WEIGHTS)
    pixels = max((_REGISTERS[tile.lanes] - held) // (1 + zeros.has_sums), 1)
    # Tiles lie along a row, whatever rows there are: none holds pixels of two.
    tiles: Cover | OpenCover
    if columns.is_open:
        tiles = open_cover(rows, columns, pixels)
    else:
        tiles = cover(ONE_ROW, columns, min(pixels, 2 * columns.out - 1))
    wanted = -(-max(FEWEST_ITEMS, ITEMS_PER_THREAD * tile.threads) // estimate(images))
    # Where rows are fewer than parts of them, some are empty.
    chunks = wanted if rows.is_open else min(rows.out, wanted)
    parts = min(-(-channels // lanes), -(-wanted // chunks))
    pixel = math.prod(out_shape[:-1])
    flat = of(Var(ROW, pixel)) * channels + of(Var(COLUMN, channels))
    micro = IntegerSlide(
        images=images,
        channels=channels,
        lanes=lanes,
        rows=rows,
        columns=columns,
        cover=tiles,
        chunks=chunks,
        parts=parts,
        source=input_buffer(group, anchor, source),
        source_type=group.dtype(source),
        x_zero=x_zero,
        weights=input_buffer(group, anchor, weights),
        packing=packing,
        outputs=group.stores(anchor, ACCUMULATOR, flat),
    )
    return packed_kernel(group, anchor, micro)
