"""The LSTM with quantised weights."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite
from whence.types import DType


def _dynamic_quantise_lstm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """An LSTM with the real weights. ONNX Runtime also rounds the activations to 8 bits at every
    step, which only loses precision.
    """
    weight = _real(build, record.required(1), record.required(8), record.required(9))
    recurrent = _real(build, record.required(2), record.required(10), record.required(11))
    inputs = [
        record.required(0),
        weight,
        recurrent,
        *(record.input(index) for index in range(3, 8)),
    ]
    build.into(record.outputs, "LSTM", *inputs, **record.attrs)
    return build.records


def _real(build: Rewrite, quantised: str, scale: str, zero: str) -> str:
    """The weights of [directions, depth, gates] as [directions, gates, depth]; a scale for each
    direction, or for each gate of each.
    """
    whole = build.rank(scale) == 1
    axes = build.ints(1, 2) if whole else build.ints(1)
    centred = build.op(
        "Sub",
        build.cast(quantised, DType.F32),
        build.cast(build.op("Unsqueeze", zero, axes), DType.F32),
    )
    return build.op(
        "Transpose", build.op("Mul", centred, build.op("Unsqueeze", scale, axes)), perm=(0, 2, 1)
    )


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("DynamicQuantizeLSTM", EVERY_OPSET, _dynamic_quantise_lstm),
)
