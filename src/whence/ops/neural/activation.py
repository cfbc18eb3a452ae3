"""Activation functions on arrays, by name: what recurrent cells and whence's supernodes apply to
their sums.

They compute in the type of their argument, which is float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from whence.ops.neural.erf import erf

Function: TypeAlias = Callable[[np.ndarray, float, float], np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow at either end, and relatively exact where it is tiny."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay)).astype(x.dtype, copy=False)


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)) without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype, copy=False)


def gelu(x: np.ndarray) -> np.ndarray:
    """x · Φ(x), with the exact normal distribution."""
    return np.asarray(0.5 * x * (1 + erf(x * x.dtype.type(math.sqrt(0.5))))).astype(
        x.dtype, copy=False
    )


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh approximation of GELU."""
    return np.asarray(
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    ).astype(x.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of an array and two numbers, and the numbers it takes when the model gives
    none.
    """

    function: Function
    alpha: float | None = None
    """Default of the first number; `None` when the function does not use it."""
    beta: float | None = None
    """Default of the second number; `None` when the function does not use it."""

    def __call__(
        self, x: np.ndarray, alpha: float | None = None, beta: float | None = None
    ) -> np.ndarray:
        first = self.alpha if alpha is None else alpha
        second = self.beta if beta is None else beta
        y = self.function(x, 0.0 if first is None else first, 0.0 if second is None else second)
        return np.asarray(y).astype(x.dtype, copy=False)


ACTIVATIONS: Mapping[str, Activation] = {
    "Relu": Activation(lambda x, a, b: np.maximum(x, 0)),
    "Sigmoid": Activation(lambda x, a, b: sigmoid(x)),
    "Tanh": Activation(lambda x, a, b: np.tanh(x)),
    "Softplus": Activation(lambda x, a, b: softplus(x)),
    "Softsign": Activation(lambda x, a, b: x / (1 + np.abs(x))),
    "Affine": Activation(lambda x, a, b: a * x + b, alpha=1.0, beta=0.0),
    "LeakyRelu": Activation(lambda x, a, b: np.where(x >= 0, x, a * x), alpha=0.01),
    "ThresholdedRelu": Activation(lambda x, a, b: np.where(x > a, x, 0), alpha=1.0),
    "ScaledTanh": Activation(lambda x, a, b: a * np.tanh(b * x), alpha=1.0, beta=1.0),
    "HardSigmoid": Activation(lambda x, a, b: np.clip(a * x + b, 0, 1), alpha=0.2, beta=0.5),
    "Elu": Activation(
        lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), alpha=1.0
    ),
    "HardSwish": Activation(lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Swish": Activation(lambda x, a, b: x * sigmoid(a * x), alpha=1.0),
    "Mish": Activation(lambda x, a, b: x * np.tanh(softplus(x))),
    "Gelu": Activation(lambda x, a, b: gelu(x)),
    "GeluTanh": Activation(lambda x, a, b: gelu_tanh(x)),
    "Clip": Activation(
        lambda x, a, b: np.minimum(np.maximum(x, a), b), alpha=-math.inf, beta=math.inf
    ),
}
"""Every function whence knows by name. `GeluTanh` is ONNX's Gelu with `approximate="tanh"`; `Clip`
has alpha = min, beta = max.
"""
