"""Attention whose heads share keys and values in groups, with its cache: what language models are
exported with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whence.frontends.onnx.microsoft.attention import counted_positions, length_of, split_heads
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite, Scope
from whence.ops.definition import Attr
from whence.types import DType


def _group_query_attention(record: OpRecord, scope: Scope) -> Sequence[OpRecord]:
    """Causal attention over the past and the present. All texts of a batch must be of one length,
    as exporters for one text have it.
    """
    if record.integer("smooth_softmax", 0) > 0 or record.input(11):
        raise record.unsupported("a softmax with a sink")
    if record.output(3):
        raise record.unsupported("the scores as an output")
    build = Rewrite(record, scope)
    heads, groups = record.integer("num_heads", 1), record.integer("kv_num_heads", 1)
    query, key, value, size = _projections(build, heads, groups)
    total = build.op(
        "Cast", build.op("Reshape", record.required(6), build.ints(1)), to=int(DType.I64)
    )
    past = build.op("Sub", total, build.op("Shape", query, start=2, end=3))
    if record.integer("do_rotary", 0):
        positions = record.input(9) or counted_positions(
            build, record.required(0), past, length_axis=1
        )
        query, key = (_rotated(build, data, positions, size) for data in (query, key))
    if record.input(3):
        key, value = (
            build.op(
                "Concat",
                build.op("Slice", record.input(index), build.ints(0), past, build.ints(2)),
                data,
                axis=2,
            )
            for index, data in ((3, key), (4, value))
        )
    for index, data in ((1, key), (2, value)):
        if record.output(index):
            build.into(
                [record.output(index)], "Pad", data, _room(build, record.input(index + 2), total)
            )
    scale = record.number("scale", 0.0) or 1 / math.sqrt(size)
    return _attend(build, (query, key, value), heads, groups, size, scale)


def _projections(build: Rewrite, heads: int, groups: int) -> tuple[str, str, str, int]:
    """Queries, keys and values with their heads apart, and the width of a head. They may come
    packed into one tensor.
    """
    record = build.record
    shape = build.shape(record.required(0))
    width = shape[-1] if shape else None
    if not isinstance(width, int):
        raise record.unsupported("the size of its query is not known")
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


def _room(build: Rewrite, past: str, total: str) -> str:
    """How much to pad the present by: a cache longer than what it holds keeps its length."""
    if not past:
        return build.ints(0, 0, 0, 0, 0, 0, 0, 0)
    missing = build.op(
        "Max", build.op("Sub", build.op("Shape", past, start=2, end=3), total), build.ints(0)
    )
    return build.op("Concat", build.ints(0, 0, 0, 0, 0, 0), missing, build.ints(0), axis=0)


def _attend(
    build: Rewrite, parts: tuple[str, str, str], heads: int, groups: int, size: int, scale: float
) -> list[OpRecord]:
    """Queries as [batch, groups, heads of a group, length, size], so that the keys and values of a
    group are broadcast.
    """
    record, data = build.record, build.record.required(0)
    query, key, value = parts
    visible = _visible(build, query, key, record.integer("local_window_size", -1))
    query = build.op("Mul", query, build.like(scale, data))
    query = build.op(
        "Reshape",
        query,
        build.op(
            "Concat", build.dim(data, 0), build.ints(groups, heads // groups, -1, size), axis=0
        ),
    )
    key, value = (build.op("Unsqueeze", each, build.ints(2)) for each in (key, value))
    scores = build.op("MatMul", query, build.op("Transpose", key, perm=(0, 1, 2, 4, 3)))
    cap = record.number("softcap", 0.0)
    if cap > 0:
        bound = build.like(cap, data)
        scores = build.op("Mul", build.op("Tanh", build.op("Div", scores, bound)), bound)
    if record.input(10):
        # The bias is the same for all heads, or there is one for each: its second dimension splits
        # like the queries'.
        shape = build.shape(record.input(10))
        single = shape is not None and shape[1] == 1
        bias = build.op(
            "Reshape",
            record.input(10),
            build.op("Concat", *_bias_shape(build, single, groups, heads), axis=0),
        )
        scores = build.op("Add", scores, bias)
    dtype = build.dtype(data) or DType.F32
    lowest = build.like(-65504.0 if dtype is DType.F16 else float(np.finfo(np.float32).min), data)
    weights = build.op("Softmax", build.op("Where", visible, scores, lowest), axis=-1)
    context = build.op(
        "Reshape", build.op("MatMul", weights, value), build.ints(0, heads, -1, size)
    )
    return build.result(
        "Reshape", build.op("Transpose", context, perm=(0, 2, 1, 3)), build.ints(0, 0, -1)
    )


def _bias_shape(build: Rewrite, single: bool, groups: int, heads: int) -> list[str]:
    bias = build.record.input(10)
    ends = build.op("Shape", bias, start=2)
    return [
        build.op("Shape", bias, start=0, end=1),
        build.ints(1, 1) if single else build.ints(groups, heads // groups),
        ends,
    ]


def _visible(build: Rewrite, query: str, key: str, window: int) -> str:
    """Row i of the queries sees the keys up to its own place, counted from the end, and no farther
    back than the window.
    """
    length, total = length_of(build, query), length_of(build, key)
    zero, one = build.scalar_int(0), build.scalar_int(1)
    rows = build.op("Add", build.op("Range", zero, length, one), build.op("Sub", total, length))
    rows = build.op("Unsqueeze", rows, build.ints(1))
    columns = build.op("Range", zero, total, one)
    visible = build.op("LessOrEqual", columns, rows)
    if window <= 0:
        return visible
    return build.op(
        "And",
        visible,
        build.op("Greater", columns, build.op("Sub", rows, build.scalar_int(window))),
    )


GROUPED_ATTENTION: tuple[Adapter, ...] = (
    Adapter("GroupQueryAttention", EVERY_OPSET, _group_query_attention),
)
