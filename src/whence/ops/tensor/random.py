"""Operators that draw random numbers. A seed makes them repeatable; without one, two evaluations
differ.

The numbers come from NumPy's legacy generator, as those of the `onnx` package's own reference
implementation do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int, get_ints
from whence.ops.definition import Call, OpClass, OpDef, Reference, TypeQuery, Value
from whence.ops.operand import PARAMETER, named
from whence.ops.operands.checks import demand_one
from whence.ops.precision import narrow, number, tensor, widen
from whence.ops.tensor.cast import cast
from whence.ops.traits import Trait
from whence.ops.types.type_rules import target_dtype, tensor_type
from whence.types import DType, TensorType, ValueType


def _generator(call: Call) -> np.random.RandomState:
    seed = get_float(call.attrs, "seed", math.nan)
    # Seeds are 32 bits wide in NumPy; a model may hold any number.
    if math.isnan(seed):
        return np.random.RandomState()
    return np.random.RandomState(int(seed) & 0xFFFFFFFF)


def _dtype(call: Call, default: DType) -> DType:
    chosen = get_int(call.attrs, "dtype", 0)
    return target_dtype(call.op, chosen) if chosen else default


def _shape_and_dtype(call: Call) -> tuple[tuple[int, ...], DType]:
    """As the attributes say, or like input 0 for the operators that have one."""
    if not call.op.endswith("Like"):
        return get_ints(call.attrs, "shape"), _dtype(call, DType.F32)
    like = tensor(call, 0)
    return like.shape, _dtype(call, DType.of(like))


def _drawn(distribution: Callable[..., Any], first: str, second: str) -> Reference:
    """Numbers of a distribution with two parameters, which are 0 and 1 unless attributes say."""

    def reference(call: Call) -> Value:
        shape, dtype = _shape_and_dtype(call)
        numbers = get_float(call.attrs, first, 0.0), get_float(call.attrs, second, 1.0)
        return np.asarray(distribution(_generator(call), *numbers, shape)).astype(dtype.numpy)

    return reference


_normal = _drawn(np.random.RandomState.normal, "mean", "scale")
_uniform = _drawn(np.random.RandomState.uniform, "low", "high")


def _bernoulli(call: Call) -> Value:
    chances = tensor(call, 0)
    drawn = np.asarray(_generator(call).binomial(1, chances.astype(np.float64)))
    return cast(drawn, _dtype(call, DType.of(chances)))


def _multinomial(call: Call) -> Value:
    logits, count = tensor(call, 0).astype(np.float64), get_int(call.attrs, "sample_size", 1)
    if logits.ndim != 2:
        raise ModelError(f"input 0 must be a matrix, found rank {logits.ndim}")
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    points = _generator(call).uniform(size=(logits.shape[0], count)) * weights[:, -1:]
    # The class drawn is the first whose running weight exceeds the point.
    drawn = np.array(
        [np.searchsorted(row, at, side="right") for row, at in zip(weights, points, strict=True)]
    )
    return drawn.reshape(logits.shape[0], count).astype(_dtype(call, DType.I32).numpy)


def _dropout(call: Call) -> tuple[Value, Value]:
    x, share = tensor(call, 0), float(number(call, 1, 0.5))
    if not number(call, 2, False) or share == 0:
        return x, np.ones(x.shape, np.bool_)
    mask = np.asarray(_generator(call).uniform(0, 1.0, x.shape)) >= share
    return narrow(np.where(mask, widen(x) / (1 - share), 0), x.dtype), mask


def _dropout_type(query: TypeQuery) -> tuple[ValueType, ...]:
    data = tensor_type(query, 0)
    return data, TensorType(DType.BOOL, data.shape)


def _check_dropout(query: TypeQuery) -> None:
    demand_one(query, 1, "the ratio")
    demand_one(query, 2, "training_mode")


_random = partial(OpDef, classes=OpClass.RANDOM)
_drawn_like = partial(_random, operands=named("input"), traits=Trait.SHAPE_ONLY)
OPS: tuple[OpDef, ...] = (
    _random("RandomNormal", reference=_normal),
    _drawn_like("RandomNormalLike", reference=_normal),
    _random("RandomUniform", reference=_uniform),
    _drawn_like("RandomUniformLike", reference=_uniform),
    _random("Bernoulli", reference=_bernoulli, operands=named("input")),
    _random("Multinomial", reference=_multinomial, operands=named("input")),
    # Random only in training mode; a pass that knows it is inference turns it into an identity.
    _random(
        "Dropout",
        infer=_dropout_type,
        reference=_dropout,
        check=_check_dropout,
        operands=named("data", ratio=PARAMETER, training_mode=PARAMETER),
    ),
)
