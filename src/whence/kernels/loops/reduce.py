"""Groups anchored at a reduction: what is fused before it is pulled into the loop, what is fused
after it is applied to the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.elements import Indices
from whence.kernels.expressions import apply, cast, identity, select
from whence.kernels.group import Group
from whence.kernels.ir import Expr, Fn, Kernel, Literal
from whence.kernels.loops.row_nest import RowNest
from whence.kernels.rules.elementwise import div, like, magnitude
from whence.types import DType


@dataclass(frozen=True, slots=True)
class Reduction:
    """`finish(fold(before(x) ...), count)`."""

    fn: Fn
    before: Callable[[Expr], Expr] = lambda x: x
    finish: Callable[[Expr, int], Expr] = lambda total, _: total


def _square(x: Expr) -> Expr:
    return apply(Fn.MUL, x, x)


def _divide(total: Expr, count: int) -> Expr:
    return div(total, like(count, total))


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction(Fn.ADD),
    "ReduceMean": Reduction(Fn.ADD, finish=_divide),
    "ReduceProd": Reduction(Fn.MUL),
    "ReduceMax": Reduction(Fn.MAX),
    "ReduceMin": Reduction(Fn.MIN),
    "ReduceL1": Reduction(Fn.ADD, before=magnitude),
    "ReduceL2": Reduction(Fn.ADD, before=_square, finish=lambda total, _: apply(Fn.SQRT, total)),
    "ReduceSumSquare": Reduction(Fn.ADD, before=_square),
    "ReduceLogSum": Reduction(Fn.ADD, finish=lambda total, _: apply(Fn.LOG, total)),
    "ReduceLogSumExp": Reduction(Fn.ADD),
    "GlobalAveragePool": Reduction(Fn.ADD, finish=_divide),
    "GlobalMaxPool": Reduction(Fn.MAX),
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
    if reduction.fn in (Fn.MAX, Fn.MIN) and row.dtype is DType.F32:
        total = _extreme(row, reduction.fn)
    else:
        # A mean is there where the sum is beyond its type.
        is_wide = row.dtype.is_float or row.dtype.bits == 64 or reduction.finish is not _divide
        dtype = row.dtype if is_wide else DType.I64
        total = row.fold(
            "total",
            reduction.fn,
            identity(reduction.fn, dtype).value,
            lambda index: cast(reduction.before(row.x(index)), dtype),
            dtype,
        )
    return reduction.finish(total, row.count)


def _extreme(row: RowNest, fn: Fn) -> Expr:
    """The largest or smallest element by integers in the order of the numbers, which compare
    faster; a NaN wins.
    """
    nan = identity(Fn.MIN if fn is Fn.MAX else Fn.MAX, DType.I32)

    def ordered(index: Indices) -> Expr:
        x = row.x(index)
        return select(apply(Fn.ISNAN, x), nan, apply(Fn.ORDER, x, dtype=DType.I32))

    best = row.fold("best", fn, identity(fn, DType.I32).value, ordered, DType.I32)
    found = apply(Fn.UNORDER, best, dtype=DType.F32)
    # Of no elements at all there is an infinity.
    return found if row.count else identity(fn, DType.F32)


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
