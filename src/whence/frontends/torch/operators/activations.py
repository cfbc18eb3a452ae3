"""Activations, and functions of one element."""

from __future__ import annotations

import math
from functools import partial

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.frontends.torch.operators.arithmetic import truncated
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _plain(call: AtenCall, op: str, **attrs: Attr) -> Value:
    """The same function; whole numbers are made real where PyTorch's result is."""
    return call.emit(op, [call.cast(call.subject, call.out_dtype)], attrs)


def _exact(call: AtenCall, op: str) -> Value:
    """The same function of elements of any type, with a result of a type of its own."""
    return call.op(op, call.ref("self"))


def _gelu(call: AtenCall) -> Value:
    approximate = call.plain("approximate") or "none"
    return call.op("Gelu", call.ref("self"), approximate=approximate)


def _rounding(call: AtenCall, op: str) -> Value:
    is_real = call.dtype("self").is_float
    return call.op(op if is_real else "Identity", call.ref("self"))


def _round(call: AtenCall) -> Value:
    if call.args.get("decimals"):
        call.unsupported("rounding to decimals")
    return _rounding(call, op="Round")


def _trunc(call: AtenCall) -> Value:
    x = call.ref("self")
    if not call.dtype("self").is_float:
        return call.op("Identity", x)
    return truncated(call, x)


def _scaled_log(call: AtenCall, base: float) -> Value:
    scale = call.number(1 / math.log(base), call.out_dtype)
    return call.op("Mul", call.op("Log", call.promoted("self")), scale)


def _log1p(call: AtenCall) -> Value:
    return call.op("Log", call.op("Add", call.promoted("self"), call.number(1, call.out_dtype)))


def _expm1(call: AtenCall) -> Value:
    x = call.promoted("self")
    # exp(x) - 1 = Elu(x) for x <= 0, where the digits of a plain difference would be lost.
    below = call.op("Elu", x, alpha=1.0)
    above = call.op("Sub", call.op("Exp", x), call.number(1, call.out_dtype))
    positive = call.op("Greater", x, call.number(0, call.out_dtype))
    return call.op("Where", positive, above, below)


def _exp2(call: AtenCall) -> Value:
    return call.op("Pow", call.number(2, call.out_dtype), call.promoted("self"))


def _square(call: AtenCall) -> Value:
    x = call.ref("self")
    return call.op("Mul", x, x)


def _clip(call: AtenCall, low: float, high: float) -> Ref:
    dtype = call.dtype("self")
    return call.op("Clip", call.ref("self"), call.number(low, dtype), call.number(high, dtype))


def _clamp(call: AtenCall) -> Value:
    """With numbers or tensors as limits."""
    x = call.promoted("self")
    scalars = all(call.meta(name) is None or call.rank(name) == 0 for name in ("min", "max"))
    limits = [call.promoted(name) if call.has(name) else None for name in ("min", "max")]
    if scalars:
        return call.op("Clip", x, *limits)
    low, high = limits
    if low is not None:
        x = call.op("Max", x, low)
    if high is not None:
        x = call.op("Min", x, high)
    return x


def _clamp_one(call: AtenCall, name: str) -> Value:
    return call.op("Max" if name == "min" else "Min", call.promoted("self"), call.promoted(name))


def _leaky_relu(call: AtenCall) -> Value:
    return call.op("LeakyRelu", call.ref("self"), alpha=call.real("negative_slope", 0.01))


def _elu(call: AtenCall) -> Value:
    if call.real("scale", 1.0) != 1.0 or call.real("input_scale", 1.0) != 1.0:
        call.unsupported("an Elu with scales")
    return call.op("Elu", call.ref("self"), alpha=call.real("alpha", 1.0))


def _softplus(call: AtenCall) -> Value:
    """Linear beyond a threshold, as PyTorch has it."""
    x, dtype = call.ref("self"), call.out_dtype
    beta, threshold = call.real("beta", 1.0), call.real("threshold", 20.0)
    if beta == 1.0 and threshold >= 15.0 and dtype is not DType.F64:
        # log(1 + exp(x)) is x itself there, in float32.
        return call.op("Softplus", x)
    steep = call.op("Mul", x, call.number(beta, dtype))
    soft = call.op("Div", call.op("Softplus", steep), call.number(beta, dtype))
    beyond = call.op("Greater", steep, call.number(threshold, dtype))
    return call.op("Where", beyond, x, soft)


def _log_sigmoid(call: AtenCall) -> Value:
    negative = call.op("Neg", call.ref("self"))
    return call.alone(call.op("Neg", call.op("Softplus", negative)))


def _prelu(call: AtenCall) -> Value:
    x, weight = call.ref("self"), call.ref("weight")
    rank = call.rank("self")
    if call.rank("weight") == 1 and rank > 2:
        weight = call.reshape(weight, -1, *[1] * (rank - 2))
    return call.op("PRelu", x, weight)


def _glu(call: AtenCall) -> Value:
    axis = call.axis()
    halves = call.emit("Split", [call.ref("self")], {"axis": axis, "num_outputs": 2}, outputs=2)
    return call.op("Mul", halves[0], call.op("Sigmoid", halves[1]))


def _softmax(call: AtenCall, op: str) -> Value:
    rank = call.rank("self")
    if rank == 0:
        call.unsupported("a softmax of a single number")
    return call.op(op, call.promoted("self"), axis=call.axis("dim", rank))


def _not(call: AtenCall) -> Value:
    op = "Not" if call.dtype("self") is DType.BOOL else "BitwiseNot"
    return call.op(op, call.ref("self"))


_ALIKE = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp",
    "HardSwish", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sign", "Sin",
    "Sinh", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
"""What both call the same, but for capital letters."""

MAPPINGS: Mappings = {
    **{f"aten::{op.lower()}": partial(_plain, op=op) for op in _ALIKE},
    "aten::silu": partial(_plain, op="Swish"),
    "aten::sgn": partial(_plain, op="Sign"),
    "aten::isnan": partial(_exact, op="IsNaN"),
    "aten::isinf": partial(_exact, op="IsInf"),
    "aten::floor": partial(_rounding, op="Floor"),
    "aten::ceil": partial(_rounding, op="Ceil"),
    "aten::round": _round,
    "aten::trunc": _trunc,
    "aten::rsqrt": lambda call: call.op("Reciprocal", call.op("Sqrt", call.promoted("self"))),
    "aten::log2": partial(_scaled_log, base=2),
    "aten::log10": partial(_scaled_log, base=10),
    "aten::log1p": _log1p,
    "aten::expm1": _expm1,
    "aten::exp2": _exp2,
    "aten::square": _square,
    "aten::gelu": _gelu,
    "aten::hardtanh": lambda call: _clip(
        call, call.real("min_val", -1.0), call.real("max_val", 1.0)
    ),
    "aten::relu6": partial(_clip, low=0.0, high=6.0),
    "aten::clamp": _clamp,
    "aten::clamp_min": partial(_clamp_one, name="min"),
    "aten::clamp_max": partial(_clamp_one, name="max"),
    "aten::leaky_relu": _leaky_relu,
    "aten::elu": _elu,
    "aten::celu": lambda call: call.op("Celu", call.ref("self"), alpha=call.real("alpha", 1.0)),
    "aten::softplus": _softplus,
    "aten::log_sigmoid": _log_sigmoid,
    "aten::log_sigmoid_forward": _log_sigmoid,
    "aten::prelu": _prelu,
    "aten::_prelu_kernel": _prelu,
    "aten::hardsigmoid": partial(_plain, op="HardSigmoid", alpha=1 / 6, beta=0.5),
    "aten::glu": _glu,
    "aten::softmax": partial(_softmax, op="Softmax"),
    "aten::_softmax": partial(_softmax, op="Softmax"),
    "aten::_safe_softmax": partial(_softmax, op="Softmax"),
    "aten::log_softmax": partial(_softmax, op="LogSoftmax"),
    "aten::_log_softmax": partial(_softmax, op="LogSoftmax"),
    "aten::bitwise_not": _not,
}
