"""Max and average pools of channels-last integers: a loop nest whose innermost loop runs along the
channels.
"""

from __future__ import annotations

import math

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.expressions import apply, cast, select
from whence.kernels.group import Group
from whence.kernels.index import Var
from whence.kernels.ir import Accumulate, Accumulator, Expr, Fn, Kernel, Literal, Stmt, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.window_taps import are_within, counted_limits, read_places
from whence.kernels.rules.elementwise import add, div, like, sub
from whence.ops.attributes import get_ints
from whence.ops.neural.window import make_window
from whence.ops.quantised.quantise import integer_range
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import DType

INTEGER_POOL_OPS = operators(Trait.POOLS_WINDOWS, Trait.CHANNELS_LAST)

_CODES = frozenset({DType.I8, DType.U8, DType.I16})
# Windows of up to so many bytes have averages that are nearer to a half only if they are one, as
# float32 sees them too.
_EXACT = 4096


def lower_integer_pool(group: Group, anchor: Node) -> Kernel:
    """A kernel for a group whose anchor is a pool of integers."""
    source = anchor.first_input
    shape, dtype = group.shape(source), group.dtype(source)
    if dtype not in _CODES:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' works on {dtype}")
    kernel = get_ints(anchor.attrs, "kernel_shape")
    window = make_window(anchor.op, anchor.attrs, shape[1:-1], kernel)
    if 0 in (*shape, *window.output):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    average = anchor.op.endswith("AveragePool")
    working = DType.I32 if average else dtype
    rows = OutputRows(group.shape(anchor.ref()))
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(window.kernel)]
    sizes = shape[1:-1]
    places = read_places(window, rows.index[1:-1], taps)
    inside = are_within(places, ((0, size) for size in sizes))
    value = cast(group.elements().value(source, (rows.index[0], *places, rows.index[-1])), working)
    empty = Literal(0 if average else integer_range(dtype)[0], working)
    sums = Accumulator("total", empty, rows.lane)
    begins: list[Stmt] = [sums]
    fn = Fn.ADD if average else Fn.MAX
    fold = Accumulate("total", fn, select(inside, value, empty), rows.lane)
    folds: list[Stmt] = [rows.loop(fold)]
    total: Expr = sums.value
    if average:
        counts = are_within(places, counted_limits(anchor, window, sizes))
        size, none, one = math.prod(window.kernel), Literal(0, DType.I32), Literal(1, DType.I32)
        counted: Expr = Literal(size, DType.I32)
        if not isinstance(counts, Literal):
            # How many elements count differs from window to window.
            present = Accumulator("count", none)
            begins.append(present)
            folds.append(Accumulate("count", Fn.ADD, select(counts, one, none)))
            counted = apply(Fn.MAX, present.value, one)
        total = _average(total, counted, exact=dtype is not DType.I16 and size <= _EXACT)
    stores = rows.stores(group, anchor, cast(total, dtype))
    return rows.kernel(group, *begins, *nested(taps, tuple(folds)), rows.loop(*stores))


def _average(total: Expr, count: Expr, *, exact: bool) -> Expr:
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
