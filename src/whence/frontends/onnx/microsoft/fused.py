"""Activations, and operators with their neighbours fused in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from whence.frontends.naming import quoted
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite
from whence.frontends.onnx.upgrades.softmax import as_result, flattened, shape_with
from whence.ops.definition import Attr


def _gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return [record.with_(attrs={"approximate": "none"})]


def _bias_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return build.result(
        "Gelu", build.op("Add", record.required(0), record.required(1)), approximate="none"
    )


def _fast_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = record.required(0)
    if record.input(1):
        data = build.op("Add", data, record.input(1))
    return build.result("Gelu", data, approximate="tanh")


def _quick_gelu(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """x * sigmoid(alpha * x)"""
    data = record.required(0)
    gate = build.op(
        "Sigmoid", build.op("Mul", data, build.like(record.number("alpha", 1.702), data))
    )
    return build.result("Mul", data, gate)


def _bias_softmax(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data, axis = record.required(0), record.integer("axis", 1)
    biased = build.op("Add", data, record.required(1))
    flattened(build, "Softmax", biased, axis, shape_with(build, data, axis))
    return as_result(build)


def _bias_dropout(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """dropout(data + bias) + residual"""
    *_, residual, ratio, training_mode = record.operands(5)
    data = build.op("Add", record.required(0), record.required(1))
    attrs: dict[str, Attr] = {"seed": record.integer("seed", 0)} if "seed" in record.attrs else {}
    dropped = build.scope.fresh(f"{record.name}/kept") if residual else record.output(0)
    build.into(
        [dropped, record.output(1)],
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


_NUMBERS = ("activation_alpha", "activation_beta", "activation_gamma")
_ACTIVATION = ("activation", "activation_params", *_NUMBERS)


def _activated(build: Rewrite, data: str) -> list[OpRecord]:
    """The activation that a fused operator names, with its numbers in ONNX Runtime's order: a list,
    or attributes of their own.
    """
    record = build.record
    activation = record.text("activation", "")
    params = record.numbers("activation_params") or tuple(
        record.number(name, 0.0) for name in _NUMBERS if name in record.attrs
    )
    if not activation:
        return as_result(build)
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
    raise record.unsupported(f"activation {quoted(activation)} with {len(params)} numbers")


def with_channels_second(
    build: Rewrite, data: str, make: Callable[[str], str], *, are_last: bool = True
) -> str:
    """What `make` makes of images, whose channels are brought from the end and back."""
    if not are_last:
        return make(data)
    rank = build.known_rank(build.record.required(0))
    made = make(build.op("Transpose", data, perm=(0, rank - 1, *range(1, rank - 1))))
    return build.op("Transpose", made, perm=(0, *range(2, rank), 1))


def _fused_conv(record: OpRecord, build: Rewrite, are_last: bool = False) -> Sequence[OpRecord]:
    """activation(conv(x, w, b) + z)"""
    attrs = record.attrs_without(*_ACTIVATION, "channels_last")
    *_, bias, addend = record.operands(4)
    data = with_channels_second(
        build,
        record.required(0),
        lambda data: build.op("Conv", data, record.required(1), bias, **attrs),
        are_last=are_last,
    )
    return _activated(build, build.op("Add", data, addend) if addend else data)


def _nhwc_max_pool(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    with_channels_second(
        build, record.required(0), lambda data: build.op("MaxPool", data, **record.attrs)
    )
    return as_result(build)


def _fused_gemm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    attrs = record.attrs_without(*_ACTIVATION)
    return _activated(build, build.op("Gemm", *record.inputs, **attrs))


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


RESTATEMENTS: Mapping[str, Restate] = {
    "Gelu": _gelu,
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "BiasSoftmax": _bias_softmax,
    "BiasDropout": _bias_dropout,
    "BitmaskDropout": _bitmask_dropout,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_mat_mul,
    "FusedMatMulActivation": _fused_mat_mul,
    "TransposeMatMul": _fused_mat_mul,
    "NhwcConv": partial(_fused_conv, are_last=True),
    "NhwcFusedConv": partial(_fused_conv, are_last=True),
    "NhwcMaxPool": _nhwc_max_pool,
}
