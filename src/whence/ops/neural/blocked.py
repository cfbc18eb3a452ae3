"""Convolutions and pools on channel-blocked tensors, the layout in which vectors run over channels.

A blocked tensor is an ordinary tensor [N, ceil(C / block), H, W, block]: channel c of the plain
tensor is at block c // block, place c % block. When `block` does not divide C, the places behind
the last channel hold zeros after `ToBlocked` and anything after other operators; no operator lets
them touch a real channel. The plain tensor may also be [N, C, W]; it is one row high when blocked.

| operator             | inputs       | value                                                                              |
|----------------------|--------------|------------------------------------------------------------------------------------|
| `ToBlocked`          | x            | x [N, C, H, W] or [N, C, W], blocked; `block`                                      |
| `FromBlocked`        | x            | the first `channels` channels of x, plain, with `rank` (4 or 3) axes               |
| `BlockedConv`        | x, w, b?, z? | act(Conv(x, w, b) + z), blocked; attributes of FusedConv, `block`, `channels_in`, `channels_out` |
| `BlockedMaxPool`     | x            | MaxPool of each place, attributes of MaxPool                                       |
| `BlockedAveragePool` | x            | AveragePool of each place, attributes of AveragePool                               |

The weights of BlockedConv are those of Conv, [M, C / group, KH, KW]. With `plain_input` = 1 its x
is plain, which suits a first layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import (
    AttributeKind,
    Attrs,
    Call,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
    count,
)
from whence.ops.neural.conv import conv, conv_flops
from whence.ops.neural.fused import applied, apply_activation
from whence.ops.neural.pool import OPS as POOLS
from whence.ops.neural.pool import pool_flops
from whence.ops.operand import UNARY, named
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import conv as infer_conv
from whence.ops.types.spatial_rules import pool as infer_pool
from whence.ops.types.type_rules import tensor_type
from whence.types import Dim, Shape, TensorType, ValueType

_POOLS = {definition.name: definition for definition in POOLS}


def blocks_of(channels: int, block: int) -> int:
    """How many blocks hold so many channels."""
    return -(-channels // block)


def to_blocked(x: np.ndarray, block: int) -> np.ndarray:
    """A plain (N, C, H, W) or (N, C, W) array in blocks of channels, padded with zeros."""
    batch, channels, *spatial = x.shape
    spatial = [*[1] * (2 - len(spatial)), *spatial]
    x = x.reshape(batch, channels, *spatial)
    count = blocks_of(channels, block)
    padded = np.zeros((batch, count * block, *spatial), dtype=x.dtype)
    padded[:, :channels] = x
    return np.ascontiguousarray(np.moveaxis(padded.reshape(batch, count, block, *spatial), 2, -1))


def from_blocked(x: np.ndarray, channels: int, rank: int = 4) -> np.ndarray:
    """The first `channels` channels of a blocked array, plain, with so many axes."""
    batch, count, *spatial, block = x.shape
    plain = np.moveaxis(x, -1, 2).reshape(
        batch, count * block, *(spatial if rank == 4 else spatial[1:])
    )
    return np.ascontiguousarray(plain[:, :channels])


def block_size(op: str, attrs: Attrs) -> int:
    block = get_int(attrs, "block", 0)
    if block < 1:
        raise ModelError(f"{op}: attribute block must be a positive number, found {block}")
    return block


# ---- evaluation ----


def _from_blocked(call: Call) -> Value:
    return from_blocked(
        tensor(call, 0), get_int(call.attrs, "channels", 0), get_int(call.attrs, "rank", 4)
    )


def _blocked_conv(call: Call) -> Value:
    x, z = tensor(call, 0), optional_tensor(call, 3)
    channels_in = get_int(call.attrs, "channels_in", 0)
    channels_out = get_int(call.attrs, "channels_out", 0)
    plain = x if get_int(call.attrs, "plain_input", 0) else from_blocked(x, channels_in)
    y = conv(Call(call.op, call.attrs, (plain, *call.inputs[1:3]), 1))
    if z is not None:
        y = y + widen(from_blocked(z, channels_out))
    y = narrow(apply_activation(call.op, call.attrs, y), x.dtype)
    return to_blocked(y, block_size(call.op, call.attrs))


def _blocked_pool(call: Call) -> Value:
    op, x = call.op.removeprefix("Blocked"), tensor(call, 0)
    block = x.shape[-1]
    reference = _POOLS[op].reference
    assert reference is not None
    y = reference(Call(op, call.attrs, (from_blocked(x, x.shape[1] * block),), 1))
    return to_blocked(y, block)


# ---- types and cost ----


def _blocks(channels: Dim, block: int) -> Dim:
    return blocks_of(channels, block) if isinstance(channels, int) else None


def _as_blocked(kind: TensorType, block: int) -> TensorType:
    shape = kind.shape
    if shape is None:
        return kind
    return TensorType(
        kind.dtype,
        (shape[0], _blocks(shape[1], block), *(1,) * (4 - len(shape)), *shape[2:], block),
    )


def _of_rank(query: TypeQuery, *ranks: int) -> TensorType:
    x = tensor_type(query, 0)
    if x.shape is not None and len(x.shape) not in ranks:
        raise ModelError(f"the input must have {' or '.join(map(str, ranks))} axes, found {x}")
    return x


def _infer_from_blocked(query: TypeQuery) -> TensorType:
    x = _of_rank(query, 5)
    if x.shape is None:
        return x
    rank = get_int(query.attrs, "rank", 4)
    if rank not in {3, 4} or (rank == 3 and x.shape[2] != 1):
        raise ModelError(f"{x} cannot become a plain tensor of {rank} axes")
    return TensorType(
        x.dtype, (x.shape[0], get_int(query.attrs, "channels", 0), *x.shape[6 - rank : 4])
    )


def _infer_conv(query: TypeQuery) -> TensorType:
    y = infer_conv(_plain_query(query))
    return _as_blocked(y, block_size(query.op, query.attrs))


def _plain_query(query: TypeQuery) -> TypeQuery:
    """The query as for Conv."""
    plain = bool(get_int(query.attrs, "plain_input", 0))
    x = _of_rank(query, 4 if plain else 5)
    shape: Shape | None = x.shape
    if not plain and shape is not None:
        shape = (shape[0], get_int(query.attrs, "channels_in", 0), shape[2], shape[3])
    return TypeQuery(
        query.op, query.attrs, (TensorType(x.dtype, shape), *query.types[1:3]), query.values[:3], 1
    )


def _infer_pool(query: TypeQuery) -> TensorType:
    x = _of_rank(query, 5)
    if x.shape is None:
        return x
    inner = TypeQuery(query.op, query.attrs, (TensorType(x.dtype, x.shape[:4]),), query.values, 1)
    y = infer_pool(inner)[0]
    return TensorType(x.dtype, None if y.shape is None else (*y.shape, x.shape[4]))


def _conv_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """The arithmetic of the real channels, as FusedConv counts it. Of groups that were joined, a
    filter's channels of other groups are zeros, which nobody asked for.
    """
    plain = _plain_query(query)
    y = infer_conv(plain)
    asked = conv_flops(plain, (y,)) // get_int(query.attrs, "joined", 1)
    return asked + count(y) * applied(query)


_ANCHOR = Pattern.OUT_ELEMWISE_FUSABLE
_relayout = partial(
    OpDef,
    pattern=Pattern.INJECTIVE,
    classes=OpClass.MOVEMENT,
    flops=0,
    operands=UNARY,
    traits=Trait.RELAYOUT,
)
_blocked_window = partial(
    OpDef,
    pattern=_ANCHOR,
    classes=OpClass.POOL,
    infer=_infer_pool,
    reference=_blocked_pool,
    flops=pool_flops,
    operands=UNARY,
    traits=Trait.POOLS_WINDOWS | Trait.BLOCKED,
)
OPS: tuple[OpDef, ...] = (
    _relayout(
        "ToBlocked",
        infer=lambda query: _as_blocked(_of_rank(query, 3, 4), block_size(query.op, query.attrs)),
        reference=lambda call: to_blocked(tensor(call, 0), block_size(call.op, call.attrs)),
        attributes={"block": AttributeKind.INT},
    ),
    _relayout(
        "FromBlocked",
        infer=_infer_from_blocked,
        reference=_from_blocked,
        attributes={"channels": AttributeKind.INT, "rank": AttributeKind.INT},
    ),
    OpDef(
        "BlockedConv",
        _ANCHOR,
        OpClass.CONV | OpClass.ACTIVATION,
        infer=_infer_conv,
        reference=_blocked_conv,
        flops=_conv_flops,
        operands=named("X", "W", "B", "Z"),
        traits=Trait.CONVOLUTION | Trait.FUSED | Trait.BLOCKED,
        plain="Conv",
    ),
    _blocked_window("BlockedMaxPool", plain="MaxPool"),
    _blocked_window("BlockedAveragePool", plain="AveragePool"),
)
