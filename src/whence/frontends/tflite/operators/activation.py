"""Functions of one value: rectifiers, sigmoids, softmax, norms without parameters."""

from __future__ import annotations

from functools import partial

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.ops.definition import Attr
from whence.types import DType

_SMALLEST_NORM = 1e-6
"""What LiteRT divides by when a vector is shorter."""


def _plain(call: OperatorCall, op: str, **attrs: Attr) -> None:
    call.output(0, call.emit(op, [call.real(0)], attrs))


def _clipped(call: OperatorCall, low: float, high: float) -> None:
    call.output(0, call.clip(call.real(0), low, high))


def _leaky_relu(call: OperatorCall) -> None:
    call.output(0, call.op("LeakyRelu", call.real(0), alpha=call.number("alpha")))


def _gelu(call: OperatorCall) -> None:
    approximate = "tanh" if call.flag("approximate") else "none"
    call.output(0, call.op("Gelu", call.real(0), approximate=approximate))


def _softmax(call: OperatorCall) -> None:
    x, beta = call.real(0), call.number("beta", 1.0)
    if beta != 1.0:
        x = call.op("Mul", x, call.scalar(beta, DType.F32))
    call.output(0, call.op("Softmax", x, axis=-1))


def _l2_normalisation(call: OperatorCall) -> None:
    # x / max(|x|, ε), the length taken along the last axis
    x = call.real(0)
    length = call.op("ReduceL2", x, call.ints(-1), keepdims=1)
    length = call.op("Max", length, call.scalar(_SMALLEST_NORM, DType.F32))
    call.output(0, call.activate(call.op("Div", x, length)))


def _local_response(call: OperatorCall) -> None:
    """x / (bias + α·Σ x²)^β, the sum over `radius` channels to either side. ONNX's has channels
    second, and takes the mean of the squares.
    """
    if call.rank(0) != 4:
        call.fail(f"its input has {call.rank(0)} dimensions, not 4")
    radius = call.integer("radius")
    if radius < 0:
        call.fail(f"its radius is {radius}")
    size = 2 * radius + 1
    attrs: dict[str, Attr] = {
        "size": size,
        "alpha": call.number("alpha") * size,
        "beta": call.number("beta"),
        "bias": call.number("bias"),
    }
    transposed = call.op("Transpose", call.real(0), perm=(0, 3, 1, 2))
    call.output(0, call.op("Transpose", call.emit("LRN", [transposed], attrs), perm=(0, 2, 3, 1)))


MAPPINGS: Mappings = {
    "ELU": partial(_plain, op="Elu", alpha=1.0),
    "GELU": _gelu,
    "L2_NORMALIZATION": _l2_normalisation,
    "LEAKY_RELU": _leaky_relu,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": partial(_plain, op="LogSoftmax", axis=-1),
    "RELU6": partial(_clipped, low=0, high=6),
    "RELU_0_TO_1": partial(_clipped, low=0, high=1),
    "RELU_N1_TO_1": partial(_clipped, low=-1, high=1),
    "SOFTMAX": _softmax,
}
