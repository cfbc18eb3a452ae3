"""Attention over packed projections, and its parts, as matrix products, masks and a softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from whence.frontends.onnx.microsoft.cache import by_beam, lengthened, places, write
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite
from whence.types import Dim, DType


def split_heads(build: Rewrite, data: str, heads: int) -> str:
    """[batch, length, heads * size] as [batch, heads, length, size]"""
    heads_last = build.op("Reshape", data, build.ints(0, 0, heads, -1))
    return build.op("Transpose", heads_last, perm=(0, 2, 1, 3))


def attend(
    build: Rewrite, query: str, key: str, value: str, *, scale: float, bias: str, visible: str
) -> list[OpRecord]:
    """softmax(q kᵀ * scale + bias) v with the heads joined again: the record's result. What is not
    `visible` weighs nothing.
    """
    scores = build.op("MatMul", query, build.op("Transpose", key, perm=(0, 1, 3, 2)))
    scores = build.op("Mul", scores, build.like(scale, build.record.required(0)))
    if bias:
        scores = build.op("Add", scores, bias)
    if visible:
        scores = build.op("Where", visible, scores, lowest(build))
    context = build.op("MatMul", build.op("Softmax", scores, axis=-1), value)
    joined = build.op("Transpose", context, perm=(0, 2, 1, 3))
    return build.result("Reshape", joined, build.ints(0, 0, -1))


def lowest(build: Rewrite) -> str:
    """The score of what is not visible: the lowest number that the elements of the first input
    have.
    """
    data = build.record.required(0)
    kind = np.float16 if build.dtype(data) is DType.F16 else np.float32
    return build.like(float(np.finfo(kind).min), data)


def scale_of(record: OpRecord, size: int) -> float:
    """What scores are multiplied with, of heads of this size."""
    return record.number("scale", 0.0) or 1 / math.sqrt(max(size, 1))


def causal(build: Rewrite, query: str, key: str) -> str:
    """The causal mask [length, total]: each query sees the keys up to its own, from the end."""
    length, total = (build.op("Shape", data, start=2, end=3) for data in (query, key))
    rows = build.op("Add", build.counted(length), build.op("Sub", total, length))
    columns = build.counted(total)
    return build.op("LessOrEqual", columns, build.op("Unsqueeze", rows, build.ints(1)))


def masked(
    build: Rewrite, bias: str, mask: str, query: str, key: str, rank: int | None = None
) -> str:
    """What is added to the scores: the bias, if there is one, and what a mask adds, as [batch, 1, 1
    or length, total]. Its rank, which must be given for a mask that is computed here, says which
    kind it is.
    """
    if not mask:
        return bias
    data = build.record.required(0)
    rank = build.known_rank(mask) if rank is None else rank
    if rank == 1:
        count, batch = (shape[0] if (shape := build.shape(each)) else None for each in (mask, data))
        if isinstance(count, int) and isinstance(batch, int) and count != batch:
            raise build.record.unsupported(f"a mask of {count} numbers for a batch of {batch}")
        places = build.cast(build.counted(build.op("Shape", key, start=2, end=3)), DType.I32)
        ends = build.op("Unsqueeze", build.cast(mask, DType.I32), build.ints(1))
        keep = build.op("Unsqueeze", build.op("Less", places, ends), build.ints(1, 2))
    elif rank in (2, 3):
        keep = build.op(
            "Unsqueeze",
            build.cast(mask, DType.BOOL),
            build.ints(*((1, 2) if rank == 2 else (1,))),
        )
    elif rank == 4:
        total = build.op("Shape", key, start=2, end=3)
        first = build.op("Sub", total, build.op("Shape", query, start=2, end=3))
        zero = build.ints(0)
        starts = build.op("Concat", first, zero, axis=0)
        ends = build.op("Concat", total, total, axis=0)
        keep = build.cast(build.op("Slice", mask, starts, ends, build.ints(2, 3)), DType.BOOL)
    else:
        raise build.record.unsupported(f"a mask of {rank} dimensions")
    filler = build.like(build.record.number("mask_filter_value", -10000.0), data)
    hidden = build.op("Where", keep, build.like(0.0, data), filler)
    return build.op("Add", hidden, bias) if bias else hidden


def _attention(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    heads = record.positive("num_heads", 1)
    if record.integer("do_rotary", 0):
        raise record.unsupported("rotary embedding inside Attention")
    if record.integer("past_present_share_buffer", 0):
        raise record.unsupported("a past that shares its buffer with the present")
    data, weight = record.required(0), record.required(1)
    sizes = record.integers("qkv_hidden_sizes")
    if sizes is None:
        sizes = (build.known_dim(weight, -1, "the size of its weight") // 3,) * 3
    *_, projection_bias, mask, past, bias = record.operands(6)
    packed = build.op("MatMul", data, weight)
    if projection_bias:
        packed = build.op("Add", packed, projection_bias)
    query, key, value = (
        split_heads(build, part, heads)
        for part in build.multi("Split", 3, packed, build.ints(*sizes), axis=-1)
    )
    if past:
        key, value = (
            build.op(
                "Concat", build.op("Gather", past, build.scalar_int(which), axis=0), new, axis=2
            )
            for which, new in enumerate((key, value))
        )
    if record.output(1):
        pair = [build.op("Unsqueeze", part, build.ints(0)) for part in (key, value)]
        build.into([record.output(1)], "Concat", *pair, axis=0)
    return _attend(build, query, key, value, sizes[0] // heads, bias, mask)


def _attend(
    build: Rewrite, query: str, key: str, value: str, size: int, bias: str, mask: str
) -> list[OpRecord]:
    visible = causal(build, query, key) if build.record.integer("unidirectional", 0) else ""
    bias = masked(build, bias, mask, query, key)
    scale = scale_of(build.record, size)
    return attend(build, query, key, value, scale=scale, bias=bias, visible=visible)


def _multi_head_attention(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    heads = record.positive("num_heads", 1)
    query = record.required(0)
    _, key, value, projection_bias, mask, bias, past_key, past_value, past_length, beams = (
        record.operands(10)
    )
    if not key or not value or build.rank(query) == 5 or build.rank(key) == 5:
        raise record.unsupported("queries, keys and values packed into one tensor")
    width = build.known_dim(query, -1, "the size of its query")
    if record.output(3):
        raise record.unsupported("the scores as an output")
    # Keys of four dimensions are those of a cache: heads are split and the bias is added.
    from_cache = build.rank(key) == 4
    if projection_bias:
        rest = build.known_dim(projection_bias, 0, "the size of its bias")
        parts = build.multi(
            "Split", 3, projection_bias, build.ints(width, width, rest - 2 * width), axis=0
        )
        query = build.op("Add", query, parts[0])
        if not from_cache:
            key, value = build.op("Add", key, parts[1]), build.op("Add", value, parts[2])
    query = split_heads(build, query, heads)
    if not from_cache:
        key, value = split_heads(build, key, heads), split_heads(build, value, heads)
    if past_key and past_length:
        held = build.shape(record.input(1))
        count = held[2 if from_cache else 1] if held else None
        return _with_buffer(build, query, key, value, width // heads, count)
    if past_length or beams:
        raise record.unsupported("a length of the past, or origins of beams, without a past")
    if past_key:
        key = build.op("Concat", past_key, key, axis=2)
        value = build.op("Concat", past_value, value, axis=2)
    build.give(1, key)
    build.give(2, value)
    return _attend(build, query, key, value, width // heads, bias, mask)


def _with_buffer(
    build: Rewrite, query: str, key: str, value: str, size: int, count: Dim
) -> list[OpRecord]:
    """Attention whose past is a buffer with room for the present, which input 8 says where to put.

    What lies behind the present stays in the buffer and is not seen. As in ONNX Runtime, beams
    (input 9) differ when there is one query for each text, not in prompts.
    """
    record = build.record
    *_, mask, bias, _, _, _, beams = record.operands(10)
    length = build.dim(record.required(6), 2)
    first = build.op("Reshape", record.required(8), build.ints(1, 1))
    first = build.cast(first, DType.I64)
    where = places(build, length, first, key, count)
    present = [
        write(build, cache, part, where, behind=cache)
        for cache, part in ((record.required(6), key), (record.required(7), value))
    ]
    for index, part in enumerate(present, 1):
        build.give(index, part)
    if beams:
        if not isinstance(count, int):
            raise record.unsupported("beams, where the number of queries is not known")
        if count == 1:
            present = [by_beam(build, part, beams, first) for part in present]
    key, value = present
    inside = build.op("Less", where.every, where.end)
    # A buffer may hold anything behind its content, and nothing times infinity is not nothing.
    behind = build.op("Unsqueeze", inside, build.ints(1, 3))
    value = build.op("Where", behind, value, build.like(0.0, value))
    if bias:
        bias = lengthened(build, bias, -1, build.known_rank(bias), length)
    if mask:
        rank = build.known_rank(mask)
        if rank == 4:
            raise record.unsupported("a mask of four dimensions with a past that is a buffer")
        if rank > 1:
            mask = lengthened(build, mask, -1, rank, length)
        bias = masked(build, bias, mask, query, key, rank)
    if record.integer("unidirectional", 0):
        rows = build.counted(build.op("Shape", query, start=2, end=3))
        rows = build.op("Add", build.op("Reshape", first, build.ints(1)), rows)
        rows = build.op("Unsqueeze", rows, build.ints(1))
        inside = build.op("LessOrEqual", where.every, rows)
    scale = scale_of(record, size)
    return attend(build, query, key, value, scale=scale, bias=bias, visible=inside)


def _rotary_embedding(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """ONNX's own operator, whose positions come last and are stated for every word."""
    data, positions = record.required(0), record.required(1)
    if record.number("scale", 1.0) != 1.0:
        raise record.unsupported("a scale of the positions")
    rank = build.known_rank(data)
    if build.rank(positions) == 1:
        positions = _counted_positions(build, data, positions, length_axis=1 if rank == 3 else 2)
    attrs = {
        name: record.integer(name, 0)
        for name in ("interleaved", "num_heads", "rotary_embedding_dim")
        if name in record.attrs
    }
    if rank == 3 and not attrs.get("num_heads"):
        # Without a number of heads, a head is as wide as the cache says.
        width, half = (
            build.known_dim(each, -1, "the number of heads") for each in (data, record.required(2))
        )
        attrs["num_heads"] = width // (2 * half)
    return build.result(
        "RotaryEmbedding", data, record.required(2), record.required(3), positions, **attrs
    )


def _counted_positions(build: Rewrite, data: str, first: str, length_axis: int) -> str:
    """`first`, `first` + 1, ... for each word of each text: [batch, length]"""
    counted = build.op("Add", build.counted(build.dim(data, length_axis)), first)
    full = build.op("Concat", build.dim(data, 0), build.dim(data, length_axis), axis=0)
    return build.op("Expand", counted, full)


RESTATEMENTS: Mapping[str, Restate] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head_attention,
    "RotaryEmbedding": _rotary_embedding,
}
