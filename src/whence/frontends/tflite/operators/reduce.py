"""Reductions over axes, running sums, the places of extremes, and Fourier transforms."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def axes_of(call: OperatorCall) -> Ref:
    """Input 1, a number or a list of them, as the list that canonical reductions take."""
    known = call.constant_codes(1)
    if known is not None:
        return call.ints(*call.numbers(1, "axes"))
    axes = call.cast(call.needed(1), DType.I64)
    return axes if call.rank(1) == 1 else call.op("Reshape", axes, call.ints(-1))


def _attrs(call: OperatorCall) -> dict[str, Attr]:
    # An empty list of axes reduces nothing here.
    return {"keepdims": int(call.flag("keep_dims")), "noop_with_empty_axes": 1}


def _reduction(call: OperatorCall, op: str) -> None:
    call.output(0, call.emit(op, [call.real(0), axes_of(call)], _attrs(call)))


def _extreme(call: OperatorCall, op: str) -> None:
    """The largest or smallest: codes are ordered like what they mean."""
    nothing = _extreme_of_nothing(call, op)
    if nothing is not None:
        call.output_constant(0, nothing)
    else:
        call.move(lambda x: call.emit(op, [x, axes_of(call)], _attrs(call)))


def _extreme_of_nothing(call: OperatorCall, op: str) -> np.ndarray | None:
    """What LiteRT has for the extreme over an axis of size 0: the finite end of the type, where
    canonical operators have an infinity. `None` when there is no such axis.
    """
    kind, axes = call.type(0), call.constant_codes(1)
    shape = kind.static_shape
    if shape is None or axes is None or kind.dtype is not DType.F32:
        return None
    rank = len(shape)
    reduced = {int(axis) % rank for axis in axes.reshape(-1) if -rank <= axis < rank}
    if not any(shape[axis] == 0 for axis in reduced):
        return None
    keep = call.flag("keep_dims")
    made = [
        1 if axis in reduced else size
        for axis, size in enumerate(shape)
        if keep or axis not in reduced
    ]
    limits = np.finfo(np.float32)
    return np.full(made, limits.min if op == "ReduceMax" else limits.max, np.float32)


def _logical(call: OperatorCall, op: str) -> None:
    """Any is the largest of truth values, all the smallest."""
    # Unsigned, so that the largest of none is 0: false.
    numbers = call.cast(call.needed(0), DType.U8)
    call.output(0, call.cast(call.emit(op, [numbers, axes_of(call)], _attrs(call)), DType.BOOL))


def _axis(call: OperatorCall) -> int:
    axes = call.numbers(1, "axes")
    if len(axes) != 1:
        call.fail(f"it has {len(axes)} axes, not one")
    return axes[0]


def _arg(call: OperatorCall, op: str) -> None:
    # Codes are ordered like what they mean, so their extremes are in the same places.
    found = call.op(op, call.needed(0), axis=_axis(call), keepdims=0)
    call.output(0, call.cast(found, call.output_type(0).dtype))


def _cumulative_sum(call: OperatorCall) -> None:
    flags = {option: int(call.flag(option)) for option in ("exclusive", "reverse")}
    call.output(0, call.op("CumSum", call.real(0), call.scalar(_axis(call), DType.I64), **flags))


MAPPINGS: Mappings = {
    "ARG_MAX": partial(_arg, op="ArgMax"),
    "ARG_MIN": partial(_arg, op="ArgMin"),
    "CUMSUM": _cumulative_sum,
    "MEAN": partial(_reduction, op="ReduceMean"),
    "REDUCE_ALL": partial(_logical, op="ReduceMin"),
    "REDUCE_ANY": partial(_logical, op="ReduceMax"),
    "REDUCE_MAX": partial(_extreme, op="ReduceMax"),
    "REDUCE_MIN": partial(_extreme, op="ReduceMin"),
    "REDUCE_PROD": partial(_reduction, op="ReduceProd"),
    "RFFT2D": lambda call: call.output(0, call.op("RealFourier2D", call.real(0), call.whole(1))),
    "SUM": partial(_reduction, op="ReduceSum"),
}
