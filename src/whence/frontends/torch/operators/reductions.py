"""Reductions along axes, and sorting."""

from __future__ import annotations

import math
from functools import partial

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _keep(call: AtenCall) -> dict[str, Attr]:
    return {"keepdims": int(bool(call.plain("keepdim")))}


def _reduce(call: AtenCall, op: str) -> Value:
    x, axes = call.promoted("self"), call.axes()
    if not axes:
        # A single number is its own sum, mean and maximum.
        return call.op("Identity", x)
    return call.emit(op, [x, call.numbers(*axes)], _keep(call))


def _extreme(call: AtenCall, reduce: str, position: str) -> Value:
    """The largest or smallest: of everything, of two tensors, or along an axis with its
    position.
    """
    x = call.ref("self")
    if "other" in call.args:
        op = "Max" if reduce == "ReduceMax" else "Min"
        return call.op(op, x, call.promoted("other"))
    if "dim" not in call.args:
        return call.op(reduce, x, call.numbers(*call.axes()), keepdims=0)
    axis, keep = call.axis(), _keep(call)
    value = call.emit(reduce, [x, call.numbers(axis)], keep)
    where = call.op(position, x, axis=axis, **keep)
    return [value, where]


def _position(call: AtenCall, op: str) -> Value:
    x = call.ref("self")
    if not call.has("dim"):
        if call.plain("keepdim"):
            call.unsupported("the position in everything, with all axes kept")
        flat = call.reshape(x, -1)
        return call.op(op, flat, axis=0, keepdims=0)
    axis = call.axis()
    return call.op(op, x, axis=axis, **_keep(call))


def _truth(call: AtenCall, op: str) -> Value:
    """Any or all: the largest or smallest of zeros and ones."""
    x = call.cast(call.cast(call.ref("self"), DType.BOOL), DType.I32)
    axes = call.axes()
    if not axes:
        return call.cast(x, DType.BOOL)
    return call.cast(call.emit(op, [x, call.numbers(*axes)], _keep(call)), DType.BOOL)


def _count(call: AtenCall, axes: tuple[int, ...]) -> int:
    dims = call.meta("self").shape
    if not all(isinstance(dims[axis], int) for axis in axes):
        call.unsupported("the spread over an axis of open size")
    return math.prod(dims[axis] for axis in axes)


def _variance(call: AtenCall) -> tuple[Ref, Ref]:
    """The variance and the mean."""
    x, axes, dtype = call.ref("self"), call.axes(), call.out_dtype
    where = call.numbers(*axes)
    mean = call.op("ReduceMean", x, where, keepdims=1)
    centred = call.op("Sub", x, mean)
    spread = call.emit("ReduceMean", [call.op("Mul", centred, centred), where], _keep(call))
    correction = _correction(call)
    if correction:
        count = _count(call, axes)
        factor = count / (count - correction) if count != correction else math.inf
        spread = call.op("Mul", spread, call.number(factor, dtype))
    if not _keep(call)["keepdims"]:
        mean = call.op("Squeeze", mean, where)
    return spread, mean


def _correction(call: AtenCall) -> float:
    if "unbiased" in call.args:
        return 1.0 if call.plain("unbiased") else 0.0
    return call.real("correction", 1.0)


def _norm(call: AtenCall) -> Value:
    """A vector norm: of order 1, 2 or infinity."""
    order = call.plain("ord" if "ord" in call.args else "p")
    order = 2.0 if order is None else float(order)
    ops = {1.0: "ReduceL1", 2.0: "ReduceL2", math.inf: "ReduceMax", -math.inf: "ReduceMin"}
    if order not in ops:
        call.unsupported(f"a norm of order {order:g}")
    x = call.promoted("self")
    x = call.op("Abs", x) if math.isinf(order) else x
    return call.emit(ops[order], [x, call.numbers(*call.axes())], _keep(call))


def _cumulative(call: AtenCall, op: str) -> Value:
    x = call.promoted("self")
    if call.rank("self") == 0:
        return call.op("Identity", x)
    return call.op(op, x, call.reshape(call.numbers(call.axis())))


def _largest(call: AtenCall, count: Ref, axis: int, largest: bool) -> list[Ref]:
    """Values in order, and where they stood; the smallest where not the largest."""
    attrs = {"axis": axis, "largest": int(largest), "sorted": 1}
    return call.emit("TopK", [call.ref("self"), count], attrs, outputs=2)


def _top(call: AtenCall) -> Value:
    axis = call.axis()
    return [*_largest(call, call.whole(call.args["k"]), axis, bool(call.plain("largest")))]


def _sorted(call: AtenCall) -> list[Ref]:
    axis = call.axis()
    every = call.op("Shape", call.ref("self"), start=axis, end=axis + 1)
    return _largest(call, every, axis, bool(call.plain("descending")))


MAPPINGS: Mappings = {
    "aten::mean": partial(_reduce, op="ReduceMean"),
    "aten::sum": partial(_reduce, op="ReduceSum"),
    "aten::prod": partial(_reduce, op="ReduceProd"),
    "aten::amax": partial(_reduce, op="ReduceMax"),
    "aten::amin": partial(_reduce, op="ReduceMin"),
    "aten::logsumexp": partial(_reduce, op="ReduceLogSumExp"),
    "aten::max": partial(_extreme, reduce="ReduceMax", position="ArgMax"),
    "aten::min": partial(_extreme, reduce="ReduceMin", position="ArgMin"),
    "aten::argmax": partial(_position, op="ArgMax"),
    "aten::argmin": partial(_position, op="ArgMin"),
    "aten::any": partial(_truth, op="ReduceMax"),
    "aten::all": partial(_truth, op="ReduceMin"),
    "aten::var": lambda call: _variance(call)[0],
    "aten::std": lambda call: call.op("Sqrt", _variance(call)[0]),
    "aten::var_mean": lambda call: list(_variance(call)),
    "aten::linalg_vector_norm": _norm,
    "aten::cumsum": partial(_cumulative, op="CumSum"),
    "aten::cumprod": partial(_cumulative, op="CumProd"),
    "aten::topk": _top,
    "aten::sort": lambda call: [*_sorted(call)],
    "aten::argsort": lambda call: _sorted(call)[1],
}
