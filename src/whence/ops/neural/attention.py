"""Scaled dot-product attention, and the rotary position embedding that goes with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import (
    Call,
    IndexedAxes,
    Indexing,
    OpClass,
    OpDef,
    TypeQuery,
    Value,
    sizes,
)
from whence.ops.operand import INDEX, named
from whence.ops.operands.checks import (
    demand,
    demand_rank,
    demand_same_elements,
    divided,
    exceeds,
    shape_of,
)
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import is_absent
from whence.types import Dim, DType, Shape, ValueType, differ, shape_text


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """(batch, sequence, heads · size) as (batch, heads, sequence, size)."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def attention_bias(
    call: Call, dtype: np.dtype[np.generic], queries: int, keys: int, past: int
) -> np.ndarray | None:
    """What is added to the scores, broadcastable to (batch, heads, queries, keys): the mask, minus
    infinity where a key is hidden.

    `None` when every query sees every key. `past` is the number of keys that precede the first
    query.
    """
    mask, lengths = optional_tensor(call, 3), optional_tensor(call, 6)
    causal = bool(get_int(call.attrs, "is_causal", 0))
    left = get_int(call.attrs, "left_window_size", -1)
    right = get_int(call.attrs, "right_window_size", -1)
    visible: np.ndarray | None = None
    if causal or left >= 0 or right >= 0:
        # With an external cache the queries are the last of the valid keys, sample by sample.
        offset = np.asarray(past) if lengths is None else lengths.reshape(-1, 1, 1, 1) - queries
        distance = np.arange(keys) - (np.arange(queries)[:, np.newaxis] + offset)
        visible = distance <= 0 if causal else np.ones_like(distance, dtype=np.bool_)
        if left >= 0:
            visible = visible & (distance >= -left)
        if right >= 0:
            visible = visible & (distance <= right)
    if lengths is not None:
        valid = np.arange(keys) < lengths.reshape(-1, 1, 1, 1)
        visible = valid if visible is None else visible & valid
    if mask is not None and mask.shape[-1] < keys:
        missing = np.full(
            (*mask.shape[:-1], keys - mask.shape[-1]),
            False if mask.dtype == np.bool_ else -np.inf,
            dtype=mask.dtype,
        )
        mask = np.concatenate((mask, missing), axis=-1)
    if mask is not None and mask.dtype == np.bool_:
        visible = mask if visible is None else visible & mask
        mask = None
    added = None if mask is None else widen(mask).astype(dtype, copy=False)
    if visible is None:
        return added
    return np.where(visible, dtype.type(0) if added is None else added, dtype.type(-np.inf))


def _attention(call: Call) -> tuple[Value, ...]:
    query, key, value = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    dtype, packed = query.dtype, query.ndim == 3
    if packed:
        q_heads = get_int(call.attrs, "q_num_heads", 0)
        kv_heads = get_int(call.attrs, "kv_num_heads", 0)
        if q_heads <= 0 or kv_heads <= 0:
            raise ModelError(
                f"{call.op}: three-dimensional inputs need q_num_heads and kv_num_heads"
            )
        query = split_heads(query, q_heads)
        key, value = split_heads(key, kv_heads), split_heads(value, kv_heads)
    past_key, past_value = optional_tensor(call, 4), optional_tensor(call, 5)
    past = 0 if past_key is None else past_key.shape[2]
    present_key = key if past_key is None else np.concatenate((past_key, key), axis=2)
    present_value = value if past_value is None else np.concatenate((past_value, value), axis=2)

    q, k, v = widen(query), widen(present_key), widen(present_value)
    batch, heads, queries, size = q.shape
    shared, keys = heads // k.shape[1], k.shape[2]
    if heads % k.shape[1]:
        raise ModelError(f"{heads} query heads cannot share {k.shape[1]} key heads")
    scale = get_float(call.attrs, "scale", 1 / math.sqrt(size) if size else 1.0)
    # Query heads that share a key head stand side by side, so they stack into one taller matrix.
    scores = (q * q.dtype.type(scale)).reshape(
        batch, k.shape[1], shared * queries, size
    ) @ k.swapaxes(2, 3)
    scores = scores.reshape(batch, heads, queries, keys)
    shown = {0: scores}
    softcap = get_float(call.attrs, "softcap", 0.0)
    if softcap > 0:
        scores = (np.tanh(scores / softcap) * softcap).astype(scores.dtype, copy=False)
    shown[1] = scores
    bias = attention_bias(call, q.dtype, queries, keys, past)
    if bias is not None:
        scores = scores + bias
    shown[2] = scores
    weights = _masked_softmax(scores, bias, get_int(call.attrs, "softmax_precision", 0)).astype(
        q.dtype, copy=False
    )
    shown[3] = weights
    y = (weights.reshape(batch, k.shape[1], shared * queries, keys) @ v).reshape(
        batch, heads, queries, v.shape[3]
    )
    if packed:
        y = np.ascontiguousarray(y.transpose(0, 2, 1, 3)).reshape(batch, queries, -1)
    mode = get_int(call.attrs, "qk_matmul_output_mode", 0)
    return narrow(y, dtype), present_key, present_value, narrow(shown[mode], dtype)


def _masked_softmax(scores: np.ndarray, bias: np.ndarray | None, precision: int) -> np.ndarray:
    """Softmax over the keys; a query that may see no key at all gets zeros."""
    if precision:
        scores = widen(scores.astype(DType(precision).numpy))
    weights: np.ndarray = np.exp(
        scores
        - np.maximum(
            scores.max(axis=-1, keepdims=True, initial=-np.inf), np.finfo(scores.dtype).min
        )
    )
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total == 0, total.dtype.type(1), total)
    if bias is not None:
        blind = np.isneginf(bias.max(axis=-1, keepdims=True, initial=-np.inf))
        if blind.any():
            weights = np.where(blind, weights.dtype.type(0), weights)
    return weights


def _rotary_embedding(call: Call) -> Value:
    x = tensor(call, 0)
    heads = get_int(call.attrs, "num_heads", 1)
    packed = x.ndim == 3
    size = x.shape[-1] // heads if packed else x.shape[-1]
    y = rotary_embedding(
        split_heads(x, heads) if packed else x,
        tensor(call, 1),
        tensor(call, 2),
        optional_tensor(call, 3),
        interleaved=bool(get_int(call.attrs, "interleaved", 0)),
        rotated=get_int(call.attrs, "rotary_embedding_dim", 0) or size,
    )
    if packed:
        y = np.ascontiguousarray(y.transpose(0, 2, 1, 3)).reshape(x.shape)
    return y


def rotary_embedding(
    x: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    positions: np.ndarray | None,
    *,
    interleaved: bool,
    rotated: int = 0,
) -> np.ndarray:
    """(batch, heads, sequence, size), pairs of elements rotated by the angles of their positions:
    the first `rotated` of each head, 0 for as many as there are angles for.
    """
    # Work on (batch, sequence, heads, size).
    wide = widen(x).transpose(0, 2, 1, 3)
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    cosine, sine = widen(cosines)[:, :, np.newaxis], widen(sines)[:, :, np.newaxis]
    rotated = rotated or 2 * cosine.shape[-1]
    half = rotated // 2
    if cosine.shape[-1] != half or rotated > wide.shape[3]:
        raise ModelError(
            f"a cosine cache of width {cosine.shape[-1]} does not fit a rotation of {rotated} of"
            f" {wide.shape[3]} elements"
        )
    real, imaginary = (
        (slice(0, rotated, 2), slice(1, rotated, 2))
        if interleaved
        else (slice(0, half), slice(half, rotated))
    )
    y = wide.copy()
    y[..., real] = cosine * wide[..., real] - sine * wide[..., imaginary]
    y[..., imaginary] = sine * wide[..., real] + cosine * wide[..., imaginary]
    return narrow(np.ascontiguousarray(y.transpose(0, 2, 1, 3)), x.dtype)


def _attention_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """The two matrix products; the softmax between them is small beside them."""
    q, k, v = map(sizes, query.types[:3])
    keys = k[-2] + (0 if is_absent(query, 4) else sizes(query.types[4])[2])
    if len(q) == 3:
        heads = get_int(query.attrs, "q_num_heads", 1)
        kv_heads = get_int(query.attrs, "kv_num_heads", 1)
        return 2 * q[0] * q[1] * keys * (q[2] + v[2] // max(kv_heads, 1) * heads)
    return 2 * q[0] * q[1] * q[2] * keys * (q[3] + v[3])


class HeadsOfOperand(NamedTuple):
    """Queries, keys or values, whether their heads lie side by side or in an axis of their own."""

    batch: Dim
    heads: Dim
    length: Dim
    size: Dim


def heads_of_operand(query: TypeQuery, index: int, heads: str) -> HeadsOfOperand | None:
    shape = shape_of(query, index)
    demand_rank(query, index, 3, 4)
    if shape is None:
        return None
    if len(shape) == 4:
        return HeadsOfOperand(*shape)
    count = get_int(query.attrs, heads, 0)
    if count < 1:
        raise ModelError(
            f"input {index} is {query.types[index]}, whose heads {heads} must count; it is {count}"
        )
    divided(shape[2], count, f"elements of input {index}")
    size = shape[2] // count if isinstance(shape[2], int) else None
    return HeadsOfOperand(shape[0], count, shape[1], size)


def _check_attention(query: TypeQuery) -> None:
    q = heads_of_operand(query, 0, "q_num_heads")
    k = heads_of_operand(query, 1, "kv_num_heads")
    v = heads_of_operand(query, 2, "kv_num_heads")
    ranks = {len(shape) for index in range(3) if (shape := shape_of(query, index)) is not None}
    if len(ranks) > 1:
        raise ModelError(f"{_given(query)} do not have equally many axes")
    if q is None or k is None or v is None:
        return
    _demand_equal(query, "batches", q.batch, k.batch, v.batch)
    _demand_equal(query, "numbers of keys and values", k.length, v.length)
    _demand_equal(query, "heads of keys and values", k.heads, v.heads)
    _demand_equal(query, "sizes of queries and keys", q.size, k.size)
    if isinstance(q.heads, int) and isinstance(k.heads, int):
        divided(q.heads, k.heads, "heads of queries")
    past = _past(query, k, v)
    total = k.length + past if isinstance(k.length, int) and isinstance(past, int) else None
    _check_mask(query, (q.batch, q.heads, q.length, total))
    demand(query, 6, (q.batch,), "nonpad_kv_seqlen")


def _past(query: TypeQuery, k: HeadsOfOperand, v: HeadsOfOperand) -> Dim:
    """How many keys there are before those given."""
    if is_absent(query, 4) != is_absent(query, 5):
        raise ModelError("past_key and past_value come together, or not at all")
    demand(query, 4, (k.batch, k.heads, None, k.size), "past_key")
    demand(query, 5, (v.batch, v.heads, None, v.size), "past_value")
    keys, values = shape_of(query, 4), shape_of(query, 5)
    if keys is not None and values is not None:
        _demand_equal(query, "numbers of past keys and values", keys[2], values[2])
    return 0 if is_absent(query, 4) else None if keys is None else keys[2]


def _check_mask(query: TypeQuery, scores: Shape) -> None:
    """The mask spreads over the scores; keys that its last axis does not reach are hidden. A list
    is for all keys.
    """
    mask = shape_of(query, 3)
    if mask is None:
        return
    fits = 1 <= len(mask) <= 4 and not exceeds(mask[-1], scores[-1])
    if len(mask) == 1 and differ(mask[0], scores[-1]):
        fits = False
    others = zip(mask[-2::-1], scores[-2::-1], strict=False)
    if not fits or any(dim != 1 and differ(dim, wanted) for dim, wanted in others):
        raise ModelError(
            f"attn_mask is {query.types[3]}, which does not spread over scores of {shape_text(scores)}"
        )
    kind = query.types[3]
    if getattr(kind, "dtype", DType.UNDEFINED) is not DType.BOOL:
        demand_same_elements(query, 3, 0)


def _demand_equal(query: TypeQuery, what: str, first: Dim, *others: Dim) -> None:
    if any(differ(first, other) for other in others):
        raise ModelError(f"{what} differ in {_given(query)}")


def _given(query: TypeQuery) -> str:
    return ", ".join(str(kind) for kind in query.types if kind is not None)


def _check_rotary(query: TypeQuery) -> None:
    x = heads_of_operand(query, 0, "num_heads")
    if x is None:
        return
    rotated: Dim = get_int(query.attrs, "rotary_embedding_dim", 0) or x.size
    if isinstance(rotated, int) and (rotated < 0 or rotated % 2 or exceeds(rotated, x.size)):
        raise ModelError(
            f"it rotates pairs, and cannot rotate {rotated} of {x.size} elements of a head"
        )
    half = rotated // 2 if isinstance(rotated, int) else None
    for index, what in ((1, "cos_cache"), (2, "sin_cache")):
        if is_absent(query, 3):
            _demand_spread(query, index, (x.batch, x.length, half), what)
        else:
            demand(query, index, (None, half), what)
    cosines, sines = shape_of(query, 1), shape_of(query, 2)
    if cosines is not None and sines is not None and any(map(differ, cosines, sines)):
        raise ModelError(f"cos_cache is {query.types[1]}, and sin_cache {query.types[2]}")
    _demand_spread(query, 3, (x.batch, x.length), "position_ids")


def _demand_spread(query: TypeQuery, index: int, wanted: Sequence[Dim], what: str) -> None:
    """As `demand`, but one entry may serve the whole batch."""
    found = shape_of(query, index)
    if found is not None and found and found[0] == 1:
        wanted = (1, *wanted[1:])
    demand(query, index, wanted, what)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "Attention",
        classes=OpClass.MATMUL,
        reference=_attention,
        flops=_attention_flops,
        operands=named("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"),
        check=_check_attention,
    ),
    OpDef(
        "LinearAttention",
        classes=OpClass.MATMUL,
        operands=named("query", "key", "value", "past_state", "decay", "beta"),
    ),
    OpDef(
        "RotaryEmbedding",
        classes=OpClass.ELEMENTWISE,
        reference=_rotary_embedding,
        flops=3,
        operands=named("X", "cos_cache", "sin_cache", position_ids=INDEX),
        check=_check_rotary,
        traits=Trait.CHECKS_INDICES,
        indexing=Indexing("cos_cache", "position_ids", IndexedAxes.FIRST),
    ),
)
