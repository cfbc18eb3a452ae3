"""Attention of language models with its cache: heads share keys and values in groups, which are
appended to those of earlier calls.

As `com.microsoft` defines GroupQueryAttention. `seqlens_k` says for each text at which place its
last key stands, `total_sequence_length` how many places the longest text has. A prompt, whose
queries are all there is, begins at the first place and may be padded behind its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Attrs, Call, OpClass, OpDef, TypeQuery, Value, count, sizes
from whence.ops.neural.attention import rotary_embedding, split_heads
from whence.ops.operand import CODING, INDEX, PARAMETER, named, with_optional
from whence.ops.operands.checks import (
    count_of,
    demand,
    demand_elements,
    demand_one,
    demand_rank,
    divided,
    exceeds,
    shape_of,
)
from whence.ops.precision import number, optional_tensor, tensor
from whence.ops.traits import Trait
from whence.ops.types.type_rules import const_ints, is_absent, tensor_type
from whence.types import Dim, DType, TensorType, ValueType, differ

GROUP_QUERY = "com.microsoft::GroupQueryAttention"
APPEND = "CacheAppend"


class Heads(NamedTuple):
    """How many heads queries have, and keys and values; how wide each is."""

    queries: int
    keys: int
    size: Dim


def heads_of(attrs: Attrs, width: Dim, *, packed: bool) -> Heads:
    """`width` is that of the first operand: queries, or with `packed` all three."""
    queries, keys = get_int(attrs, "num_heads", 0), get_int(attrs, "kv_num_heads", 0)
    parts = queries + 2 * keys if packed else queries
    return Heads(queries, keys, width // parts if isinstance(width, int) and parts else None)


def cache_length(past: Dim, count: Dim, total: int | None) -> Dim:
    """Of the caches that come out: as long as those that go in, unless the text is longer."""
    if past == 0:
        return count
    if not isinstance(past, int) or total is None:
        return None
    return max(past, total)


def _group_query(call: Call) -> tuple[Value, ...]:
    x, packed = tensor(call, 0), call.input(1) is None
    heads, groups, size = heads_of(call.attrs, x.shape[-1], packed=packed)
    assert isinstance(size, int)
    if packed:
        query, key, value = np.split(x, (heads * size, (heads + groups) * size), axis=-1)
    else:
        query, key, value = x, tensor(call, 1), tensor(call, 2)
    query = split_heads(query, heads)
    key, value = split_heads(key, groups), split_heads(value, groups)
    count, total = x.shape[1], int(number(call, 6))
    last = tensor(call, 5).reshape(-1).astype(np.int64)
    first = np.zeros_like(last) if count == total else last + 1 - count
    rows = first[:, np.newaxis] + np.arange(count)
    if get_int(call.attrs, "do_rotary", 0):
        positions = optional_tensor(call, 9)
        query, key = (
            rotary_embedding(
                data,
                tensor(call, 7),
                tensor(call, 8),
                rows if positions is None else positions,
                interleaved=bool(get_int(call.attrs, "rotary_interleaved", 0)),
            )
            for data in (query, key)
        )
    past = [optional_tensor(call, index) for index in (3, 4)]
    known = 0 if past[0] is None else past[0].shape[2]
    length = cache_length(known, count, total)
    assert isinstance(length, int)
    keys, values = (
        appended(call.op, before, new, first, length)
        for before, new in zip(past, (key, value), strict=True)
    )
    window = get_int(call.attrs, "local_window_size", -1)
    places, own = np.arange(length), rows[:, np.newaxis, :, np.newaxis]
    visible = places <= np.minimum(own, last[:, np.newaxis, np.newaxis, np.newaxis])
    if window > 0:
        visible &= places > own - window
    scale = get_float(call.attrs, "scale", 0.0) or 1 / math.sqrt(size)
    shared = heads // groups
    scores = np.float32(scale) * query @ np.repeat(keys, shared, axis=1).swapaxes(2, 3)
    cap = get_float(call.attrs, "softcap", 0.0)
    if cap > 0:
        scores = np.tanh(scores / np.float32(cap)) * np.float32(cap)
    scores = np.where(visible, scores, np.finfo(np.float32).min)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y = (weights @ np.repeat(values, shared, axis=1)).transpose(0, 2, 1, 3)
    return (np.ascontiguousarray(y).reshape(*x.shape[:2], -1), keys, values)


def appended(
    op: str, past: np.ndarray | None, new: np.ndarray, first: np.ndarray, length: int
) -> np.ndarray:
    """A cache with `new` in its place; behind it there are zeros."""
    made = np.zeros((*new.shape[:2], length, new.shape[3]), new.dtype)
    for text, begin in enumerate(first):
        end = int(begin) + new.shape[2]
        if begin < 0 or end > length:
            raise ModelError(f"{op}: {new.shape[2]} new keys do not fit places {begin} to {end - 1}"
                             f" of a cache of {length}")  # fmt: skip
        if past is not None:
            before = min(int(begin), past.shape[2])
            made[text, :, :before] = past[text, :, :before]
        made[text, :, begin:end] = new[text]
    return made


def _infer_group_query(query: TypeQuery) -> tuple[ValueType, ...]:
    x, packed = tensor_type(query, 0), is_absent(query, 1)
    shape = x.shape or (None, None, None)
    heads = heads_of(query.attrs, shape[-1], packed=packed)
    width = heads.queries * heads.size if isinstance(heads.size, int) else None
    total = const_ints(query, 6)
    past = shape_of(query, 3)
    known: Dim = 0 if is_absent(query, 3) else past[2] if past is not None else None
    length = cache_length(known, shape[1], total[0] if total else None)
    cache = TensorType(x.dtype, (shape[0], heads.keys, length, heads.size))
    return (TensorType(x.dtype, (*shape[:2], width)), cache, cache)


def _check_group_query(query: TypeQuery) -> None:
    demand_rank(query, 0, 3, 3)
    demand_elements(query, 0, (DType.F32,), "single precision")
    queries, groups = (get_int(query.attrs, name, 0) for name in ("num_heads", "kv_num_heads"))
    if queries < 1 or groups < 1 or queries % groups:
        raise ModelError(f"{queries} query heads cannot share {groups} key heads")
    shape, packed = shape_of(query, 0), is_absent(query, 1)
    if packed != is_absent(query, 2):
        raise ModelError("keys and values come together, or packed with the queries")
    if shape is not None:
        divided(shape[2], queries + 2 * groups if packed else queries, "elements of a row")
        size = heads_of(query.attrs, shape[2], packed=packed).size
        width = groups * size if isinstance(size, int) else None
        for index, what in ((1, "key"), (2, "value")):
            demand(query, index, (*shape[:2], width), what)
        for index, what in ((3, "past_key"), (4, "past_value")):
            demand(query, index, (shape[0], groups, None, size), what)
        if isinstance(shape[0], int) and differ(count_of(shape_of(query, 5)), shape[0]):
            raise ModelError(f"seqlens_k is {query.types[5]}, for {shape[0]} texts")
    keys, values = shape_of(query, 3), shape_of(query, 4)
    if keys is not None and values is not None and any(map(differ, keys, values)):
        raise ModelError(f"past_key is {query.types[3]}, and past_value {query.types[4]}")
    demand_one(query, 6, "total_sequence_length")
    if get_int(query.attrs, "do_rotary", 0) and (is_absent(query, 7) or is_absent(query, 8)):
        raise ModelError("do_rotary needs cos_cache and sin_cache")


def _group_query_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    """Both products with every key that the cache has room for."""
    return 4 * count(outputs[0]) * sizes(outputs[1])[2] if len(outputs) > 1 else None


def _append(call: Call) -> Value:
    past, update, first = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    length = get_int(call.attrs, "length", 0) or past.shape[2]
    return appended(call.op, past, update, first.reshape(-1), length)


def _infer_append(query: TypeQuery) -> TensorType:
    past, length = tensor_type(query, 0), get_int(query.attrs, "length", 0)
    if past.shape is None or not length:
        return past
    return TensorType(past.dtype, (*past.shape[:2], length, past.shape[3]))


def _check_append(query: TypeQuery) -> None:
    demand_rank(query, 0, 4, 4)
    past = shape_of(query, 0)
    if past is None:
        return
    demand(query, 1, (past[0], past[1], None, past[3]), "update")
    demand(query, 2, (past[0],), "write_indices")
    length, new = get_int(query.attrs, "length", 0) or past[2], shape_of(query, 1)
    if new is not None and exceeds(new[2], length):
        raise ModelError(f"{query.types[1]} does not fit a cache of {length}")


OPS: tuple[OpDef, ...] = (
    OpDef(
        GROUP_QUERY,
        classes=OpClass.MATMUL,
        infer=_infer_group_query,
        reference=_group_query,
        flops=_group_query_flops,
        operands=with_optional(
            9,
            named(
                "query",
                "key",
                "value",
                "past_key",
                "past_value",
                seqlens_k=INDEX,
                total_sequence_length=PARAMETER,
                cos_cache=CODING,
                sin_cache=CODING,
                position_ids=INDEX,
            ),
        ),
        check=_check_group_query,
    ),
    # [batch, heads, length, size], with `update` at the places from `write_indices` on, one for
    # each batch item. What lies behind it is zero, or where the result lies in the memory of the
    # past, whatever it was: nobody looks there. With `length`, the result has room for so many.
    OpDef(
        APPEND,
        classes=OpClass.MOVEMENT,
        infer=_infer_append,
        reference=_append,
        flops=0,
        operands=named("past", "update", write_indices=INDEX),
        check=_check_append,
        traits=Trait.CHECKS_INDICES,
    ),
)
