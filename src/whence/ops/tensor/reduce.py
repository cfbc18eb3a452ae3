"""Reductions over axes, and the running sums and products along one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import (
    AttributeKind,
    Call,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
    count,
)
from whence.ops.operand import PARAMETER, named
from whence.ops.operands.checks import axis_in, demand_one, shape_of
from whence.ops.precision import narrow, number, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import (
    axis_of,
    const_ints,
    normalise_axes,
    normalise_axis,
    reduce,
    tensor_type,
)
from whence.types import DType, TensorType, ValueType

_Axes: TypeAlias = tuple[int, ...]
_Reducer: TypeAlias = Callable[[np.ndarray, _Axes, bool], Any]


def reduction_axes(call: Call, rank: int) -> _Axes:
    """The axes of a reduction: input 1, or all, or none with `noop_with_empty_axes`."""
    given = optional_tensor(call, 1)
    if given is None or given.size == 0:
        return () if get_int(call.attrs, "noop_with_empty_axes", 0) else tuple(range(rank))
    return normalise_axes(call.op, (int(axis) for axis in given.reshape(-1)), rank)


def total(x: np.ndarray, axes: _Axes, keep: bool) -> Any:
    """The sum in x's own type; whole numbers wrap around. A long sum of single precision is exact
    but for its last rounding.
    """
    if x.dtype == np.float32:
        return np.sum(x, axis=axes, keepdims=keep, dtype=np.float64).astype(np.float32)
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def mean(x: np.ndarray, axes: _Axes, keep: bool) -> Any:
    """The mean in x's own type; whole numbers truncate towards zero."""
    count = math.prod(x.shape[axis] for axis in axes)
    if x.dtype.kind not in "iu":
        return total(x, axes, keep) / np.asarray(count, x.dtype)
    return np.trunc(np.sum(x, axis=axes, keepdims=keep, dtype=np.int64) / np.float64(max(count, 1)))


def log_sum_exp(x: np.ndarray, axes: _Axes, keep: bool) -> Any:
    """log Σ e^x with the largest term taken out first, so that nothing overflows."""
    if x.dtype.kind in "iu":
        x = x.astype(np.float64)
    peak = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0).astype(x.dtype)
    summed = np.log(np.sum(np.exp(x - peak), axis=axes, keepdims=True)) + peak
    return summed if keep else np.squeeze(summed, axis=axes)


def largest(x: np.ndarray, axes: _Axes, keep: bool) -> Any:
    return np.max(x, axis=axes, keepdims=keep, initial=limit_of(x.dtype, lowest=True))


def _smallest(x: np.ndarray, axes: _Axes, keep: bool) -> Any:
    return np.min(x, axis=axes, keepdims=keep, initial=limit_of(x.dtype, lowest=False))


def limit_of(dtype: np.dtype[Any], lowest: bool) -> Any:
    """What the largest (or smallest) of no values at all is."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if lowest else info.max
    if dtype.kind == "b":
        return not lowest
    return -np.inf if lowest else np.inf


def _work(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """One operation for each element read."""
    return count(query.types[0])


def _reduction(name: str, reducer: _Reducer, traits: Trait = Trait.NONE) -> OpDef:
    def reference(call: Call) -> Value:
        x = tensor(call, 0)
        axes = reduction_axes(call, x.ndim)
        return narrow(
            np.asarray(reducer(widen(x), axes, bool(get_int(call.attrs, "keepdims", 1)))), x.dtype
        )

    return OpDef(
        name,
        Pattern.COMM_REDUCE,
        OpClass.REDUCE,
        reduce,
        reference,
        _work,
        operands=named("data", axes=PARAMETER),
        traits=traits,
    )


def _arg_type(query: TypeQuery) -> TensorType:
    data, keep = tensor_type(query, 0), bool(get_int(query.attrs, "keepdims", 1))
    if data.shape is None:
        return TensorType(DType.I64)
    axis = axis_of(query, len(data.shape))
    return TensorType(
        DType.I64, data.shape[:axis] + ((1,) if keep else ()) + data.shape[axis + 1 :]
    )


def _arg(name: str, find: Callable[..., Any]) -> OpDef:
    def reference(call: Call) -> Value:
        x, keep = tensor(call, 0), bool(get_int(call.attrs, "keepdims", 1))
        axis = axis_of(call, x.ndim)
        if x.size == 0 and x.shape[axis] == 0 and x.shape.count(0) > 1:
            index = np.empty_like(x, shape=x.shape[:axis] + (1,) * keep + x.shape[axis + 1 :])
        elif get_int(call.attrs, "select_last_index", 0):
            index = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis, keepdims=keep)
        else:
            index = find(x, axis=axis, keepdims=keep)
        return np.asarray(index).astype(np.int64)

    return OpDef(
        name,
        Pattern.COMM_REDUCE,
        OpClass.REDUCE,
        _arg_type,
        reference,
        _work,
        operands=named("data"),
    )


def accumulate(
    x: np.ndarray, axis: int, ufunc: np.ufunc, *, exclusive: bool, reverse: bool
) -> np.ndarray:
    """Running result of `ufunc` along `axis`. Exclusive: each place holds the result of those
    before it, the first the neutral element.
    """
    x = np.flip(x, axis) if reverse else x
    wide = widen(x)
    if exclusive and x.shape[axis]:
        first = np.full_like(np.take(wide, [0], axis), ufunc.identity)
        wide = np.concatenate([first, np.take(wide, range(x.shape[axis] - 1), axis)], axis)
    result = narrow(ufunc.accumulate(wide, axis, dtype=wide.dtype), x.dtype)
    return np.ascontiguousarray(np.flip(result, axis)) if reverse else result


def _running_type(query: TypeQuery) -> TensorType:
    x = tensor_type(query, 0)
    if x.shape == ():
        raise ModelError(f"{x} has no axis")
    return x


def _check_running(query: TypeQuery) -> None:
    demand_one(query, 1, "the axis")
    for axis in const_ints(query, 1) or ():
        axis_in(axis, shape_of(query, 0))


def _accumulation(name: str, ufunc: np.ufunc) -> OpDef:
    def reference(call: Call) -> Value:
        x = tensor(call, 0)
        axis = normalise_axis(call.op, int(number(call, 1)), x.ndim)
        exclusive = bool(get_int(call.attrs, "exclusive", 0))
        reverse = bool(get_int(call.attrs, "reverse", 0))
        return accumulate(x, axis, ufunc, exclusive=exclusive, reverse=reverse)

    return OpDef(
        name,
        infer=_running_type,
        reference=reference,
        operands=named("x", axis=PARAMETER),
        attributes={"exclusive": AttributeKind.INT, "reverse": AttributeKind.INT},
        check=_check_running,
    )


OPS: tuple[OpDef, ...] = (
    _reduction("ReduceSum", total, Trait.SUMS),
    _reduction("ReduceMean", mean, Trait.SUMS),
    _reduction("ReduceMax", largest, Trait.SELECTS | Trait.COMPARES | Trait.EXACT),
    _reduction("ReduceMin", _smallest, Trait.SELECTS | Trait.COMPARES | Trait.EXACT),
    _reduction(
        "ReduceProd", lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)
    ),
    _reduction("ReduceL1", lambda x, axes, keep: total(np.abs(x), axes, keep)),
    _reduction("ReduceL2", lambda x, axes, keep: np.sqrt(total(x * x, axes, keep))),
    _reduction("ReduceSumSquare", lambda x, axes, keep: total(x * x, axes, keep)),
    _reduction("ReduceLogSum", lambda x, axes, keep: np.log(total(x, axes, keep))),
    _reduction("ReduceLogSumExp", log_sum_exp),
    _arg("ArgMax", np.argmax),
    _arg("ArgMin", np.argmin),
    _accumulation("CumSum", np.add),
    _accumulation("CumProd", np.multiply),
)
