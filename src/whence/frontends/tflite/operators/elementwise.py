"""Arithmetic, comparison and logic, element by element; activations, and norms along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from whence.frontends.floor_division import floor_quotient, floor_remainder
from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.quantisation import FIXED_POINT
from whence.frontends.tflite.records import TensorRecord
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType

SMALLEST_NORM = 1e-6
"""What LiteRT divides by when a vector is shorter."""
UNARY: Mapping[str, str] = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COMPLEX_ABS": "ComplexAbs",
    "COS": "Cos",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish",
    "IMAG": "ImaginaryPart",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid",
    "NEG": "Neg",
    "REAL": "RealPart",
    "RELU": "Relu",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
    "TANH": "Tanh",
}
BINARY: Mapping[str, str] = {
    "ADD": "Add",
    "BITWISE_XOR": "BitwiseXor",
    "DIV": "Div",
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "MUL": "Mul",
    "POW": "Pow",
    "PRELU": "PRelu",
    "SUB": "Sub",
}
"""Operators that the file and the graph both have, on one operand or two and without options: read
and written by name.
"""


def _of_one(call: OperatorCall, make: Callable[[OperatorCall, Ref], Ref]) -> None:
    """The output is what `make` makes of the input in real numbers."""
    call.output(0, call.activate(make(call, call.real(0))))


def _of_two(call: OperatorCall, make: Callable[[OperatorCall, Ref, Ref], Ref]) -> None:
    """The output is what `make` makes of both inputs in real numbers."""
    call.output(0, call.activate(make(call, call.real(0), call.real(1))))


def _named(call: OperatorCall, *inputs: Ref, op: str, **attrs: Attr) -> Ref:
    return call.emit(op, inputs, attrs)


def _extreme(call: OperatorCall, op: str) -> None:
    """The larger or smaller of two, on codes if both have one scale: these have the same order."""
    call.move(partial(call.op, op), (0, 1))


def _squared_difference(call: OperatorCall, a: Ref, b: Ref) -> Ref:
    difference = call.op("Sub", a, b)
    return call.op("Mul", difference, difference)


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


def _atan2(call: OperatorCall, y: Ref, x: Ref) -> Ref:
    """atan(y / x), plus or minus π where x is negative, towards the sign of y."""
    dtype = call.tensor_type_of(y).dtype
    zero, half, pi = (call.scalar(number, dtype) for number in (0, np.pi / 2, np.pi))
    y_negative, x_negative = call.op("Less", y, zero), call.op("Less", x, zero)
    signed_half = call.op("Where", y_negative, call.op("Neg", half), half)
    on_axis = call.op("Where", call.op("Equal", y, zero), zero, signed_half)
    base = call.op(
        "Where", call.op("Equal", x, zero), on_axis, call.op("Atan", call.op("Div", y, x))
    )
    towards = call.op("Where", y_negative, call.op("Neg", pi), pi)
    return call.op("Add", base, call.op("Where", x_negative, towards, zero))


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
    zero = int(np.clip(np.floor(from_low + np.float32(0.5)), first, last))
    bottom, top = (float(np.float32(end - zero) * scale) for end in (first, last))
    offset, step = call.scalar(bottom, DType.F32), call.scalar(float(scale), DType.F32)
    shifted = call.op("Sub", call.clip(call.real(0), bottom, top), offset)
    half = call.scalar(0.5, DType.F32)
    steps = call.op("Floor", call.op("Add", call.op("Div", shifted, step), half))
    call.output(0, call.op("Add", call.op("Mul", steps, step), offset))


def _softmax(call: OperatorCall, x: Ref) -> Ref:
    beta = call.number("beta", 1.0)
    if beta != 1.0:
        x = call.op("Mul", x, call.scalar(beta, DType.F32))
    return call.op("Softmax", x, axis=-1)


def _l2_normalisation(call: OperatorCall, x: Ref) -> Ref:
    # x / max(|x|, ε), the length taken along the last axis
    length = call.op("ReduceL2", x, call.ints(-1), keepdims=1)
    length = call.op("Max", length, call.scalar(SMALLEST_NORM, DType.F32))
    return call.op("Div", x, length)


def _local_response(call: OperatorCall, x: Ref) -> Ref:
    """x / (bias + α·Σ x²)^β, the sum over `radius` channels to either side. ONNX's has channels
    second, and takes the mean of the squares.
    """
    if call.rank(0) != 4:
        call.fail(f"its input has {call.rank(0)} dimensions, not 4")
    radius = call.integer("radius")
    if radius < 0:
        call.fail(f"its radius is {radius}")
    size = 2 * radius + 1
    alpha, beta, bias = (call.number(option) for option in ("alpha", "beta", "bias"))
    x = call.op("Transpose", x, perm=(0, 3, 1, 2))
    x = call.op("LRN", x, size=size, alpha=alpha * size, beta=beta, bias=bias)
    return call.op("Transpose", x, perm=(0, 2, 3, 1))


_OF_ONE: Mapping[str, Callable[[OperatorCall, Ref], Ref]] = {
    **{name: partial(_named, op=op) for name, op in UNARY.items()},
    "ELU": partial(_named, op="Elu", alpha=1.0),
    "GELU": lambda call, x: call.op(
        "Gelu", x, approximate="tanh" if call.flag("approximate") else "none"
    ),
    "L2_NORMALIZATION": _l2_normalisation,
    "LEAKY_RELU": lambda call, x: call.op("LeakyRelu", x, alpha=call.number("alpha")),
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": partial(_named, op="LogSoftmax", axis=-1),
    "RELU6": lambda call, x: call.clip(x, 0, 6),
    "RELU_0_TO_1": lambda call, x: call.clip(x, 0, 1),
    "RELU_N1_TO_1": lambda call, x: call.clip(x, -1, 1),
    "RSQRT": lambda call, x: call.op("Reciprocal", call.op("Sqrt", x)),
    "SOFTMAX": _softmax,
    "SQUARE": lambda call, x: call.op("Mul", x, x),
}
_OF_TWO: Mapping[str, Callable[[OperatorCall, Ref, Ref], Ref]] = {
    **{name: partial(_named, op=op) for name, op in BINARY.items()},
    "ATAN2": _atan2,
    "FLOOR_DIV": floor_quotient,
    "FLOOR_MOD": floor_remainder,
    "NOT_EQUAL": lambda call, a, b: call.op("Not", call.op("Equal", a, b)),
    "SQUARED_DIFFERENCE": _squared_difference,
}
MAPPINGS: Mappings = {
    **{name: partial(_of_one, make=make) for name, make in _OF_ONE.items()},
    **{name: partial(_of_two, make=make) for name, make in _OF_TWO.items()},
    "ADD_N": _sum,
    "CAST": _cast,
    "DEQUANTIZE": _dequantise,
    "FAKE_QUANT": _fake_quantise,
    "MAXIMUM": partial(_extreme, op="Max"),
    "MINIMUM": partial(_extreme, op="Min"),
    "QUANTIZE": _quantise,
    "RIGHT_SHIFT": _right_shift,
}
