"""Convolutions and pools on channels-last tensors, the layout of TFLite: (N, spatial..., C) instead
of (N, C, spatial...).

| operator                    | is, with the axis of channels moved to the end of the activations |
|-----------------------------|--------------------------------------------------------------------|
| `ChannelsLastConv`          | Conv                                                               |
| `ChannelsLastConvTranspose` | ConvTranspose                                                      |
| `ChannelsLastMaxPool`       | MaxPool, values only                                               |
| `ChannelsLastAveragePool`   | AveragePool, also of integers                                      |

Attributes, weights (M, C / group, k...; ConvTranspose: C, M / group, k...) and biases are those of
the plain operator. `ChannelsLastAveragePool` of integers is the exact sum of the window divided by
the number of its elements, rounded to the nearest integer, halves away from zero.
"""

from __future__ import annotations

import numpy as np

from whence.errors import ModelError
from whence.ops.definition import Call, Infer, OpDef, Reference, TypeQuery, Value
from whence.ops.neural.conv import OPS as CONVS
from whence.ops.neural.pool import OPS as POOLS
from whence.ops.precision import tensor
from whence.ops.quantised.quantise import round_away
from whence.ops.traits import Trait
from whence.ops.types.type_rules import tensor_type
from whence.types import Shape, TensorType

PREFIX = "ChannelsLast"
_BASES = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})


def channels_first(shape: Shape) -> Shape:
    """The shape (N, spatial..., C) as (N, C, spatial...)."""
    return (shape[0], shape[-1], *shape[1:-1])


def channels_last(shape: Shape) -> Shape:
    """The shape (N, C, spatial...) as (N, spatial..., C)."""
    return (shape[0], *shape[2:], shape[1])


def plain_name(op: str) -> str:
    """The name of the operator on (N, C, spatial...) that a channels-last one stands for."""
    return op.removeprefix(PREFIX)


def _plain_query(query: TypeQuery) -> TypeQuery:
    x = tensor_type(query, 0)
    if x.shape is not None and len(x.shape) < 3:
        raise ModelError(f"the input needs at least three axes, found {x}")
    first = TensorType(x.dtype, None if x.shape is None else channels_first(x.shape))
    return TypeQuery(query.op, query.attrs, (first, *query.types[1:]), query.values, 1)


def _inferring(base: Infer) -> Infer:
    def infer(query: TypeQuery) -> TensorType:
        found = base(_plain_query(query))
        y = found[0] if isinstance(found, tuple) else found
        assert isinstance(y, TensorType)
        return TensorType(y.dtype, None if y.shape is None else channels_last(y.shape))

    return infer


def _evaluating(op: str, base: Reference) -> Reference:
    def evaluate(call: Call) -> Value:
        x = tensor(call, 0)
        if x.ndim < 3:
            raise ModelError(f"the input needs at least three axes, found {list(x.shape)}")
        averages_integers = op == "AveragePool" and x.dtype.kind in "iu"
        # Float64 holds the sums of windows exactly, and their quotients well enough to tell on
        # which side of a half they are.
        first = np.moveaxis(x.astype(np.float64) if averages_integers else x, -1, 1)
        y = base(Call(call.op, call.attrs, (np.ascontiguousarray(first), *call.inputs[1:]), 1))
        y = np.moveaxis(np.asarray(y), 1, -1)
        return np.ascontiguousarray(round_away(y).astype(x.dtype) if averages_integers else y)

    return evaluate


def _channels_last(base: OpDef) -> OpDef:
    assert base.infer is not None
    assert base.reference is not None
    # Counting operations takes sizes only, whatever their order.
    return OpDef(
        PREFIX + base.name,
        base.pattern,
        base.classes,
        _inferring(base.infer),
        _evaluating(base.name, base.reference),
        base.flops,
        operands=base.operands,
        traits=base.traits | Trait.CHANNELS_LAST,
        plain=base.name,
    )


OPS: tuple[OpDef, ...] = tuple(
    _channels_last(base) for base in (*CONVS, *POOLS) if base.name in _BASES
)
