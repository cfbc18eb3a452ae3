"""Activations and what ONNX Runtime fuses with them."""

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


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("Gelu", EVERY_OPSET, _gelu),
    Adapter("BiasGelu", EVERY_OPSET, _bias_gelu),
    Adapter("FastGelu", EVERY_OPSET, _fast_gelu),
    Adapter("QuickGelu", EVERY_OPSET, _quick_gelu),
    Adapter("BiasSoftmax", EVERY_OPSET, _bias_softmax),
    Adapter("BiasDropout", EVERY_OPSET, _bias_dropout),
    Adapter("BitmaskDropout", EVERY_OPSET, _bitmask_dropout),
)
