"""Attention whose heads share keys and values in groups, with its cache: what language models are
exported with.

In single precision, and without a bias or a sink, it stays what it is
(`ops/neural/grouped_attention.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.frontends.onnx.microsoft.attention import lowest, scale_of, split_heads
from whence.frontends.onnx.microsoft.cache import lengthened, places, write
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite
from whence.ops.definition import Attr
from whence.types import DType


def _group_query_attention(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Causal attention over the past and the present.

    Input 5 says for each text at which place its last key stands, input 6 how many places the
    longest text has. A prompt, whose queries are all there is, begins at the first place and may be
    padded behind its end.
    """
    if record.output(3):
        raise record.unsupported("the scores as an output")
    if record.input(12) or record.input(13):
        raise record.unsupported("a cache of quantised keys and values")
    if _is_plain(build):
        return [record]
    heads, groups = record.positive("num_heads", 1), record.positive("kv_num_heads", 1)
    query, key, value, size = _projections(build, heads, groups)
    count = build.dim(record.required(0), 1)
    total, last = (
        build.cast(build.op("Reshape", given, build.ints(*shape)), DType.I64)
        for given, shape in ((record.required(6), (1,)), (record.required(5), (-1, 1)))
    )
    first = build.op(
        "Where",
        build.op("Equal", count, total),
        build.ints(0),
        build.op("Sub", build.op("Add", last, build.ints(1)), count),
    )
    rows = build.op("Add", first, build.counted(count))
    if record.integer("do_rotary", 0):
        positions = record.input(9) or rows
        query, key = (_rotated(build, data, positions, size) for data in (query, key))
    if _has_past(build):
        key, value = _appended(build, (key, value), first, total)
    build.give(1, key)
    build.give(2, value)
    if _has_past(build):
        # A cache longer than what it holds is not looked at beyond.
        key, value = (
            build.op("Slice", data, build.ints(0), total, build.ints(2)) for data in (key, value)
        )
    visible = _visible(build, rows, last, key, record.integer("local_window_size", -1))
    return _attend(build, (query, key, value), heads, groups, size, visible)


def _is_plain(build: Rewrite) -> bool:
    """Can it stay what it is: in single precision, without a bias or a sink?"""
    record = build.record
    return (
        build.dtype(record.required(0)) is DType.F32
        and not any(record.input(index) for index in (10, 11))
        and record.integer("smooth_softmax", 0) <= 0
        and record.integer("qk_output", 0) == 0
        and bool(record.input(3)) == bool(record.input(4))
    )


def _has_past(build: Rewrite) -> bool:
    shape = build.shape(build.record.input(3)) if build.record.input(3) else (0, 0, 0, 0)
    return shape is None or shape[2] != 0


def _appended(build: Rewrite, present: tuple[str, str], first: str, total: str) -> tuple[str, str]:
    """The caches with the present written into them, lengthened where needed; zero behind it."""
    record = build.record
    shape = build.shape(record.required(0))
    length = build.op("Max", build.dim(record.required(3), 2), total)
    where = places(build, length, first, present[0], shape[1] if shape else None)
    key, value = (
        write(
            build,
            lengthened(build, record.required(index), 2, 4, length),
            data,
            where,
            behind=build.like(0.0, record.required(0)),
        )
        for index, data in ((3, present[0]), (4, present[1]))
    )
    return key, value


def _projections(build: Rewrite, heads: int, groups: int) -> tuple[str, str, str, int]:
    """Queries, keys and values with their heads split, and the width of a head. They may come
    packed into one tensor.
    """
    record = build.record
    width = build.known_dim(record.required(0), -1, "the size of its query")
    if record.input(1):
        parts, size = [record.required(0), record.input(1), record.required(2)], width // heads
    else:
        size = width // (heads + 2 * groups)
        parts = build.multi(
            "Split",
            3,
            record.required(0),
            build.ints(heads * size, groups * size, groups * size),
            axis=-1,
        )
    query, key, value = (
        split_heads(build, data, count)
        for data, count in zip(parts, (heads, groups, groups), strict=True)
    )
    return query, key, value, size


def _rotated(build: Rewrite, data: str, positions: str, size: int) -> str:
    record = build.record
    attrs: dict[str, Attr] = {"interleaved": record.integer("rotary_interleaved", 0)}
    cache = build.shape(record.required(7))
    if cache and isinstance(cache[-1], int) and 2 * cache[-1] < size:
        attrs["rotary_embedding_dim"] = 2 * cache[-1]
    return build.op(
        "RotaryEmbedding", data, record.required(7), record.required(8), positions, **attrs
    )


def _attend(
    build: Rewrite,
    parts: tuple[str, str, str],
    heads: int,
    groups: int,
    size: int,
    visible: str,
) -> list[OpRecord]:
    """Queries as [batch, groups, heads, length, size]: keys of a group are broadcast."""
    record, data = build.record, build.record.required(0)
    query, key, value = parts
    query = build.op("Mul", query, build.like(scale_of(record, size), data))
    apart = build.ints(groups, heads // groups, -1, size)
    query = build.op("Reshape", query, build.op("Concat", build.dim(data, 0), apart, axis=0))
    key, value = (build.op("Unsqueeze", each, build.ints(2)) for each in (key, value))
    scores = build.op("MatMul", query, build.op("Transpose", key, perm=(0, 1, 2, 4, 3)))
    cap = record.number("softcap", 0.0)
    if cap > 0:
        bound = build.like(cap, data)
        scores = build.op("Mul", build.op("Tanh", build.op("Div", scores, bound)), bound)
    if record.input(10):
        # The bias is the same for all heads, or there is one for each: its second dimension splits
        # like the queries'.
        bias = record.input(10)
        shape = build.shape(bias)
        single = shape is not None and shape[1] == 1
        split = build.op(
            "Concat",
            build.op("Shape", bias, start=0, end=1),
            build.ints(1, 1) if single else build.ints(groups, heads // groups),
            build.op("Shape", bias, start=2),
            axis=0,
        )
        bias = build.op("Reshape", bias, split)
        scores = build.op("Add", scores, bias)
    weights = _weights(build, build.op("Where", visible, scores, lowest(build)), heads, groups)
    context = build.op(
        "Reshape", build.op("MatMul", weights, value), build.ints(0, heads, -1, size)
    )
    return build.result(
        "Reshape", build.op("Transpose", context, perm=(0, 2, 1, 3)), build.ints(0, 0, -1)
    )


def _weights(build: Rewrite, scores: str, heads: int, groups: int) -> str:
    """The softmax of the scores. With a sink, one more score takes its share of the weight and is
    left out of the result: 0, or what input 11 says for each head.
    """
    record, data = build.record, build.record.required(0)
    sink = record.input(11)
    if not sink and record.integer("smooth_softmax", 0) <= 0:
        return build.op("Softmax", scores, axis=-1)
    extra = (
        build.op("Reshape", sink, build.ints(1, groups, heads // groups, 1, 1))
        if sink
        else build.like(0.0, data)
    )
    full = build.op("Concat", build.op("Shape", scores, start=0, end=4), build.ints(1), axis=0)
    joined = build.op("Concat", scores, build.op("Expand", extra, full), axis=-1)
    weights = build.op("Softmax", joined, axis=-1)
    return build.op("Slice", weights, build.ints(0), build.ints(-1), build.ints(-1))


def _visible(build: Rewrite, rows: str, last: str, key: str, window: int) -> str:
    """A query sees the keys up to its own place or the end of its text, and no farther back than
    the window: [batch, 1, 1, length, total] of booleans.
    """
    columns = build.counted(build.op("Shape", key, start=2, end=3))
    rows, ends = (
        build.op("Unsqueeze", each, build.ints(1, 2, 4))
        for each in (rows, build.op("Min", rows, last))
    )
    visible = build.op("LessOrEqual", columns, ends)
    if window <= 0:
        return visible
    return build.op(
        "And",
        visible,
        build.op("Greater", columns, build.op("Sub", rows, build.scalar_int(window))),
    )


RESTATEMENTS: Mapping[str, Restate] = {
    "GroupQueryAttention": _group_query_attention,
}
