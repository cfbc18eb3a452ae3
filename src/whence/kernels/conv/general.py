"""Convolutions in any form: any number of spatial axes, any groups, transposed, weights that are
not constant, every float type; and those of integers, which have their channels last.

A loop nest along the rows of the output. It is what is left when the channel-blocked kernels, or
products of bytes, do not apply.
"""

from __future__ import annotations

import math

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node, Ref
from whence.kernels.expressions import all_of, cast, compute_type, select, within
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Index, Var, of
from whence.kernels.ir import Accumulate, Accumulator, Expr, Fn, Kernel, Literal, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.window_taps import collected_places, read_places
from whence.kernels.rules.elementwise import activated, add, mul, sub
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.ops.neural.window import make_transposition, make_window
from whence.ops.registry import operators
from whence.ops.traits import Trait

CONV_GENERAL_OPS = (
    (operators(Trait.CONVOLUTION) | operators(Trait.TRANSPOSED_CONVOLUTION))
    - operators(Trait.BLOCKED)
    - operators(Trait.CHANNELS_LAST)
) | {"IntegerConvTranspose"}


def lower_conv_general(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a convolution of tensors that are not blocked."""
    source, weights = data_operands(anchor)
    is_integer = anchor.op.startswith("Integer")
    x_shape, w_shape, out_shape = map(group.shape, (source, weights, anchor.ref()))
    dtype = compute_type(group.dtype(anchor.ref() if is_integer else source))
    if 0 in (*x_shape, *w_shape, *out_shape) or not (
        is_integer or (dtype.is_float and group.dtype(weights) is group.dtype(source))
    ):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' works on {group.dtype(source)}, {list(out_shape)}"
        )
    rows = OutputRows(out_shape)
    groups = get_int(anchor.attrs, "group", 1)
    spatial, channel_axis = (slice(1, -1), -1) if is_integer else (slice(2, None), 1)
    sizes, kernel, out = x_shape[spatial], w_shape[spatial], rows.index[spatial]
    channels = Var("c", x_shape[channel_axis] // groups)
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(kernel)]
    made, per_group = rows.index[channel_axis], out_shape[channel_axis] // groups
    channel = made // per_group * channels.extent + of(channels)
    if anchor.op.endswith("Transpose"):
        geometry = make_transposition(anchor.op, anchor.attrs, sizes, kernel)
        inside, places = collected_places(geometry, out, taps, sizes)
        filters = (made % per_group, channel) if is_integer else (channel, made % per_group)
    else:
        window = make_window(anchor.op, anchor.attrs, sizes, kernel)
        places, filters = read_places(window, out, taps), (made, of(channels))
        # Without padding, no tap lies outside, whatever the size; of integers it is asked anyway.
        inside = all_of(
            within(place, 0, size)
            for place, size, *padding in zip(places, sizes, window.begins, window.ends, strict=True)
            if is_integer or any(is_symbolic(each) or each > 0 for each in padding)
        )

    elements = group.elements()

    def value(ref: Ref, first: Index, second: Index, *places: Index) -> Expr:
        index = (first, *places, second) if is_integer else (first, second, *places)
        return cast(elements.value(ref, index), dtype)

    x = value(source, rows.index[0], channel, *places)
    w = value(weights, *filters, *map(of, taps))
    x_zero, w_zero = anchor.operand("x_zero_point"), anchor.operand("w_zero_point")
    if x_zero is not None:
        x = sub(x, cast(elements.only(x_zero), dtype))
    if w_zero is not None:
        is_one = math.prod(group.shape(w_zero)) == 1
        zero = elements.only(w_zero) if is_one else elements.value(w_zero, (made,))
        w = sub(w, cast(zero, dtype))
    nothing = Literal(0.0 if dtype.is_float else 0, dtype)
    fold = Accumulate("total", Fn.ADD, select(inside, mul(x, w), nothing), rows.lane)
    begin = Accumulator("total", nothing, rows.lane)
    total: Expr = begin.value
    bias, addend = anchor.operand("B"), anchor.operand("Z")
    if bias is not None:
        total = add(total, elements.value(bias, (made,)))
    if addend is not None:
        total = add(total, elements.broadcast(addend, rows.index))
    summed = [*taps, channels] if is_integer else [channels, *taps]
    return rows.kernel(
        group,
        begin,
        *nested(summed, (rows.loop(fold),)),
        rows.loop(*rows.stores(group, anchor, activated(anchor, total))),
    )
