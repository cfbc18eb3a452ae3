"""Reductions over axes, running sums, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.schema import Option
from whence.types import DType, TensorType

_TAKEN_OUT = ({1, 2}, {3}, {0, 1, 2, 3})
"""Axes of rank 4 that onert can reduce and remove in one step: an image's, or its channels."""


def _axes(call: ExportCall) -> tuple[int, tuple[int, ...] | None]:
    """The tensor of axes, and the axes where they are known. No axes at all are all of them, unless
    the operator says otherwise.
    """
    rank = call.rank(0)
    known = call.value(1)
    if call.has(1) and known is None:
        return call.index_input(1), None
    listed = (
        tuple(int(axis) % max(rank, 1) for axis in known.reshape(-1)) if known is not None else ()
    )
    if not listed and not call.integer("noop_with_empty_axes"):
        listed = tuple(range(rank))
    return call.ints(listed), listed


def _reduction(call: ExportCall, op: str) -> None:
    axes, known = _axes(call)
    keep, version = bool(call.integer("keepdims", 1)), 2 if call.is_quantised else 1
    if op == "MEAN" and known is not None and not call.is_quantised and _is_large(call, known):
        _mean_of_means(call, known, keep)
        return
    if (
        call.is_circle
        and not keep
        and known is not None
        and call.rank(0) == 4
        and set(known) not in _TAKEN_OUT
        and not call.is_quantised
    ):
        kind = TensorType(call.output_type().dtype, call.reduced(0, known).shape)
        made = call.step(op, [call.input(0), axes], kind, {"keep_dims": True})
        call.emit_reshape(made, call.output_shape())
    else:
        call.emit(op, [call.input(0), axes], {"keep_dims": keep}, version=version)


_LARGE = 4096
"""More elements than this lose too much precision in a sequential sum, as runtimes do it."""


def _is_large(call: ExportCall, axes: Sequence[int]) -> bool:
    shape = call.type(0).static_shape
    return (
        shape is not None
        and len(axes) > 1
        and call.type(0).dtype is DType.F32
        and math.prod(shape[axis] for axis in axes) > _LARGE
    )


def _mean_of_means(call: ExportCall, axes: Sequence[int], keep: bool) -> None:
    """One axis after the other, the last ones first."""
    tensor, shape = call.input(0), list(call.shape(0))
    for axis in sorted(axes, reverse=True):
        inputs, options = [tensor, call.ints([axis])], {"keep_dims": True}
        if keep and axis == min(axes):
            call.emit("MEAN", inputs, options)
            return
        shape[axis] = 1
        tensor = call.step("MEAN", inputs, TensorType(DType.F32, tuple(shape)), options)
    call.emit_reshape(tensor, call.output_shape())


def _sum_of(call: ExportCall, each: str, then: str = "") -> None:
    """A sum of functions of the elements (`MUL` of an element by itself), and a function of it."""
    tensor = call.input(0)
    if then and not call.type(0).dtype.is_float:
        call.unsupported(f"a root or a logarithm of {call.type(0)}")
    if each:
        tensor = call.step(each, [tensor] * (2 if each == "MUL" else 1), call.type(0))
    inputs = [tensor, _axes(call)[0]]
    options: dict[str, Option] = {"keep_dims": bool(call.integer("keepdims", 1))}
    if then:
        call.emit(then, [call.step("SUM", inputs, call.output_type(), options)])
    else:
        call.emit("SUM", inputs, options)


def _log_sum_exp(call: ExportCall) -> None:
    """max + log Σ exp(x - max), which overflows nowhere."""
    axes, known = _axes(call)
    kind, keep = call.type(0), bool(call.integer("keepdims", 1))
    if known is None:
        call.unsupported("its axes are computed while the model runs")
    if not kind.dtype.is_float:
        call.unsupported(f"a logarithm of {kind}")
    reduced = call.reduced(0, known)
    top = call.step("REDUCE_MAX", [call.input(0), axes], reduced, {"keep_dims": True})
    small = call.step("EXP", [call.step("SUB", [call.input(0), top], kind)], kind)
    log = call.step("LOG", [call.step("SUM", [small, axes], reduced, {"keep_dims": True})], reduced)
    if keep:
        call.emit("ADD", [log, top])
    else:
        made = call.step("ADD", [log, top], reduced)
        call.emit_reshape(made, call.output_shape())


def _cumulative_sum(call: ExportCall) -> None:
    axis = call.integers(1, "axis")
    options: dict[str, Option] = {
        "exclusive": bool(call.integer("exclusive")),
        "reverse": bool(call.integer("reverse")),
    }
    call.emit("CUMSUM", [call.input(0), call.ints(axis[0])], options)


EXPORTS: Exports = {
    "CumSum": _cumulative_sum,
    "RealFourier2D": lambda call: call.emit("RFFT2D", [call.input(0), call.index_input(1)]),
    "ReduceL1": partial(_sum_of, each="ABS"),
    "ReduceL2": partial(_sum_of, each="MUL", then="SQRT"),
    "ReduceLogSum": partial(_sum_of, each="", then="LOG"),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": partial(_reduction, op="REDUCE_MAX"),
    "ReduceMean": partial(_reduction, op="MEAN"),
    "ReduceMin": partial(_reduction, op="REDUCE_MIN"),
    "ReduceProd": partial(_reduction, op="REDUCE_PROD"),
    "ReduceSum": partial(_reduction, op="SUM"),
    "ReduceSumSquare": partial(_sum_of, each="MUL"),
}
