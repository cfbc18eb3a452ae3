"""Functions of one value: rectifiers, sigmoids and their kin, softmax."""

from __future__ import annotations

from functools import partial

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.formulas import formula_exporter
from whence.frontends.tflite.export.units import RELU, RELU6, RELU_N1_TO_1, activation_of
from whence.frontends.tflite.schema import Option

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
    if call.number("alpha", 1.0) == 1.0:
        call.emit("ELU", [call.input(0)])
    else:
        steps = formula_exporter("Elu")
        assert steps is not None
        steps(call)


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
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": partial(_softmax, op="LOG_SOFTMAX"),
    "Softmax": partial(_softmax, op="SOFTMAX"),
}
