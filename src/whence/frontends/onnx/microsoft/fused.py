"""Convolutions and matrix products with their neighbours fused in."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.onnx.microsoft.activations import apply_activation
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite


def channels_first(build: Rewrite, data: str) -> str:
    """Moves the last dimension behind the first."""
    rank = build.known_rank(data)
    return build.op("Transpose", data, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(build: Rewrite, data: str, rank: int) -> list[OpRecord]:
    """Moves the second dimension to the end: the record's result."""
    return build.result("Transpose", data, perm=(0, *range(2, rank), 1))


def _fused_conv(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """activation(conv(x, w, b) + z)"""
    attrs = record.attrs_without("activation", "activation_params")
    *_, bias, addend = record.operands(4)
    data = build.op("Conv", record.required(0), record.required(1), bias, **attrs)
    if addend:
        data = build.op("Add", data, addend)
    return _activated(build, data)


def _activated(build: Rewrite, data: str) -> list[OpRecord]:
    record = build.record
    activation = record.text("activation", "")
    if activation:
        return apply_activation(build, data, activation, record.numbers("activation_params") or ())
    # Nothing follows: the operator made last makes the result itself.
    build.records[-1].outputs = [record.output(0)]
    build.records[-1].name = record.name
    return build.records


def _nhwc_fused_conv(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    rank = build.known_rank(record.required(0))
    attrs = record.attrs_without("activation", "activation_params", "channels_last")
    *_, bias, addend = record.operands(4)
    data = build.op(
        "Conv",
        channels_first(build, record.required(0)),
        record.required(1),
        bias,
        **attrs,
    )
    data = build.op("Transpose", data, perm=(0, *range(2, rank), 1))
    if addend:
        data = build.op("Add", data, addend)
    return _activated(build, data)


def _nhwc_max_pool(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    rank = build.known_rank(record.required(0))
    return channels_last(
        build, build.op("MaxPool", channels_first(build, record.required(0)), **record.attrs), rank
    )


def _fused_gemm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    fused = ("activation", "activation_alpha", "activation_beta", "activation_gamma")
    data = build.op("Gemm", *record.inputs, **record.attrs_without(*fused))
    params = [record.number(name, 0.0) for name in fused[1:] if name in record.attrs]
    return apply_activation(build, data, record.text("activation", ""), params)


def _fused_mat_mul(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """alpha * a' @ b', with batch dimensions transposed first, then the last two."""
    left = _transposed(
        build, record.required(0), record.integer("transBatchA", 0), record.integer("transA", 0)
    )
    right = _transposed(
        build, record.required(1), record.integer("transBatchB", 0), record.integer("transB", 0)
    )
    alpha = record.number("alpha", 1.0)
    if alpha == 1.0 and not record.text("activation", ""):
        return build.result("MatMul", left, right)
    data = build.op("MatMul", left, right)
    if alpha != 1.0:
        data = build.op("Mul", data, build.like(alpha, record.required(0)))
    if record.text("activation", ""):
        params = [
            record.number(name, 0.0)
            for name in ("activation_alpha", "activation_beta", "activation_gamma")
            if name in record.attrs
        ]
        return apply_activation(build, data, record.text("activation", ""), params)
    return _activated(build, data)


def _transposed(build: Rewrite, data: str, batch: int, last: int) -> str:
    if not batch and not last:
        return data
    rank = build.known_rank(data)
    if rank < 2:
        return data
    # With the batch moved, the first dimension is the row: [m, b..., k] stands for [b..., m, k].
    order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    if last:
        order[-2], order[-1] = order[-1], order[-2]
    return data if order == list(range(rank)) else build.op("Transpose", data, perm=tuple(order))


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("FusedConv", EVERY_OPSET, _fused_conv),
    Adapter("FusedGemm", EVERY_OPSET, _fused_gemm),
    Adapter("FusedMatMul", EVERY_OPSET, _fused_mat_mul),
    Adapter("FusedMatMulActivation", EVERY_OPSET, _fused_mat_mul),
    Adapter("TransposeMatMul", EVERY_OPSET, _fused_mat_mul),
    Adapter("NhwcConv", EVERY_OPSET, _nhwc_fused_conv),
    Adapter("NhwcFusedConv", EVERY_OPSET, _nhwc_fused_conv),
    Adapter("NhwcMaxPool", EVERY_OPSET, _nhwc_max_pool),
)
