"""Operators on codes, QLinearConv and QLinearMatMul, said as dequantise, compute, quantise: the one
form that passes know.

Where scales or zero points are computed, or not float32, the operator stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite
from whence.ops.definition import Attr


def _are_known(record: OpRecord, build: Rewrite) -> bool:
    """Are scales and zero points of both operands and of the result constants: the scales float32,
    for a tensor or for one axis of it?
    """
    values = [build.scope.value_of(record.required(index)) for index in (1, 4, 6, 2, 5, 7)]
    return all(
        value is not None and value.ndim <= 1 and (index >= 3 or value.dtype == np.float32)
        for index, value in enumerate(values)
    )


def qlinear_conv(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """y = quantise(conv(dequantise(x), dequantise(w), b · x scale · w scale))."""
    if not _are_known(record, build):
        return [record.with_()]
    x = build.op("DequantizeLinear", *record.inputs[0:3])
    w = build.op("DequantizeLinear", *record.inputs[3:6], axis=0)
    bias = ""
    if record.input(8):
        units = np.asarray(build.scope.value_of(record.required(1))).reshape(()) * np.asarray(
            build.scope.value_of(record.required(4))
        )
        bias = build.op(
            "DequantizeLinear",
            record.required(8),
            build.constant(np.asarray(units, np.float32)),
            axis=0,
        )
    return build.result(
        "QuantizeLinear",
        build.op("Conv", x, w, bias, **record.attrs),
        record.required(6),
        record.required(7),
    )


def _qlinear_matmul(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """y = quantise(dequantise(a) · dequantise(b)); scales by row of a and y, by column of b."""
    if not _are_known(record, build):
        return [record.with_()]
    rows: dict[str, Attr] = {"axis": -2}
    a = build.op("DequantizeLinear", *record.inputs[0:3], **rows)
    b = build.op("DequantizeLinear", *record.inputs[3:6], axis=-1)
    return build.result(
        "QuantizeLinear", build.op("MatMul", a, b), record.required(6), record.required(7), **rows
    )


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("QLinearConv", EVERY_OPSET, qlinear_conv),
    Adapter("QLinearMatMul", EVERY_OPSET, _qlinear_matmul),
)
