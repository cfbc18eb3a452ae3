"""Activations, and operators with their neighbours fused in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.naming import quoted
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite
from whence.frontends.onnx.upgrades.softmax import flattened
from whence.ops.definition import Attr


def _gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return [record.with_(attrs={"approximate": "none"})]


def _bias_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return build.result(
        "Gelu", build.op("Add", record.required(0), record.required(1)), approximate="none"
    )


def _fast_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = (
        build.op("Add", record.required(0), record.input(1))
        if record.input(1)
        else record.required(0)
    )
    return build.result("Gelu", data, approximate="tanh")


def _quick_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """x * sigmoid(alpha * x)"""
    data = record.required(0)
    gate = build.op(
        "Sigmoid", build.op("Mul", data, build.like(record.number("alpha", 1.702), data))
    )
    return build.result("Mul", data, gate)


def _bias_softmax(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = build.op("Add", record.required(0), record.required(1))
    axis = record.integer("axis", 1)
    shape = build.shape(record.required(0))
    if shape is not None and axis in (-1, len(shape) - 1):
        return build.result("Softmax", data, axis=-1)
    return flattened(build, "Softmax", data, axis)


def _bias_dropout(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """dropout(data + bias) + residual"""
    *_, residual, ratio, training_mode = record.operands(5)
    data = build.op("Add", record.required(0), record.required(1))
    attrs: dict[str, Attr] = {"seed": record.integer("seed", 0)} if "seed" in record.attrs else {}
    dropped = build.scope.fresh(f"{record.name}/kept") if residual else record.output(0)
    build.into(
        [dropped, record.output(1)] if record.output(1) else [dropped],
        "Dropout",
        data,
        ratio,
        training_mode,
        **attrs,
    )
    return build.result("Add", dropped, residual) if residual else build.records


def _bitmask_dropout(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    if record.output(1):
        raise record.unsupported("the mask packed into bits; it is used only in training")
    return [record.with_(op="Dropout", outputs=record.outputs[:1])]


def apply_activation(
    build: Rewrite, data: str, activation: str, params: Sequence[float]
) -> list[OpRecord]:
    """The activation that a fused operator names; numbers in ONNX Runtime's order."""
    if activation in ("Relu", "Sigmoid", "Tanh"):
        return build.result(activation, data)
    if activation == "LeakyRelu":
        return build.result("LeakyRelu", data, alpha=params[0] if params else 0.01)
    if activation == "HardSigmoid":
        alpha, beta = (*params, 0.2, 0.5)[:2] if len(params) != 1 else (params[0], 0.5)
        return build.result("HardSigmoid", data, alpha=alpha, beta=beta)
    if activation == "Clip" and len(params) == 2:
        low, high = (build.constant(np.array(bound, np.float32)) for bound in params)
        return build.result("Clip", data, low, high)
    raise build.record.unsupported(f"activation {quoted(activation)} with {len(params)} numbers")


def channels_first(build: Rewrite, data: str, rank: int) -> str:
    """Moves the last dimension behind the first."""
    return build.op("Transpose", data, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(rank: int) -> tuple[int, ...]:
    """The order that moves the second dimension to the end."""
    return (0, *range(2, rank), 1)


_ACTIVATION = ("activation", "activation_params")


def _fused_conv(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """activation(conv(x, w, b) + z)"""
    attrs = record.attrs_without(*_ACTIVATION)
    *_, bias, addend = record.operands(4)
    data = build.op("Conv", record.required(0), record.required(1), bias, **attrs)
    return _activated(build, build.op("Add", data, addend) if addend else data)


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
    attrs = record.attrs_without(*_ACTIVATION, "channels_last")
    *_, bias, addend = record.operands(4)
    data = channels_first(build, record.required(0), rank)
    data = build.op("Conv", data, record.required(1), bias, **attrs)
    data = build.op("Transpose", data, perm=channels_last(rank))
    return _activated(build, build.op("Add", data, addend) if addend else data)


def _nhwc_max_pool(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    rank = build.known_rank(record.required(0))
    data = build.op("MaxPool", channels_first(build, record.required(0), rank), **record.attrs)
    return build.result("Transpose", data, perm=channels_last(rank))


_NUMBERS = ("activation_alpha", "activation_beta", "activation_gamma")


def _with_numbers(build: Rewrite, data: str) -> list[OpRecord]:
    """The activation whose numbers are attributes of their own."""
    record = build.record
    params = [record.number(name, 0.0) for name in _NUMBERS if name in record.attrs]
    return apply_activation(build, data, record.text("activation", ""), params)


def _fused_gemm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    attrs = record.attrs_without("activation", *_NUMBERS)
    return _with_numbers(build, build.op("Gemm", *record.inputs, **attrs))


def _fused_mat_mul(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """alpha * a' @ b', with batch dimensions transposed first, then the last two."""
    left, right = (
        _transposed(
            build,
            record.required(index),
            record.integer(f"transBatch{side}", 0),
            record.integer(f"trans{side}", 0),
        )
        for index, side in enumerate("AB")
    )
    data, alpha = build.op("MatMul", left, right), record.number("alpha", 1.0)
    if alpha != 1.0:
        data = build.op("Mul", data, build.like(alpha, record.required(0)))
    return _with_numbers(build, data) if record.text("activation", "") else _activated(build, data)


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
    Adapter("Gelu", EVERY_OPSET, _gelu),
    Adapter("BiasGelu", EVERY_OPSET, _bias_gelu),
    Adapter("FastGelu", EVERY_OPSET, _fast_gelu),
    Adapter("QuickGelu", EVERY_OPSET, _quick_gelu),
    Adapter("BiasSoftmax", EVERY_OPSET, _bias_softmax),
    Adapter("BiasDropout", EVERY_OPSET, _bias_dropout),
    Adapter("BitmaskDropout", EVERY_OPSET, _bitmask_dropout),
    Adapter("FusedConv", EVERY_OPSET, _fused_conv),
    Adapter("FusedGemm", EVERY_OPSET, _fused_gemm),
    Adapter("FusedMatMul", EVERY_OPSET, _fused_mat_mul),
    Adapter("FusedMatMulActivation", EVERY_OPSET, _fused_mat_mul),
    Adapter("TransposeMatMul", EVERY_OPSET, _fused_mat_mul),
    Adapter("NhwcConv", EVERY_OPSET, _nhwc_fused_conv),
    Adapter("NhwcFusedConv", EVERY_OPSET, _nhwc_fused_conv),
    Adapter("NhwcMaxPool", EVERY_OPSET, _nhwc_max_pool),
)
