"""Batch, group and mean-variance normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite


def _per_activation(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Statistics used to be allowed per activation instead of per channel. y = (x - mean) /
    sqrt(var + eps) * scale + bias
    """
    if record.integer("spatial", 1):
        return [record.with_(attrs=record.attrs_without("spatial"))]
    if any(record.outputs[1:]):
        raise record.unsupported("training with statistics per activation (spatial = 0)")
    data, scale, bias, mean, variance = (record.required(index) for index in range(5))
    deviation = build.op(
        "Sqrt", build.op("Add", variance, build.like(record.number("epsilon", 1e-5), variance))
    )
    normal = build.op("Div", build.op("Sub", data, mean), deviation)
    return build.result("Add", build.op("Mul", normal, scale), bias)


def _training_by_outputs(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Before opset 14, asking for the running statistics meant training."""
    if not any(record.outputs[1:]):
        return [record.with_(outputs=record.outputs[:1])]
    if any(record.outputs[3:]):
        raise record.unsupported(
            "the statistics saved for a backward pass; export the model for inference"
        )
    return [record.with_(outputs=record.outputs[:3], attrs={**record.attrs, "training_mode": 1})]


def _group_parameters(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Scale and bias were one number per group; now they are one per channel."""
    groups = record.integer("num_groups", 1)
    data = record.required(0)
    channels = build.dim(data, 1)
    pattern = build.op(
        "Concat", build.ints(groups), build.op("Div", channels, build.ints(groups)), axis=0
    )

    def per_channel(parameter: str) -> str:
        column = build.op("Unsqueeze", parameter, build.ints(1))
        return build.op("Reshape", build.op("Expand", column, pattern), build.ints(-1))

    return build.result(
        "GroupNormalization",
        data,
        per_channel(record.required(1)),
        per_channel(record.required(2)),
        **record.attrs,
    )


def _experimental_mean_variance(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """The experimental form: over spatial dimensions or channels too, with or without variance."""
    data = record.required(0)
    first = 1 if record.integer("across_channels", 0) else 2
    axes = build.ints(*range(first, build.known_rank(data)))
    centred = build.op("Sub", data, build.op("ReduceMean", data, axes, keepdims=1))
    if not record.integer("normalize_variance", 1):
        return build.result("Identity", centred)
    variance = build.op("ReduceMean", build.op("Mul", centred, centred), axes, keepdims=1)
    return build.result(
        "Div",
        centred,
        build.op("Sqrt", build.op("Add", variance, build.constant(np.array(1e-9, np.float32)))),
    )


def layer_norm_of_mixed_types(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Before it was ONNX's, it took data and parameters of different types and answered in the type
    of the parameters.
    """
    data, parameters = build.dtype(record.required(0)), build.dtype(record.required(1))
    if data is None or parameters is None or data is parameters:
        return [record]
    converted = build.cast(record.inputs[0], parameters)
    return [*build.records, record.with_(inputs=[converted, *record.inputs[1:]])]


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("BatchNormalization", 9, _per_activation),
    Adapter("BatchNormalization", 14, _training_by_outputs),
    Adapter("GroupNormalization", 21, _group_parameters),
    Adapter("LayerNormalization", 17, layer_norm_of_mixed_types),
    Adapter("MeanVarianceNormalization", 9, _experimental_mean_variance, newest=True),
)
