"""Activation functions by name: what recurrent cells and whence's supernodes apply to their sums,
and what most operators of these names compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whence.ops.formula import (
    Formula,
    Function,
    X,
    apply,
    evaluate,
    limited,
    maximum,
    minimum,
    parameter,
    parameters,
    select,
)


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of an array and two numbers, alpha and beta."""

    formula: Formula

    @property
    def alpha(self) -> float | None:
        """Default of the first number; `None` when the function does not use it."""
        return parameters(self.formula).get("alpha")

    @property
    def beta(self) -> float | None:
        """Default of the second number; `None` when the function does not use it."""
        return parameters(self.formula).get("beta")

    def __call__(
        self, x: np.ndarray, alpha: float | None = None, beta: float | None = None
    ) -> np.ndarray:
        """In the type of `x`, which is float32 or float64."""
        numbers = {"alpha": alpha, "beta": beta}
        given = {name: value for name, value in numbers.items() if value is not None}
        return evaluate(self.formula, (x,), given).astype(x.dtype, copy=False)


def _alpha(default: float) -> Formula:
    return parameter("alpha", default)


def _beta(default: float) -> Formula:
    return parameter("beta", default)


def elu(alpha: Formula) -> Formula:
    return select(X > 0, X, alpha * apply(Function.EXPM1, minimum(X, 0)))


# x · Φ(x), with the normal distribution
_GELU = 0.5 * X * (1 + apply(Function.ERF, X * math.sqrt(0.5)))
_CUBIC = math.sqrt(2 / math.pi) * (X + 0.044715 * (X * (X * X)))

FORMULAS: Mapping[str, Formula] = {
    "Relu": maximum(X, 0),
    "Sigmoid": apply(Function.SIGMOID, X),
    "Tanh": apply(Function.TANH, X),
    "Softplus": apply(Function.SOFTPLUS, X),
    "Softsign": X / (1 + apply(Function.ABS, X)),
    "Affine": X * _alpha(1.0) + _beta(0.0),
    "LeakyRelu": select(X < 0, X * _alpha(0.01), X),
    "ThresholdedRelu": select(_alpha(1.0) < X, X, 0),
    "ScaledTanh": _alpha(1.0) * apply(Function.TANH, X * _beta(1.0)),
    "HardSigmoid": limited(X * _alpha(0.2) + _beta(0.5), 0, 1),
    "Elu": elu(_alpha(1.0)),
    "HardSwish": X * limited(X * (1 / 6) + 0.5, 0, 1),
    "Swish": X * apply(Function.SIGMOID, X * _alpha(1.0)),
    "Mish": X * apply(Function.TANH, apply(Function.SOFTPLUS, X)),
    "Gelu": _GELU,
    "GeluTanh": 0.5 * X * (1 + apply(Function.TANH, _CUBIC)),
    "Clip": limited(X, _alpha(-math.inf), _beta(math.inf)),
}
ACTIVATIONS: Mapping[str, Activation] = {
    name: Activation(formula) for name, formula in FORMULAS.items()
}
"""Every function whence knows by name. `GeluTanh` is ONNX's Gelu with `approximate="tanh"`; `Clip`
has alpha = min, beta = max.
"""
