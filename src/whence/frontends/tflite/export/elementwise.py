"""Arithmetic, comparison and logic, element by element; activations and softmax."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports, cast_options
from whence.frontends.tflite.export.formulas import formula_exporter
from whence.frontends.tflite.export.units import NONE, activation_of
from whence.frontends.tflite.operators.elementwise import BINARY, UNARY
from whence.frontends.tflite.schema import Option, activation_names
from whence.types import DType, TensorType


def _plain(call: ExportCall, op: str) -> None:
    call.emit(op, call.inputs())


def _folded(call: ExportCall, op: str) -> None:
    """An operator on any number of operands, as a chain on two."""
    tensors = call.inputs()
    if len(tensors) == 1:
        call.emit_reshape(tensors[0], call.output_shape())
        return
    while len(tensors) > 2:
        tensors[:2] = [call.step(op, tensors[:2], call.output_type())]
    call.emit(op, tensors)


def _mean(call: ExportCall) -> None:
    tensors = call.inputs()
    while len(tensors) > 1:
        tensors[:2] = [call.step("ADD", tensors[:2], call.output_type())]
    count = call.scalar(len(call.node.inputs), call.output_type())
    call.emit("DIV", [tensors[0], count])


def _multiply(call: ExportCall) -> None:
    if (
        call.ref(0) == call.ref(1)
        and not call.is_quantised
        and not call.activation
        and call.output_type().dtype is DType.F32
    ):
        call.emit("SQUARE", [call.input(0)])
    else:
        _plain(call, "MUL")


def _reciprocal(call: ExportCall) -> None:
    call.emit("DIV", [call.scalar(1, call.type(0)), call.input(0)])


def _remainder(call: ExportCall) -> None:
    if call.integer("fmod"):
        # a - b · trunc(a / b), the truncation by way of the absolute value
        kind = call.output_type()
        if kind.dtype is not DType.F32:
            call.unsupported("the remainder with the sign of the dividend, of whole numbers")
        quotient = call.step("DIV", [call.input(0), call.input(1)], kind)
        size = call.step("FLOOR", [call.step("ABS", [quotient], kind)], kind)
        whole = call.step("MUL", [size, call.step("SIGN", [quotient], kind)], kind)
        call.emit("SUB", [call.input(0), call.step("MUL", [whole, call.input(1)], kind)])
    else:
        _plain(call, "FLOOR_MOD")


def _cast(call: ExportCall) -> None:
    call.emit("CAST", [call.input(0)], cast_options(call.type(0).dtype, call.output_type().dtype))


def _where(call: ExportCall) -> None:
    shapes = {call.type(index).shape for index in range(3)} | {call.output_type().shape}
    if len(shapes) == 1 and None not in shapes:
        _plain(call, "SELECT")
    elif (
        call.is_circle
        and call.output_type().static_shape is not None
        and (call.value(0) is not None or call.type(0).shape == call.output_shape())
    ):
        # onert does not broadcast all shapes that can be, and conditions not at all.
        call.emit("SELECT", [_broadcast(call, index) for index in range(3)])
    else:
        _plain(call, "SELECT_V2")


def _broadcast(call: ExportCall, index: int) -> int:
    """An operand in the shape of the result."""
    shape, kind = call.output_shape(), call.type(index)
    value = call.value(index)
    if kind.shape == shape:
        return call.input(index)
    if value is not None:
        return call.const(
            np.broadcast_to(value, shape),
            codes=call.codes_of_tensor(call.input(index)),
        )
    return call.step(
        "BROADCAST_TO",
        [call.input(index), call.ints(shape)],
        TensorType(kind.dtype, shape),
        version=2,
    )


def _sign(call: ExportCall) -> None:
    call.emit("SIGN", [call.input(0)], version=1 if call.type(0).dtype.is_float else 2)


def _shift(call: ExportCall) -> None:
    if call.text("direction", "") != "RIGHT":
        call.unsupported("a shift to the left")
    _plain(call, "RIGHT_SHIFT")


def _clip(call: ExportCall) -> None:
    known = activation_of(call.graph, call.node)
    kind = call.output_type()
    if known != NONE and (call.is_quantised or kind.dtype.is_float):
        call.emit(activation_names()[known], [call.input(0)])
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
    **{op: partial(_plain, op=name) for name, op in {**UNARY, **BINARY}.items()},
    "BitCast": partial(_plain, op="BITCAST"),
    "BitShift": _shift,
    "Cast": _cast,
    "Clip": _clip,
    "Elu": _elu,
    "Gelu": _gelu,
    "IsNaN": lambda call: call.emit("NOT_EQUAL", [call.input(0), call.input(0)]),
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": partial(_softmax, op="LOG_SOFTMAX"),
    "Max": partial(_folded, op="MAXIMUM"),
    "Mean": _mean,
    "Min": partial(_folded, op="MINIMUM"),
    "Mod": _remainder,
    "Mul": _multiply,
    "Reciprocal": _reciprocal,
    "Sign": _sign,
    "Softmax": partial(_softmax, op="SOFTMAX"),
    "Sum": partial(_folded, op="ADD"),
    "Where": _where,
    "Xor": partial(_plain, op="NOT_EQUAL"),
}
