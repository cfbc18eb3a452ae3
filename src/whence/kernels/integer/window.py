"""Integer convolutions in any form: any number of spatial axes, transposed, weights that are not
constant, activations of 16 bits.

A loop nest along the rows of the output. It is what is left when products of bytes do not apply.
"""

from __future__ import annotations

import math

from whence.errors import UnsupportedError
from whence.extent import same_shape
from whence.graph import Node
from whence.kernels.conv.tiles import Field
from whence.kernels.expressions import cast, select
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Var, of
from whence.kernels.ir import Accumulate, Accumulator, Fn, Kernel, Literal, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.window_taps import are_within, collected_places, read_places
from whence.kernels.rules.elementwise import mul, sub
from whence.ops.attributes import get_int
from whence.ops.neural.window import make_transposition, make_window

_ONE = Field(1, 1, 1, 1, 1, 0)
_NARROW = (1, 1, 1, 0)


def fields(anchor: Node, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Field, Field]:
    """The two spatial axes of a convolution. An image of one axis, or one pixel wide, is one row:
    tiles lie along rows.
    """
    window = make_window(anchor.op, anchor.attrs, spatial, kernel)
    axes = (spatial, window.output, window.kernel, window.strides, window.dilations)
    found = [Field(*axis) for axis in zip(*axes, window.begins, window.ends, strict=True)]
    if len(found) == 1:
        return _ONE, found[0]
    rows, columns = found
    is_narrow = same_shape((columns.size, columns.out, columns.kernel, columns.begin), _NARROW)
    return (columns, rows) if is_narrow else (rows, columns)


def lower_integer_window(group: Group, anchor: Node) -> Kernel:
    """A kernel for a group whose anchor is an IntegerConv or IntegerConvTranspose."""
    source, weights = data_operands(anchor)
    out_shape = group.shape(anchor.ref())
    x_shape = group.shape(source)
    w_shape = group.shape(weights)
    if 0 in (*out_shape, *x_shape, *w_shape):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    dtype = group.dtype(anchor.ref())
    rows = OutputRows(out_shape)
    groups = get_int(anchor.attrs, "group", 1)
    channels = Var("c", x_shape[-1] // groups)
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(w_shape[1:-1])]
    sizes, kernel, out = x_shape[1:-1], w_shape[1:-1], rows.index[1:-1]
    is_transposed = anchor.op.endswith("Transpose")
    if is_transposed:
        geometry = make_transposition(anchor.op, anchor.attrs, sizes, kernel)
        inside, places = collected_places(geometry, out, taps, sizes)
    else:
        places = read_places(make_window(anchor.op, anchor.attrs, sizes, kernel), out, taps)
        inside = are_within(places, ((0, size) for size in sizes))
    per_group = out_shape[-1] // groups
    channel = rows.index[-1] // per_group * channels.extent + of(channels)
    filters = (
        (rows.index[-1] % per_group, channel) if is_transposed else (rows.index[-1], of(channels))
    )
    elements = group.elements()
    x = cast(elements.value(source, (rows.index[0], *places, channel)), dtype)
    w = cast(elements.value(weights, (filters[0], *(of(tap) for tap in taps), filters[1])), dtype)
    x_zero, w_zero = anchor.operand("x_zero_point"), anchor.operand("w_zero_point")
    if x_zero is not None:
        x = sub(x, cast(elements.only(x_zero), dtype))
    if w_zero is not None:
        is_one = math.prod(group.shape(w_zero)) == 1
        zero = elements.only(w_zero) if is_one else elements.value(w_zero, (rows.index[-1],))
        w = sub(w, cast(zero, dtype))
    fold = Accumulate("total", Fn.ADD, select(inside, mul(x, w), Literal(0, dtype)), rows.lane)
    total = Accumulator("total", Literal(0, dtype), rows.lane)
    return rows.kernel(
        group,
        total,
        *nested([*taps, channels], (rows.loop(fold),)),
        rows.loop(*rows.stores(group, anchor, total.value)),
    )
