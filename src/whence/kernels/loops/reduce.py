"""Groups anchored at a reduction: what is fused before it is pulled into the loop, what is fused
after it is applied to the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.elements import Indices
from whence.kernels.expressions import apply, cast, select
from whence.kernels.group import Group
from whence.kernels.ir import Expr, Fn, Kernel, Literal
from whence.kernels.loops.row_nest import RowNest
from whence.kernels.rules.elementwise import magnitude
from whence.ops.quantised.quantise import integer_range
from whence.types import DType


@dataclass(frozen=True, slots=True)
class Reduction:
    """`finish(fold(start, before(x) ...), count)`."""

    fn: Fn
    start: Callable[[DType], float | int]
    before: Callable[[Expr], Expr] = lambda x: x
    finish: Callable[[Expr, int], Expr] = lambda total, _: total


def lowest(dtype: DType) -> float | int:
    """What a maximum starts from."""
    if dtype.is_float:
        return -math.inf
    return 0 if dtype is DType.BOOL else integer_range(dtype)[0]


def highest(dtype: DType) -> float | int:
    """What a minimum starts from."""
    if dtype.is_float:
        return math.inf
    return 1 if dtype is DType.BOOL else integer_range(dtype)[1]


def _square(x: Expr) -> Expr:
    return apply(Fn.MUL, x, x)


def _divide(total: Expr, count: int) -> Expr:
    is_float = total.dtype.is_float and not is_symbolic(count)
    return apply(Fn.DIV, total, Literal(float(count) if is_float else count, total.dtype))


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction(Fn.ADD, lambda _: 0),
    "ReduceMean": Reduction(Fn.ADD, lambda _: 0, finish=_divide),
    "ReduceProd": Reduction(Fn.MUL, lambda _: 1),
    "ReduceMax": Reduction(Fn.MAX, lowest),
    "ReduceMin": Reduction(Fn.MIN, highest),
    "ReduceL1": Reduction(Fn.ADD, lambda _: 0, before=magnitude),
    "ReduceL2": Reduction(
        Fn.ADD, lambda _: 0, before=_square, finish=lambda total, _: apply(Fn.SQRT, total)
    ),
    "ReduceSumSquare": Reduction(Fn.ADD, lambda _: 0, before=_square),
    "ReduceLogSum": Reduction(Fn.ADD, lambda _: 0, finish=lambda total, _: apply(Fn.LOG, total)),
    "ReduceLogSumExp": Reduction(Fn.ADD, lambda _: 0),
    "GlobalAveragePool": Reduction(Fn.ADD, lambda _: 0, finish=_divide),
    "GlobalMaxPool": Reduction(Fn.MAX, lowest),
}


def reduced_axes(group: Group, node: Node) -> tuple[int, ...]:
    """Which axes of the input the node reduces."""
    source = node.first_input
    rank = len(group.shape(source))
    if node.op.startswith("Global"):
        return tuple(range(2, rank))
    given = node.operand("axes")
    values = None if given is None else group.graph.const_value(given)
    if given is not None and values is None:
        raise UnsupportedError(f"{node.op} '{node.name}': axes are not constant")
    axes = () if values is None else tuple(sorted(int(axis) % rank for axis in values.reshape(-1)))
    if axes or node.attrs.get("noop_with_empty_axes"):
        return axes
    return tuple(range(rank))


def lower_reduce(group: Group, anchor: Node) -> Kernel:
    """A kernel whose work items are outputs of the reduction, or ranges of them."""
    source = anchor.first_input
    shape = group.shape(source)
    axes = reduced_axes(group, anchor)
    if len(group.outputs) != 1:
        raise UnsupportedError(
            f"group '{group.name}' exposes more than the result of its reduction"
        )
    if 0 in shape and len(axes) > 1:
        # Nothing to divide into dimensions.
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' of no elements")
    row = RowNest(group, anchor, shape, axes)
    total = (
        _log_sum_exp(row) if anchor.op == "ReduceLogSumExp" else _folded(row, REDUCTIONS[anchor.op])
    )
    return row.finish_numbers(group.stores(anchor, total, row.row_number))


def _folded(row: RowNest, reduction: Reduction) -> Expr:
    start = reduction.start(row.dtype)
    if reduction.fn in (Fn.MAX, Fn.MIN) and row.dtype is DType.F32:
        total = _extreme(row, reduction.fn)
    else:
        is_float, is_mean = row.dtype.is_float, reduction.finish is _divide
        # A mean is there where the sum is beyond its type.
        dtype = DType.I64 if is_mean and not is_float and row.dtype.bits < 64 else row.dtype
        total = row.fold(
            "total",
            reduction.fn,
            float(start) if is_float else int(start),
            lambda index: cast(reduction.before(row.x(index)), dtype),
            dtype,
        )
    return reduction.finish(total, row.count)


def _extreme(row: RowNest, fn: Fn) -> Expr:
    """The largest or smallest element by integers in the order of the numbers, which compare
    faster; a NaN wins.
    """
    nan = Literal(highest(DType.I32) if fn is Fn.MAX else lowest(DType.I32), DType.I32)
    start = lowest(DType.I32) if fn is Fn.MAX else highest(DType.I32)

    def ordered(index: Indices) -> Expr:
        x = row.x(index)
        return select(apply(Fn.ISNAN, x), nan, apply(Fn.ORDER, x, dtype=DType.I32))

    best = row.fold("best", fn, start, ordered, DType.I32)
    found = apply(Fn.UNORDER, best, dtype=DType.F32)
    # Of no elements at all there is an infinity.
    return found if row.count else Literal(-math.inf if fn is Fn.MAX else math.inf, DType.F32)


def _log_sum_exp(row: RowNest) -> Expr:
    # max + log Σ exp(x - max), where the maximum is a number; it is what there is when it is
    # infinite
    best = row.hold("top", row.fold("best", Fn.MAX, -math.inf, row.x))
    zero, limit = Literal(0.0, row.dtype), Literal(math.inf, row.dtype)
    shift = row.hold("shift", select(apply(Fn.LT, apply(Fn.ABS, best), limit), best, zero))
    total = row.fold(
        "total", Fn.ADD, 0.0, lambda index: apply(Fn.EXP, apply(Fn.SUB, row.x(index), shift))
    )
    return apply(Fn.ADD, apply(Fn.LOG, total), shift)
