"""Max and average pools: on blocked tensors a sliding window over vectors of channels, on others a
loop nest along the rows of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.conv.depthwise import slide
from whence.kernels.expressions import apply, cast, compute_type, identity, number, select
from whence.kernels.group import Group
from whence.kernels.index import Var
from whence.kernels.ir import Accumulate, Accumulator, Expr, Fn, Kernel, Literal, Stmt, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.window_taps import are_within, counted_limits, read_places
from whence.kernels.rules.elementwise import add, div, like, sub
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int, get_ints
from whence.ops.neural.window import Window, make_window
from whence.ops.registry import operators, plain_name
from whence.ops.traits import Trait
from whence.types import DType

POOL_OPS = operators(Trait.POOLS_WINDOWS)
_CHANNELS_LAST = operators(Trait.POOLS_WINDOWS, Trait.CHANNELS_LAST)

_CODES = frozenset({DType.I8, DType.U8, DType.I16})
# Windows of up to so many bytes have averages that are nearer to a half only if they are one, as
# float32 sees them too.
_EXACT = 4096


def lower_pool(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a pool."""
    if len(anchor.outputs) != 1:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' also returns positions")
    if anchor.op.startswith("Blocked"):
        return _lower_blocked(group, anchor, tile)
    return _lower_plain(group, anchor)


def _window(anchor: Node, sizes: Sequence[int]) -> Window:
    kernel = get_ints(anchor.attrs, "kernel_shape")
    window = make_window(anchor.op, anchor.attrs, sizes, kernel)
    if 0 in window.output:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    return window


# ---- blocked ----


def _lower_blocked(group: Group, anchor: Node, tile: Tile) -> Kernel:
    source = anchor.first_input
    if group.dtype(source) is not DType.F32:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' works on {group.dtype(source)}")
    sizes = group.shape(source)[2:4]
    window = _window(anchor, sizes)
    ceil_mode = bool(get_int(anchor.attrs, "ceil_mode", 0))
    pool = partial(slide, group, anchor, tile, window.kernel, ceil_mode=ceil_mode)
    limits = counted_limits(anchor, window, sizes)
    if plain_name(anchor.op) != "AveragePool":
        micro = pool(fn=Fn.MAX)
    elif any(map(is_symbolic, sizes)):
        micro = pool(counted=tuple(limits))
    else:
        micro = pool(shares=(_shares(window, 0, *limits[0]), _shares(window, 1, *limits[1])))
    return group.kernel(micro.tasks, micro)


def _shares(window: Window, axis: int, low: int, high: int) -> tuple[float, ...]:
    """1 / (taps that count) for each output position along an axis."""
    found = []
    for position in range(window.output[axis]):
        start = position * window.strides[axis] - window.begins[axis]
        taps = sum(
            low <= start + tap * window.dilations[axis] < high for tap in range(window.kernel[axis])
        )
        found.append(1.0 / max(taps, 1))
    return tuple(found)


# ---- plain ----


def _lower_plain(group: Group, anchor: Node) -> Kernel:
    """Work items are rows of the output, or equal parts of them; a row's results grow side by side
    while the window passes. Integers have their channels last, so that a row is a pixel.
    """
    source, op, is_last = anchor.first_input, plain_name(anchor.op), anchor.op in _CHANNELS_LAST
    shape, dtype = group.shape(source), compute_type(group.dtype(source))
    if is_last and dtype not in _CODES:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' works on {dtype}")
    sizes = shape[1:-1] if is_last else shape[2:]
    window, average = _window(anchor, sizes), op == "AveragePool"
    working = DType.I32 if is_last and average else dtype
    rows = OutputRows(group.shape(anchor.ref()))
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(window.kernel)]
    places = read_places(window, rows.index[1:-1] if is_last else rows.index[2:], taps)
    read = (rows.index[0], *places, rows.index[-1]) if is_last else (*rows.index[:2], *places)
    value = _prepared(anchor, cast(group.elements().value(source, read), working))
    fn = Fn.MAX if op == "MaxPool" else Fn.ADD
    empty, none, one = identity(fn, working), number(0, working), number(1, working)
    inside = are_within(places, ((0, size) for size in sizes))
    sums = Accumulator("total", empty, rows.lane)
    begins: list[Stmt] = [sums]
    folds = [Accumulate("total", fn, select(inside, value, empty), rows.lane)]
    counting: list[Stmt] = []
    total: Expr = sums.value
    if average:
        size = math.prod(window.kernel)
        counted: Expr = number(size, working)
        counts = are_within(places, counted_limits(anchor, window, sizes))
        if not isinstance(counts, Literal):
            # How many elements count differs from window to window; all channels have the same.
            lane = None if is_last else rows.lane
            present = Accumulator("count", none, lane)
            begins.append(present)
            count = Accumulate("count", Fn.ADD, select(counts, one, none), lane)
            (counting if is_last else folds).append(count)
            counted = apply(Fn.MAX, present.value, one)
        if is_last:
            total = _rounded(total, counted, exact=dtype is not DType.I16 and size <= _EXACT)
        else:
            total = div(total, counted)
    if op == "LpPool":
        total = _rooted(anchor, total)
    return rows.kernel(
        group,
        *begins,
        *nested(taps, (rows.loop(*folds), *counting)),
        rows.loop(*rows.stores(group, anchor, cast(total, dtype))),
    )


def _prepared(anchor: Node, value: Expr) -> Expr:
    """What LpPool sums: |x|^p."""
    if anchor.op != "LpPool":
        return value
    power = get_int(anchor.attrs, "p", 2)
    if power == 2:
        return apply(Fn.MUL, value, value)
    size = apply(Fn.ABS, value)
    return size if power == 1 else apply(Fn.POW, size, Literal(float(power), value.dtype))


def _rooted(anchor: Node, total: Expr) -> Expr:
    power = get_int(anchor.attrs, "p", 2)
    if power == 2:
        return apply(Fn.SQRT, total)
    return total if power == 1 else apply(Fn.POW, total, Literal(1.0 / power, total.dtype))


def _rounded(total: Expr, count: Expr, *, exact: bool) -> Expr:
    """The quotient rounded to the nearest integer, halves away from zero. Vectors divide real
    numbers only.
    """
    if exact:
        real = div(cast(total, DType.F32), cast(count, DType.F32))
        return cast(_away(real, Literal(0.5, DType.F32)), DType.I32)
    wide, count = cast(total, DType.I64), cast(count, DType.I64)
    return cast(div(_away(wide, div(count, Literal(2, DType.I64))), count), DType.I32)


def _away(x: Expr, half: Expr) -> Expr:
    """So much further away from zero."""
    return select(apply(Fn.LT, x, like(0.0, x)), sub(x, half), add(x, half))
