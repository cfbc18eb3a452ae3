"""Normalisations, said in means and products.

Circle has some of them as operators. They are written where the first file had them: not every
runtime that loads Circle knows them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.schema import Option


def _batch(call: ExportCall) -> None:
    """With known statistics: x · s + t along axis 1."""
    if call.integer("training_mode") or len(call.node.outputs) > 1:
        call.unsupported("a normalisation in training")
    scale, shift, mean, variance = (call.value(index) for index in range(1, 5))
    if scale is None or shift is None or mean is None or variance is None:
        call.unsupported("its statistics are computed while the model runs")
    factor = scale.astype(np.float64) / np.sqrt(
        variance.astype(np.float64) + call.number("epsilon", 1e-5)
    )
    spread = (-1,) + (1,) * (call.rank(0) - 2)
    kind = call.output_type()
    scaled = call.step(
        "MUL", [call.input(0), call.const(factor.astype(np.float32).reshape(spread))], kind
    )
    offset = (shift.astype(np.float64) - mean.astype(np.float64) * factor).astype(np.float32)
    call.emit("ADD", [scaled, call.const(offset.reshape(spread))])


def _instance(call: ExportCall) -> None:
    """Over the spatial axes of a channels-first tensor, for each sample and channel."""
    rank = call.rank(0)
    scale, shift = call.value(1), call.value(2)
    epsilon = call.number("epsilon", 1e-5)
    if (
        call.is_circle
        and call.was("INSTANCE_NORM")
        and rank == 4
        and scale is not None
        and shift is not None
    ):
        others = [call.const(scale), call.const(shift)]
        call.emit_channels_last("INSTANCE_NORM", {"epsilon": epsilon}, others)
        return
    normal = _standardised(call, tuple(range(2, rank)), epsilon)
    spread = (-1,) + (1,) * (rank - 2)
    if scale is None or shift is None:
        call.unsupported("its scale or shift is computed while the model runs")
    scaled = call.step("MUL", [normal, call.const(scale.reshape(spread))], call.output_type())
    call.emit("ADD", [scaled, call.const(shift.reshape(spread))])


def _standardised(call: ExportCall, axes: Sequence[int], epsilon: float) -> int:
    """(x - mean) / sqrt(variance + ε) over some axes."""
    kind = call.type(0)
    mean = _mean(call, call.input(0), axes)
    centred = call.step("SUB", [call.input(0), mean], kind)
    return _over_root_mean_square(call, centred, axes, epsilon)


def _mean(call: ExportCall, tensor: int, axes: Sequence[int]) -> int:
    inputs = [tensor, call.ints(axes)]
    return call.step("MEAN", inputs, call.reduced(0, axes), {"keep_dims": True})


def _over_root_mean_square(
    call: ExportCall, tensor: int, axes: Sequence[int], epsilon: float
) -> int:
    """x / sqrt(mean(x²) + ε) over some axes."""
    kind, reduced = call.type(0), call.reduced(0, axes)
    mean = _mean(call, call.step("SQUARE", [tensor], kind), axes)
    total = call.step("ADD", [mean, call.scalar(epsilon, kind)], reduced)
    return call.step("MUL", [tensor, call.step("RSQRT", [total], reduced)], kind)


def _layer(call: ExportCall) -> None:
    if any(call.is_used(index) for index in range(1, len(call.node.outputs))):
        call.unsupported("the statistics of a normalisation")
    rank = call.rank(0)
    normal = _standardised(
        call, tuple(range(call.axis("axis", -1, rank), rank)), call.number("epsilon", 1e-5)
    )
    made = [call.output(0)]
    if call.has(2):
        scaled = call.step("MUL", [normal, call.input(1)], call.output_type())
        call.emit("ADD", [scaled, call.input(2)], outputs=made)
    else:
        call.emit("MUL", [normal, call.input(1)], outputs=made)


def _rms(call: ExportCall) -> None:
    rank = call.rank(0)
    axis = call.axis("axis", -1, rank)
    epsilon = call.number("epsilon", 1e-5)
    if call.is_circle and call.was("RMS_NORM") and axis == rank - 1 and rank >= 2:
        call.emit("RMS_NORM", [call.input(0), call.input(1)], {"epsilon": epsilon})
        return
    normal = _over_root_mean_square(call, call.input(0), range(axis, rank), epsilon)
    call.emit("MUL", [normal, call.input(1)])


def _local_response(call: ExportCall) -> None:
    """Over neighbouring channels; the graph's has channels second, and takes the mean of squares
    where the file's takes the sum.
    """
    size = call.integer("size")
    if call.rank(0) != 4 or size % 2 != 1:
        call.unsupported(f"over {size} channels of {call.type(0)}")
    options: dict[str, Option] = {
        "radius": size // 2,
        "bias": call.number("bias", 1.0),
        "alpha": call.number("alpha", 1e-4) / size,
        "beta": call.number("beta", 0.75),
    }
    call.emit_channels_last("LOCAL_RESPONSE_NORMALIZATION", options)


def _length(call: ExportCall) -> None:
    """x / |x| along one axis."""
    axis, p = call.axis("axis", -1, call.rank(0)), call.integer("p", 2)
    if p != 2 or axis != call.rank(0) - 1:
        call.unsupported(f"the norm {p} along axis {axis}")
    call.emit("L2_NORMALIZATION", [call.input(0)])


EXPORTS: Exports = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LRN": _local_response,
    "LayerNormalization": _layer,
    "LpNormalization": _length,
    "RMSNormalization": _rms,
}
