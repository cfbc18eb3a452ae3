"""Arithmetic, comparison and logic, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from whence.frontends.floor_division import floor_quotient, floor_remainder
from whence.frontends.tflite.elementwise_names import BINARY, UNARY
from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.moving import move
from whence.frontends.tflite.quantisation import FIXED_POINT
from whence.frontends.tflite.records import TensorRecord
from whence.graph.node import Ref
from whence.types import DType


def _unary(call: OperatorCall, op: str) -> None:
    call.output(0, call.op(op, call.real(0)))


def _binary(call: OperatorCall, op: str) -> None:
    call.output(0, call.activate(call.op(op, call.real(0), call.real(1))))


def _divided(call: OperatorCall, divide: Callable[[OperatorCall, Ref, Ref], Ref]) -> None:
    call.output(0, divide(call, call.real(0), call.real(1)))


def _extreme(call: OperatorCall, op: str) -> None:
    """The larger or smaller of two, on codes if both have one scale: these have the same order."""
    move(call, partial(call.op, op), (0, 1))


def _not_equal(call: OperatorCall) -> None:
    call.output(0, call.op("Not", call.op("Equal", call.real(0), call.real(1))))


def _square(call: OperatorCall) -> None:
    x = call.real(0)
    call.output(0, call.op("Mul", x, x))


def _squared_difference(call: OperatorCall) -> None:
    difference = call.op("Sub", call.real(0), call.real(1))
    call.output(0, call.op("Mul", difference, difference))


def _sum(call: OperatorCall) -> None:
    call.output(0, call.emit("Sum", [call.real(index) for index in range(call.n_inputs)]))


def _right_shift(call: OperatorCall) -> None:
    """Arithmetic shift: x >> s = ⌊x / 2^s⌋ for signed numbers, s below the number of bits."""
    x, s = call.needed(0), call.needed(1)
    dtype = call.tensor_type_of(x).dtype
    bottom, top = call.scalar(0, dtype), call.scalar(dtype.bits - 1, dtype)
    shift = call.op("Min", call.op("Max", s, bottom), top)
    if dtype in (DType.U8, DType.U16, DType.U32, DType.U64):
        call.output_codes(0, call.op("BitShift", x, shift, direction="RIGHT"))
        return
    wide = call.cast(x, DType.I64)
    power = call.op("Pow", call.scalar(2, DType.I64), call.cast(shift, DType.I64))
    whole = call.op("Div", call.op("Sub", wide, call.op("Mod", wide, power)), power)
    call.output_codes(0, call.cast(whole, dtype))


def _atan2(call: OperatorCall) -> None:
    """atan(y / x), plus or minus π where x is negative, towards the sign of y."""
    y, x = call.real(0), call.real(1)
    dtype = call.tensor_type_of(y).dtype
    zero, half, pi = (call.scalar(number, dtype) for number in (0, np.pi / 2, np.pi))
    y_negative, x_negative = call.op("Less", y, zero), call.op("Less", x, zero)
    signed_half = call.op("Where", y_negative, call.op("Neg", half), half)
    on_axis = call.op("Where", call.op("Equal", y, zero), zero, signed_half)
    base = call.op(
        "Where", call.op("Equal", x, zero), on_axis, call.op("Atan", call.op("Div", y, x))
    )
    towards = call.op("Where", y_negative, call.op("Neg", pi), pi)
    call.output(0, call.op("Add", base, call.op("Where", x_negative, towards, zero)))


def _cast(call: OperatorCall) -> None:
    """Codes are converted as they are, whatever they mean; of complex numbers the real part is."""
    x = call.needed(0)
    if call.type(0).dtype is DType.C64 and call.output_type(0).dtype is not DType.C64:
        x = call.op("RealPart", x)
    call.output_codes(0, call.cast(x, call.output_type(0).dtype))


def _dequantise(call: OperatorCall) -> None:
    tensor = call.tensor(0)
    if tensor.type == "INT32" and tensor.quantisation is not None:
        found = call.bias(0)
        assert found is not None
        call.output(0, found)
    else:
        call.output(0, call.cast(call.real(0), call.output_type(0).dtype))


def _quantise(call: OperatorCall) -> None:
    """From reals, or from codes of another meaning. Codes of 32 bits are codes to this operator
    alone; to any other they are plain numbers.
    """
    scales = [_single_scale(call, tensor) for tensor in (call.tensor(0), call.output_tensor(0))]
    source, result = call.tensor(0), call.output_tensor(0)
    x = call.real(0)
    if source.type == "INT32" and scales[0] is not None:
        x = call.op("DequantizeLinear", call.needed(0), *(call.const(each) for each in scales[0]))
    elif not call.tensor_type_of(x).dtype.is_float:
        call.fail(f"its input is {call.type(0)} without a scale: what its codes mean is not known")
    if result.type != "INT32":
        if call.output_quantisation(0) is None:
            call.fail(f"its output is {result.type} without a scale")
        call.output(0, x)
        return
    if scales[1] is None:
        call.fail("its output is INT32 without a scale")
    scale, zero = (call.const(each) for each in scales[1])
    if call.quantisation(0) is not None or scales[0] is not None:
        made = call.op("QuantizeLinear", x, scale, zero, arithmetic=FIXED_POINT)
    else:
        steps = call.op("Round", call.op("Div", x, scale))
        made = call.op("Add", call.cast(steps, DType.I32), zero)
    call.output_codes(0, made)


def _single_scale(call: OperatorCall, tensor: TensorRecord) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point of a tensor of 32-bit codes; `None` for other tensors."""
    found = tensor.quantisation
    if tensor.type != "INT32" or found is None or not len(found.scales):
        return None
    if len(found.scales) != 1 or not found.scales[0] > 0:
        call.unsupported(f"codes of 32 bits with the scales {found.scales.tolist()}")
    return found.scales.reshape(()), found.zero_points.astype(np.int32).reshape(())


def _fake_quantise(call: OperatorCall) -> None:
    """To the nearest of the values that codes of `num_bits` can have between `min` and `max`, which
    move so that zero is one of them.
    """
    low, high, bits = call.number("min"), call.number("max"), call.integer("num_bits")
    if not low < high or not 2 <= bits <= 16:
        call.fail(f"its range {low} to {high} in {bits} bits is empty")
    first, last = (1 if call.flag("narrow_range") else 0), (1 << bits) - 1
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(last - first))
    from_low = np.float32(first) - np.float32(low) / scale
    zero = (
        first
        if from_low < first
        else last
        if from_low > last
        else int(np.floor(from_low + np.float32(0.5)))
    )
    bottom, top = (float(np.float32(end - zero) * scale) for end in (first, last))
    offset, step = call.scalar(bottom, DType.F32), call.scalar(float(scale), DType.F32)
    shifted = call.op("Sub", call.clip(call.real(0), bottom, top), offset)
    half = call.scalar(0.5, DType.F32)
    steps = call.op("Floor", call.op("Add", call.op("Div", shifted, step), half))
    call.output(0, call.op("Add", call.op("Mul", steps, step), offset))


MAPPINGS: Mappings = {
    **{name: partial(_unary, op=op) for name, op in UNARY.items()},
    **{name: partial(_binary, op=op) for name, op in BINARY.items()},
    "ADD_N": _sum,
    "ATAN2": _atan2,
    "CAST": _cast,
    "DEQUANTIZE": _dequantise,
    "FAKE_QUANT": _fake_quantise,
    "FLOOR_DIV": partial(_divided, divide=floor_quotient),
    "FLOOR_MOD": partial(_divided, divide=floor_remainder),
    "MAXIMUM": partial(_extreme, op="Max"),
    "MINIMUM": partial(_extreme, op="Min"),
    "NOT_EQUAL": _not_equal,
    "QUANTIZE": _quantise,
    "RIGHT_SHIFT": _right_shift,
    "RSQRT": lambda call: call.output(0, call.op("Reciprocal", call.op("Sqrt", call.real(0)))),
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
}
