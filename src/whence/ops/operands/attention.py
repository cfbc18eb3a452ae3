"""Attention and the rotary embedding of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    demand,
    demand_rank,
    demand_same_elements,
    divided,
    exceeds,
    shape_of,
)
from whence.types import Dim, DType, Shape, differ, shape_text


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


def _attention(query: TypeQuery) -> None:
    q = heads_of_operand(query, 0, "q_num_heads")
    k = heads_of_operand(query, 1, "kv_num_heads")
    v = heads_of_operand(query, 2, "kv_num_heads")
    ranks = {len(shape) for index in range(3) if (shape := shape_of(query, index)) is not None}
    if len(ranks) > 1:
        raise ModelError(f"{_given(query)} do not have equally many axes")
    if q is None or k is None or v is None:
        return
    _equal(query, "batches", q.batch, k.batch, v.batch)
    _equal(query, "numbers of keys and values", k.length, v.length)
    _equal(query, "heads of keys and values", k.heads, v.heads)
    _equal(query, "sizes of queries and keys", q.size, k.size)
    if isinstance(q.heads, int) and isinstance(k.heads, int):
        divided(q.heads, k.heads, "heads of queries")
    past = _past(query, k, v)
    total = k.length + past if isinstance(k.length, int) and isinstance(past, int) else None
    _mask(query, (q.batch, q.heads, q.length, total))
    demand(query, 6, (q.batch,), "nonpad_kv_seqlen")


def _past(query: TypeQuery, k: HeadsOfOperand, v: HeadsOfOperand) -> Dim:
    """How many keys there are before those given."""
    given = [index < len(query.types) and query.types[index] is not None for index in (4, 5)]
    if given[0] != given[1]:
        raise ModelError("past_key and past_value come together, or not at all")
    demand(query, 4, (k.batch, k.heads, None, k.size), "past_key")
    demand(query, 5, (v.batch, v.heads, None, v.size), "past_value")
    keys, values = shape_of(query, 4), shape_of(query, 5)
    if keys is not None and values is not None:
        _equal(query, "numbers of past keys and values", keys[2], values[2])
    return 0 if not given[0] else None if keys is None else keys[2]


def _mask(query: TypeQuery, scores: Shape) -> None:
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


def _equal(query: TypeQuery, what: str, first: Dim, *others: Dim) -> None:
    if any(differ(first, other) for other in others):
        raise ModelError(f"{what} differ in {_given(query)}")


def _given(query: TypeQuery) -> str:
    return ", ".join(str(kind) for kind in query.types if kind is not None)


def _rotary(query: TypeQuery) -> None:
    demand_rank(query, 0, 3, 4)
    x, heads = shape_of(query, 0), get_int(query.attrs, "num_heads", 0)
    if x is None:
        return
    if len(x) == 4:
        batch, _, length, size = x
    else:
        if heads < 1:
            raise ModelError(
                f"the input is {query.types[0]}, whose heads num_heads must count; it is {heads}"
            )
        divided(x[2], heads, "elements of the input")
        batch, length = x[0], x[1]
        size = x[2] // heads if isinstance(x[2], int) else None
    rotated: Dim = get_int(query.attrs, "rotary_embedding_dim", 0) or size
    if isinstance(rotated, int) and (rotated < 0 or rotated % 2 or exceeds(rotated, size)):
        raise ModelError(
            f"it rotates pairs, and cannot rotate {rotated} of {size} elements of a head"
        )
    half = rotated // 2 if isinstance(rotated, int) else None
    by_position = len(query.types) > 3 and query.types[3] is not None
    for index, what in ((1, "cos_cache"), (2, "sin_cache")):
        if by_position:
            demand(query, index, (None, half), what)
        else:
            _demand_spread(query, index, (batch, length, half), what)
    cosines, sines = shape_of(query, 1), shape_of(query, 2)
    if cosines is not None and sines is not None and any(map(differ, cosines, sines)):
        raise ModelError(f"cos_cache is {query.types[1]}, and sin_cache {query.types[2]}")
    _demand_spread(query, 3, (batch, length), "position_ids")


def _demand_spread(query: TypeQuery, index: int, wanted: Sequence[Dim], what: str) -> None:
    """As `demand`, but one entry may serve the whole batch."""
    found = shape_of(query, index)
    if found is not None and found and found[0] == 1:
        wanted = (1, *wanted[1:])
    demand(query, index, wanted, what)


RULES: Mapping[str, Check] = {"Attention": _attention, "RotaryEmbedding": _rotary}
