"""Functions of one value: rectifiers, sigmoids and their kin, softmax."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.units import RELU, RELU6, RELU_N1_TO_1, activation_of
from whence.frontends.tflite.schema import Option
from whence.types import DType, TensorType

_CLIPS = {RELU: "RELU", RELU6: "RELU6", RELU_N1_TO_1: "RELU_N1_TO_1"}


def _clip(call: ExportCall) -> None:
    known = _CLIPS.get(activation_of(call.graph, call.node))
    kind = call.output_type()
    if known is not None and (call.is_quantised or kind.dtype.is_float):
        call.emit(known, [call.input(0)])
        return
    bounds = [(op, index) for op, index in (("MAXIMUM", 1), ("MINIMUM", 2)) if call.has(index)]
    tensor = call.input(0)
    for position, (op, index) in enumerate(bounds):
        if position == len(bounds) - 1:
            call.emit(op, [tensor, call.input(index)])
        else:
            tensor = call.step(op, [tensor, call.input(index)], kind)
    if not bounds:
        call.emit_reshape(tensor, call.output_shape())


def _leaky_relu(call: ExportCall) -> None:
    call.emit("LEAKY_RELU", [call.input(0)], {"alpha": call.number("alpha", 0.01)})


def _gelu(call: ExportCall) -> None:
    approximate = call.text("approximate", "none") == "tanh"
    call.emit("GELU", [call.input(0)], {"approximate": approximate})


def _elu(call: ExportCall) -> None:
    alpha = call.number("alpha", 1.0)
    if alpha == 1.0:
        call.emit("ELU", [call.input(0)])
    else:
        call.emit("ADD", _elu_parts(call, alpha))


def _elu_parts(call: ExportCall, alpha: float) -> list[int]:
    """alpha · elu(min(x, 0)) and max(x, 0)"""
    kind = call.type(0)
    below = call.step("MINIMUM", [call.input(0), call.scalar(0, kind)], kind)
    scaled = [call.step("ELU", [below], kind), call.scalar(alpha, kind)]
    return [call.step("MUL", scaled, kind), call.step("RELU", [call.input(0)], kind)]


def _selu(call: ExportCall) -> None:
    kind, gamma = call.type(0), call.number("gamma", 1.0507009873554805)
    parts = _elu_parts(call, call.number("alpha", 1.6732632423543772))
    call.emit("MUL", [call.step("ADD", parts, kind), call.scalar(gamma, kind)])


def _hard_sigmoid(call: ExportCall) -> None:
    # max(0, min(1, alpha · x + beta))
    kind = call.type(0)
    scaled = call.step("MUL", [call.input(0), call.scalar(call.number("alpha", 0.2), kind)], kind)
    moved = call.step("ADD", [scaled, call.scalar(call.number("beta", 0.5), kind)], kind)
    call.emit("MINIMUM", [call.step("RELU", [moved], kind), call.scalar(1, kind)])


def _swish(call: ExportCall) -> None:
    kind, alpha = call.type(0), call.number("alpha", 1.0)
    inner = (
        call.input(0)
        if alpha == 1.0
        else call.step("MUL", [call.input(0), call.scalar(alpha, kind)], kind)
    )
    call.emit("MUL", [call.input(0), call.step("LOGISTIC", [inner], kind)])


def _mish(call: ExportCall) -> None:
    # x · tanh(log(1 + exp(x))) = x · n / (n + 2) with n = e · (e + 2), e = exp(min(x, 20))
    kind = call.type(0)
    e = call.step("EXP", [call.step("MINIMUM", [call.input(0), call.scalar(20, kind)], kind)], kind)
    n = call.step("MUL", [e, call.step("ADD", [e, call.scalar(2, kind)], kind)], kind)
    ratio = call.step("DIV", [n, call.step("ADD", [n, call.scalar(2, kind)], kind)], kind)
    call.emit("MUL", [call.input(0), ratio])


def _softsign(call: ExportCall) -> None:
    kind = call.type(0)
    size = call.step("ADD", [call.step("ABS", [call.input(0)], kind), call.scalar(1, kind)], kind)
    call.emit("DIV", [call.input(0), size])


def _thresholded(call: ExportCall) -> None:
    kind = call.type(0)
    above = call.step(
        "GREATER",
        [call.input(0), call.scalar(call.number("alpha", 1.0), kind)],
        TensorType(DType.BOOL, kind.shape),
    )
    call.emit("SELECT_V2", [above, call.input(0), call.const(np.zeros((), kind.dtype.numpy))])


def _softmax(call: ExportCall, op: str) -> None:
    """Along the last axis, with other axes brought there and back."""
    kind = call.type(0)
    rank = call.rank(0)
    axis = call.axis("axis", -1, rank)
    options: dict[str, Option] = {"beta": 1.0} if op == "SOFTMAX" else {}
    if axis == rank - 1:
        call.emit(op, [call.input(0)], options)
        return
    if call.is_quantised:
        call.unsupported("quantised, along another axis than the last")
    order = (*(each for each in range(rank) if each != axis), axis)
    transposed, inner = call.transposed(call.input(0), kind, order)
    made = call.step(op, [transposed], inner, options)
    call.emit("TRANSPOSE", [made, call.ints([order.index(each) for each in range(rank)])])


EXPORTS: Exports = {
    "Clip": _clip,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": partial(_softmax, op="LOG_SOFTMAX"),
    "Mish": _mish,
    "Selu": _selu,
    "Softmax": partial(_softmax, op="SOFTMAX"),
    "Softsign": _softsign,
    "Swish": _swish,
    "ThresholdedRelu": _thresholded,
}
