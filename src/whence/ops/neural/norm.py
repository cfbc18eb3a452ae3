"""Normalisations, and the softmax family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int, get_ints
from whence.ops.definition import (
    AttributeKind,
    Attrs,
    Call,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
)
from whence.ops.operand import UNARY, named
from whence.ops.operands.checks import along, demand_reals
from whence.ops.precision import narrow, optional_tensor, rounded_once, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import batch_normalisation
from whence.ops.types.type_rules import same_type, tensor_type
from whence.types import DType, TensorType

_DEFAULT_EPSILON = 1e-5


def _epsilon(call: Call) -> float:
    return get_float(call.attrs, "epsilon", _DEFAULT_EPSILON)


def _channels(vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A vector over axis 1 so that it broadcasts against `x`, in the working type of `x`."""
    return vector.astype(widen(x[:0]).dtype, copy=False).reshape(-1, *(1,) * max(x.ndim - 2, 0))


def _batch_normalisation(call: Call) -> tuple[Value, ...]:
    x, scale, bias, mean, variance = (tensor(call, index) for index in range(5))
    if any(part.shape != x.shape[1:2] for part in (scale, bias, mean, variance)):
        found = ", ".join(str(list(part.shape)) for part in (scale, bias, mean, variance))
        raise ModelError(
            f"BatchNormalization of {list(x.shape)} needs one number per channel, found {found}"
        )
    wide = widen(x)
    results: list[np.ndarray] = []
    if get_int(call.attrs, "training_mode", 0):
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        momentum = get_float(call.attrs, "momentum", 0.9)
        running = [widen(mean), widen(variance)]
        current = [wide.mean(axis=axes), wide.var(axis=axes)]
        results = [
            narrow(old * momentum + new * (1 - momentum), mean.dtype)
            for old, new in zip(running, current, strict=True)
        ]
        mean, variance = current
    factor = widen(scale) / np.sqrt(widen(variance) + _epsilon(call))
    shift = widen(bias) - widen(mean) * factor
    y = wide * _channels(factor, x)
    y += _channels(shift, x)
    return (narrow(y, x.dtype), *results)


def standardise(
    x: np.ndarray, axes: Sequence[int], epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and the reciprocal root."""
    mean = x.mean(axis=tuple(axes), keepdims=True)
    centred = x - mean
    variance = np.square(centred).mean(axis=tuple(axes), keepdims=True)
    inverse = (1 / np.sqrt(variance + epsilon)).astype(x.dtype, copy=False)
    centred *= inverse
    return centred, mean, inverse


def _group_normalisation(call: Call) -> Value:
    """Of an InstanceNormalization, each channel is a group."""
    x, scale, bias = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    groups = get_int(call.attrs, "num_groups", x.shape[1])
    grouped = widen(x).reshape(x.shape[0], groups, x.shape[1] // max(groups, 1), *x.shape[2:])
    y = standardise(grouped, range(2, grouped.ndim), _epsilon(call))[0].reshape(x.shape)
    y *= _channels(scale, x)
    y += _channels(bias, x)
    return narrow(y, x.dtype)


def _trailing_axes(call: Call, x: np.ndarray) -> range:
    return range(get_int(call.attrs, "axis", -1) % max(x.ndim, 1), x.ndim)


def _layer_normalisation(call: Call) -> tuple[Value, ...]:
    x, scale, bias = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    y, mean, inverse = standardise(widen(x), _trailing_axes(call, x), _epsilon(call))
    y *= widen(scale)
    if bias is not None:
        y += widen(bias)
    stash = DType(get_int(call.attrs, "stash_type", DType.F32)).numpy
    return (narrow(y, x.dtype), narrow(mean, stash), narrow(inverse, stash))


def _rms_normalisation(call: Call) -> Value:
    x, scale = tensor(call, 0), tensor(call, 1)
    wide = widen(x)
    power = np.square(wide).mean(axis=tuple(_trailing_axes(call, x)), keepdims=True)
    y = wide * (1 / np.sqrt(power + _epsilon(call))).astype(wide.dtype, copy=False)
    y *= widen(scale)
    return narrow(y, scale.dtype)


def _like_scale(query: TypeQuery) -> TensorType:
    """The shape of what is normalised, and the elements of what it is scaled by."""
    x, scale = tensor_type(query, 0), tensor_type(query, 1)
    return replace(x, dtype=scale.dtype)


@rounded_once
def _lp_normalisation(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    axis = get_int(attrs, "axis", -1)
    if get_int(attrs, "p", 2) == 1:
        norm = np.abs(x).sum(axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(x).sum(axis=axis, keepdims=True))
    # A vector of zeros stays a vector of zeros.
    return np.asarray(x / np.where(norm == 0, norm.dtype.type(1), norm))


@rounded_once
def _mean_variance_normalisation(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    axes = get_ints(attrs, "axes", (0, 2, 3))
    centred = x - x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=axes, keepdims=True))
    return np.asarray(centred / (deviation + x.dtype.type(1e-9)))


@rounded_once
def _local_response_normalisation(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    size, channels = get_int(attrs, "size", 1), x.shape[1]
    alpha, beta, bias = (
        get_float(attrs, name, default)
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    square = np.square(x)
    total = np.zeros_like(x)
    # A neighbour further away than there are channels does not exist.
    before, after = min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)
    for offset in range(-before, after + 1):
        first, last = max(0, -offset), min(channels, channels - offset)
        if first < last:
            total[:, first:last] += square[:, first + offset : last + offset]
    return np.asarray(x / (bias + alpha / size * total) ** beta)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """The softmax along one axis, in the type of `x`. A row of minus infinities gives NaN."""
    y = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    y /= y.sum(axis=axis, keepdims=True)
    return np.asarray(y)


@rounded_once
def _log_softmax(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    axis = get_int(attrs, "axis", -1)
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _hardmax(call: Call) -> Value:
    x = tensor(call, 0)
    axis = get_int(call.attrs, "axis", -1)
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(widen(x).argmax(axis=axis), axis), 1, axis=axis)
    return y


_normalisation = partial(OpDef, classes=OpClass.NORM, infer=same_type)
_along_axis = partial(
    OpDef,
    classes=OpClass.NORM,
    infer=same_type,
    operands=named("input"),
    attributes={"axis": AttributeKind.INT},
    check=along(-1, demand_reals),
)
OPS: tuple[OpDef, ...] = (
    # Opaque because of its training mode; what is left of it in inference is a Mul and an Add,
    # which fuse on their own.
    OpDef(
        "BatchNormalization",
        classes=OpClass.NORM,
        infer=batch_normalisation,
        reference=_batch_normalisation,
        flops=2,
        operands=named("X", "scale", "B", "input_mean", "input_var"),
    ),
    _normalisation(
        "InstanceNormalization",
        reference=_group_normalisation,
        flops=8,
        operands=named("input", "scale", "B"),
    ),
    _normalisation(
        "GroupNormalization",
        reference=_group_normalisation,
        flops=8,
        operands=named("X", "scale", "bias"),
    ),
    OpDef(
        "LayerNormalization",
        classes=OpClass.NORM,
        reference=_layer_normalisation,
        flops=8,
        operands=named("X", "Scale", "B"),
        costs_like="LayerNormalization",
    ),
    OpDef(
        "RMSNormalization",
        classes=OpClass.NORM,
        infer=_like_scale,
        reference=_rms_normalisation,
        flops=5,
        operands=named("X", "scale"),
    ),
    _along_axis(
        "LpNormalization",
        pattern=Pattern.OUT_ELEMWISE_FUSABLE,
        reference=_lp_normalisation,
        flops=4,
    ),
    _normalisation(
        "MeanVarianceNormalization", reference=_mean_variance_normalisation, flops=6, operands=UNARY
    ),
    _normalisation("LRN", reference=_local_response_normalisation, flops=12, operands=UNARY),
    _along_axis(
        "Softmax",
        reference=rounded_once(lambda x, attrs: softmax(x, get_int(attrs, "axis", -1))),
        flops=5,
        traits=Trait.SAME_AXIS | Trait.NOT_NEGATIVE | Trait.EXPONENTIAL,
        costs_like="Softmax",
    ),
    _along_axis(
        "LogSoftmax",
        reference=_log_softmax,
        flops=5,
        traits=Trait.SAME_AXIS | Trait.EXPONENTIAL,
        costs_like="Softmax",
    ),
    _normalisation(
        "Hardmax",
        reference=_hardmax,
        flops=2,
        operands=named("input"),
        traits=Trait.SAME_AXIS,
    ),
)
