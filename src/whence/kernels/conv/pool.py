"""Max and average pools: on blocked tensors a sliding window over vectors of channels, on plain
ones a loop nest along the rows of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.conv.depthwise import slide
from whence.kernels.expressions import apply, compute_type, select
from whence.kernels.group import Group
from whence.kernels.index import Var
from whence.kernels.ir import Accumulate, Accumulator, Expr, Fn, Kernel, Literal, Stmt, nested
from whence.kernels.loops.output_rows import OutputRows
from whence.kernels.loops.reduce import REDUCTIONS
from whence.kernels.loops.window_taps import are_within, counted_limits, read_places
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int, get_ints
from whence.ops.neural.window import Window, make_window
from whence.ops.registry import operators, plain_name
from whence.ops.traits import Trait
from whence.types import DType

POOL_OPS = operators(Trait.POOLS_WINDOWS) - operators(Trait.CHANNELS_LAST)


def lower_pool(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a pool."""
    if len(anchor.outputs) != 1:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' also returns positions")
    if anchor.op.startswith("Blocked"):
        return _lower_blocked(group, anchor, tile)
    return _lower_plain(group, anchor)


def _window(group: Group, anchor: Node, sizes: Sequence[int]) -> Window:
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
    window = _window(group, anchor, sizes)
    ceil_mode = bool(get_int(anchor.attrs, "ceil_mode", 0))
    if plain_name(anchor.op) == "AveragePool":
        counted = tuple(counted_limits(anchor, window, sizes))
        if any(map(is_symbolic, sizes)):
            micro = slide(group, anchor, tile, window.kernel, ceil_mode=ceil_mode, counted=counted)
        else:
            rows, columns = (_shares(window, axis, *counted[axis]) for axis in (0, 1))
            micro = slide(
                group, anchor, tile, window.kernel, ceil_mode=ceil_mode, shares=(rows, columns)
            )
    else:
        micro = slide(group, anchor, tile, window.kernel, fn=Fn.MAX, ceil_mode=ceil_mode)
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
    while the window passes.
    """
    source = anchor.first_input
    shape, dtype = group.shape(source), compute_type(group.dtype(source))
    window = _window(group, anchor, shape[2:])
    average = plain_name(anchor.op) == "AveragePool"
    fn, start = (
        (Fn.MAX, REDUCTIONS["ReduceMax"].start(dtype)) if anchor.op == "MaxPool" else (Fn.ADD, 0)
    )
    empty = Literal(float(start) if dtype.is_float else int(start), dtype)
    rows = OutputRows(group.shape(anchor.ref()))
    taps = [Var(f"k{axis}", taps) for axis, taps in enumerate(window.kernel)]
    sizes = shape[2:]
    places = read_places(window, rows.index[2:], taps)
    inside = are_within(places, ((0, size) for size in sizes))
    value = _prepared(anchor, group.elements().value(source, (*rows.index[:2], *places)))
    folds: list[Stmt] = [Accumulate("total", fn, select(inside, value, empty), rows.lane)]
    sums = Accumulator("total", empty, rows.lane)
    begins: list[Stmt] = [sums]
    counted: Expr = Literal(float(math.prod(window.kernel)), dtype)
    counts = are_within(places, counted_limits(anchor, window, sizes))
    if average and not isinstance(counts, Literal):
        # How many elements count differs from window to window.
        present = Accumulator("count", Literal(0.0, dtype), rows.lane)
        begins.append(present)
        folds.append(
            Accumulate(
                "count", Fn.ADD, select(counts, Literal(1.0, dtype), Literal(0.0, dtype)), rows.lane
            )
        )
        counted = apply(Fn.MAX, present.value, Literal(1.0, dtype))
    total: Expr = sums.value
    if average:
        total = apply(Fn.DIV, total, counted)
    if anchor.op == "LpPool":
        total = _rooted(anchor, total)
    return rows.kernel(
        group,
        *begins,
        *nested(taps, (rows.loop(*folds),)),
        rows.loop(*rows.stores(group, anchor, total)),
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
