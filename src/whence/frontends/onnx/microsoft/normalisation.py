"""Layer normalisation and its fusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whence.frontends.onnx.record import OpRecord, Restate, Rewrite
from whence.frontends.onnx.upgrades.experimental import root_mean_square
from whence.frontends.onnx.upgrades.normalisation import layer_norm_of_mixed_types
from whence.types import DType


def _skip_sum(build: Rewrite, bias: str) -> str:
    """input + skip + bias, which is also the operator's fourth output."""
    record = build.record
    total = record.output(3) or build.scope.fresh(f"{record.name}/Add")
    inner = record.required(0), record.required(1)
    if bias:
        inner = build.op("Add", *inner), bias
    build.into([total], "Add", *inner)
    return total


def _skip_layer_norm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    *_, beta, bias = record.operands(5)
    total = _skip_sum(build, bias)
    outputs = [record.output(index) for index in range(3)]
    return _normalised(build, outputs, total, record.required(2), beta)


def _normalised(
    build: Rewrite, outputs: Sequence[str], data: str, scale: str, beta: str
) -> list[OpRecord]:
    epsilon = build.record.number("epsilon", 1e-12)
    build.into(outputs, "LayerNormalization", data, scale, beta, axis=-1, epsilon=epsilon)
    return build.records


def _skip_simplified_layer_norm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    if record.output(1) or record.output(2):
        raise record.unsupported("the statistics saved for a backward pass")
    total = _skip_sum(build, record.input(3))
    return build.result(
        "RMSNormalization",
        total,
        record.required(2),
        axis=-1,
        epsilon=record.number("epsilon", 1e-12),
        stash_type=1,
    )


def _layer_norm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return layer_norm_of_mixed_types(record.with_(), build)


def _embed_layer_norm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Layer norm of word + position + segment embeddings, and the unmasked words of each text."""
    words = record.required(0)
    total = build.op("Gather", record.required(2), words, axis=0)
    _, segments, _, _, segment_table, _, beta, mask, positions = record.operands(9)
    if not positions:
        positions = build.counted(build.dim(words, 1))
    total = build.op("Add", total, build.op("Gather", record.required(3), positions, axis=0))
    if segments and segment_table:
        total = build.op("Add", total, build.op("Gather", segment_table, segments, axis=0))
    build.give(2, total)
    if record.output(1):
        if mask:
            ones = build.cast(mask, DType.I32)
            build.into([record.output(1)], "ReduceSum", ones, build.ints(1), keepdims=0)
        else:
            build.into(
                [record.output(1)],
                "ConstantOfShape",
                build.dim(words, 0),
                value=np.zeros(1, np.int32),
            )
    return _normalised(build, record.outputs[:1], total, record.required(5), beta)


RESTATEMENTS: Mapping[str, Restate] = {
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": root_mean_square,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
}
