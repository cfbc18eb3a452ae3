"""Activation functions as operators, computed in the working precision and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_str
from whence.ops.definition import Attrs, Call, Facts, OpClass, OpDef, Pattern, TypeQuery, Value
from whence.ops.formula import (
    Formula,
    Function,
    X,
    apply,
    evaluate,
    maximum,
    minimum,
    operations,
    parameter,
    parameters,
    sigmoid,
)
from whence.ops.neural.activation import ACTIVATIONS, FORMULAS, elu
from whence.ops.operand import UNARY, named
from whence.ops.operands.checks import demand_broadcast, demand_same_elements, shape_of
from whence.ops.precision import narrow, rounded_once, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import broadcast, same_type

_Function: TypeAlias = Callable[[np.ndarray, Attrs], Any]
_CLASSES = OpClass.ELEMENTWISE | OpClass.ACTIVATION


def _gelu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return ACTIVATIONS["Gelu" if get_str(attrs, "approximate", "none") == "none" else "GeluTanh"](x)


def _shrink(x: np.ndarray, attrs: Attrs) -> Any:
    limit, bias = get_float(attrs, "lambd", 0.5), get_float(attrs, "bias", 0.0)
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)).astype(x.dtype)


def _swiglu(call: Call) -> Value:
    gate, linear, alpha = tensor(call, 0), tensor(call, 1), get_float(call.attrs, "alpha", 1.0)
    if gate.shape != linear.shape:
        raise ModelError(
            f"the gate {list(gate.shape)} and the value {list(linear.shape)} must have one shape"
        )
    wide = widen(gate)
    return narrow(wide * sigmoid(alpha * wide) * widen(linear), gate.dtype)


def _prelu(call: Call) -> Value:
    x, slope = tensor(call, 0), tensor(call, 1)
    return narrow(np.where(x < 0, widen(x) * widen(slope), widen(x)), x.dtype)


def _operator(name: str, function: _Function, flops: int, **facts: Unpack[Facts]) -> OpDef:
    facts.setdefault("operands", UNARY)
    reference = rounded_once(function)
    return OpDef(name, Pattern.ELEMWISE, _CLASSES, same_type, reference, flops, **facts)


def activation(
    name: str, formula: Formula, flops: int | None = None, /, **facts: Unpack[Facts]
) -> OpDef:
    """An operator of one operand that computes a formula. Nothing else need be said of it: types,
    reference, kernels, fusion and cost follow.
    """
    defaults = parameters(formula)

    def function(x: np.ndarray, attrs: Attrs) -> np.ndarray:
        given = {key: get_float(attrs, key, default) for key, default in defaults.items()}
        return evaluate(formula, (x,), given)

    work = operations(formula) if flops is None else flops
    facts["formula"] = formula
    return _operator(name, function, work, **facts)


def _named(name: str, flops: int | None = None, **facts: Unpack[Facts]) -> OpDef:
    """One of the functions known by name."""
    return activation(name, FORMULAS[name], flops, **facts)


def _check_slopes(query: TypeQuery) -> None:
    demand_broadcast(query, 1, shape_of(query, 0), "input 1")
    demand_same_elements(query, 1, 0)


_SELU = parameter("gamma", 1.05070102214813232421875) * elu(
    parameter("alpha", 1.67326319217681884765625)
)
_CELU_ALPHA = parameter("alpha", 1.0)
_CELU = maximum(X, 0) + minimum(0, _CELU_ALPHA * apply(Function.EXPM1, X / _CELU_ALPHA))

OPS: tuple[OpDef, ...] = (
    _named("Relu", traits=Trait.EXACT | Trait.IDEMPOTENT | Trait.NOT_NEGATIVE),
    _named("LeakyRelu", 2),
    _named("ThresholdedRelu"),
    _named("Elu", 6),
    _named("Sigmoid", 6, traits=Trait.NOT_NEGATIVE),
    _named("HardSigmoid", 4, traits=Trait.NOT_NEGATIVE),
    _named("HardSwish", 5),
    _named("Swish", 7),
    _named("Mish", 14, costs_like="Mish"),
    _named("Softplus", 8, traits=Trait.NOT_NEGATIVE),
    _named("Softsign", 3, operands=named("input")),
    _named("Tanh", 6, operands=named("input")),
    _operator("Gelu", _gelu, 11, costs_like="Gelu"),
    activation("Selu", _SELU, 7),
    activation("Celu", _CELU, 8),
    _operator("Shrink", _shrink, 2, operands=named("input")),
    OpDef(
        "PRelu",
        Pattern.BROADCAST,
        _CLASSES,
        infer=same_type,
        reference=_prelu,
        flops=2,
        check=_check_slopes,
        operands=named("X", "slope"),
    ),
    OpDef(
        "SwiGLU",
        Pattern.BROADCAST,
        _CLASSES,
        infer=broadcast,
        reference=_swiglu,
        flops=8,
        operands=named("A", "B"),
        traits=Trait.SAME_SHAPE,
        costs_like="Sigmoid",
    ),
)
