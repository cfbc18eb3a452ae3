"""The activation functions as operators. Each is computed in the working precision and rounded
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_str
from whence.ops.definition import Attrs, Call, Facts, OpClass, OpDef, Pattern, Value
from whence.ops.neural.activation import ACTIVATIONS, gelu, gelu_tanh, sigmoid
from whence.ops.operand import X, named
from whence.ops.precision import narrow, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import broadcast, same_type

_Function: TypeAlias = Callable[[np.ndarray, Attrs], Any]
_CLASSES = OpClass.ELEMENTWISE | OpClass.ACTIVATION


def _gelu(x: np.ndarray, attrs: Attrs) -> Any:
    approximate = get_str(attrs, "approximate", "none")
    if approximate not in {"none", "tanh"}:
        raise ModelError(f"Gelu: approximate must be none or tanh, found {approximate!r}")
    return gelu(x) if approximate == "none" else gelu_tanh(x)


def _selu(x: np.ndarray, attrs: Attrs) -> Any:
    alpha, gamma = (
        get_float(attrs, "alpha", 1.67326319217681884765625),
        get_float(attrs, "gamma", 1.05070102214813232421875),
    )
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: np.ndarray, attrs: Attrs) -> Any:
    alpha = get_float(attrs, "alpha", 1.0)
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def _shrink(x: np.ndarray, attrs: Attrs) -> Any:
    limit, bias = get_float(attrs, "lambd", 0.5), get_float(attrs, "bias", 0.0)
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)).astype(x.dtype)


def _swiglu(call: Call) -> tuple[Value]:
    gate, linear, alpha = tensor(call, 0), tensor(call, 1), get_float(call.attrs, "alpha", 1.0)
    if gate.shape != linear.shape:
        raise ModelError(
            f"{call.op}: the gate {list(gate.shape)} and the value {list(linear.shape)} must have"
            " one shape"
        )
    wide = widen(gate)
    return (narrow(wide * sigmoid(alpha * wide) * widen(linear), gate.dtype),)


def _prelu(call: Call) -> tuple[Value]:
    x, slope = tensor(call, 0), tensor(call, 1)
    return (narrow(np.where(x < 0, widen(x) * widen(slope), widen(x)), x.dtype),)


def _activation(name: str, function: _Function, flops: int, **facts: Unpack[Facts]) -> OpDef:
    def reference(call: Call) -> tuple[Value]:
        x = tensor(call, 0)
        return (narrow(np.asarray(function(widen(x), call.attrs)), x.dtype),)

    facts.setdefault("operands", X)
    return OpDef(name, Pattern.ELEMWISE, _CLASSES, same_type, reference, flops, **facts)


def _named(name: str, flops: int = 1, **facts: Unpack[Facts]) -> OpDef:
    """One of the functions known by name, with its numbers in the attributes `alpha` and `beta`."""
    chosen = ACTIVATIONS[name]

    def function(x: np.ndarray, attrs: Attrs) -> np.ndarray:
        alpha = None if chosen.alpha is None else get_float(attrs, "alpha", chosen.alpha)
        beta = None if chosen.beta is None else get_float(attrs, "beta", chosen.beta)
        return chosen(x, alpha, beta)

    return _activation(name, function, flops, **facts)


OPS: tuple[OpDef, ...] = (
    _named("Relu", traits=Trait.EXACT | Trait.IDEMPOTENT | Trait.NOT_NEGATIVE | Trait.BOUNDS),
    _named("LeakyRelu", 2),
    _named("ThresholdedRelu"),
    _named("Elu", 6),
    _named("Sigmoid", 6, traits=Trait.NOT_NEGATIVE),
    _named("HardSigmoid", 4, traits=Trait.NOT_NEGATIVE),
    _named("HardSwish", 5),
    _named("Swish", 7),
    _named("Mish", 14),
    _named("Softplus", 8, traits=Trait.NOT_NEGATIVE),
    _named("Softsign", 3, operands=named("input")),
    _named("Tanh", 6, operands=named("input")),
    _activation("Gelu", _gelu, 11),
    _activation("Selu", _selu, 7),
    _activation("Celu", _celu, 8),
    _activation("Shrink", _shrink, 2, operands=named("input")),
    OpDef(
        "PRelu",
        Pattern.BROADCAST,
        _CLASSES,
        same_type,
        _prelu,
        flops=2,
        operands=named("X", "slope"),
    ),
    OpDef(
        "SwiGLU",
        Pattern.BROADCAST,
        _CLASSES,
        broadcast,
        _swiglu,
        flops=8,
        operands=named("A", "B"),
        traits=Trait.SAME_SHAPE,
    ),
)
