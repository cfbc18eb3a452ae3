"""Convolutions in any form: any number of spatial axes, any groups, transposed, weights that are
not constant, every float type.

A loop nest on the plain layout, along the rows of the output. It is what is left when the
channel-blocked kernels do not apply.
"""

from __future__ import annotations

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.elements import Indices
from whence.kernels.expressions import all_of, apply, compute_type, select, within
from whence.kernels.group import Group, data_operands
from whence.kernels.index import Var, of
from whence.kernels.ir import Accumulate, Accumulator, Expr, Fn, Kernel, Literal, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.window_taps import collected_places, read_places
from whence.kernels.rules.elementwise import activated
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.ops.neural.window import make_transposition, make_window
from whence.ops.registry import operators
from whence.ops.traits import Trait

CONV_GENERAL_OPS = (
    (operators(Trait.CONVOLUTION) | operators(Trait.TRANSPOSED_CONVOLUTION))
    - operators(Trait.BLOCKED)
    - operators(Trait.CHANNELS_LAST)
)


def lower_conv_general(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a convolution of plain tensors."""
    source, weights = data_operands(anchor)
    dtype = compute_type(group.dtype(source))
    out_shape = group.shape(anchor.ref())
    if not dtype.is_float or 0 in out_shape or group.dtype(weights) is not group.dtype(source):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' works on {group.dtype(source)}, {list(out_shape)}"
        )
    rows = OutputRows(out_shape)
    groups = get_int(anchor.attrs, "group", 1)
    channels = Var("c", group.shape(source)[1] // groups)
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(group.shape(weights)[2:])]
    if anchor.op.endswith("Transpose"):
        inside, index, weight_index = _transposed(group, anchor, rows.index, groups, channels, taps)
    else:
        inside, index, weight_index = _direct(group, anchor, rows.index, groups, channels, taps)
    elements = group.elements()
    product = apply(Fn.MUL, elements.value(source, index), elements.value(weights, weight_index))
    fold = Accumulate("total", Fn.ADD, select(inside, product, Literal(0.0, dtype)), rows.lane)
    begin = Accumulator("total", Literal(0.0, dtype), rows.lane)
    total: Expr = begin.value
    bias, addend = anchor.operand("B"), anchor.operand("Z")
    if bias is not None:
        total = apply(Fn.ADD, total, elements.value(bias, (rows.index[1],)))
    if addend is not None:
        total = apply(Fn.ADD, total, elements.broadcast(addend, rows.index))
    return rows.kernel(
        group,
        begin,
        *nested([channels, *taps], (rows.loop(fold),)),
        rows.loop(*rows.stores(group, anchor, activated(anchor, total))),
    )


Access = tuple[Expr, Indices, Indices]
"""When a tap counts, which element of the input it reads, and which of the weights."""


def _direct(
    group: Group, anchor: Node, out: Indices, groups: int, channels: Var, taps: list[Var]
) -> Access:
    source, weights = data_operands(anchor)
    shape = group.shape(source)
    window = make_window(anchor.op, anchor.attrs, shape[2:], group.shape(weights)[2:])
    places = read_places(window, out[2:], taps)
    # Without padding, no tap lies outside, whatever the size.
    inside = all_of(
        within(place, 0, size)
        for place, size, *padding in zip(places, shape[2:], window.begins, window.ends, strict=True)
        if any(is_symbolic(each) or each > 0 for each in padding)
    )
    first = out[1] // (group.shape(weights)[0] // groups) * channels.extent
    return (
        inside,
        (out[0], first + of(channels), *places),
        (out[1], of(channels), *(of(tap) for tap in taps)),
    )


def _transposed(
    group: Group, anchor: Node, out: Indices, groups: int, channels: Var, taps: list[Var]
) -> Access:
    source, weights = data_operands(anchor)
    shape, per_group = group.shape(source), group.shape(weights)[1]
    geometry = make_transposition(anchor.op, anchor.attrs, shape[2:], group.shape(weights)[2:])
    inside, places = collected_places(geometry, out[2:], taps, shape[2:])
    outer = out[1] // per_group
    channel = outer * channels.extent + of(channels)
    return (
        inside,
        (out[0], channel, *places),
        (channel, out[1] % per_group, *(of(tap) for tap in taps)),
    )
