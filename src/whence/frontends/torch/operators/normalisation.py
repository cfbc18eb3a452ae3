"""Normalisation: over a batch, a layer, groups of channels."""

from __future__ import annotations

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.types import DType


def _batch_norm(call: AtenCall) -> Value:
    for name in ("training", "use_input_stats"):
        if name in call.args and call.plain(name):
            call.unsupported(
                "it normalises by the batch's own statistics, as in training; call .eval() first"
            )
    x = call.ref("input")
    channels = call.meta("running_mean" if call.has("running_mean") else "input").shape
    count = channels[0] if call.has("running_mean") else channels[1]
    mean, variance = call.optional("running_mean"), call.optional("running_var")
    if mean is None or variance is None:
        call.unsupported("it has no running statistics to normalise by")
    scale, bias = _affine(call, count)
    y = call.op(
        "BatchNormalization", x, scale, bias, mean, variance, epsilon=call.real("eps", 1e-5)
    )
    return _first_of(call, y)


def _first_of(call: AtenCall, y: Ref) -> Value:
    """Some variants have statistics for the gradient as further results."""
    meta = call.out_meta
    return [y, *[None] * (len(meta) - 1)] if isinstance(meta, list | tuple) else y


def _affine(call: AtenCall, channels: int) -> tuple[Ref, Ref]:
    """Weight and bias; one and zero where there are none."""
    dtype = call.dtype("input").numpy
    weight, bias = call.optional("weight"), call.optional("bias")
    return (
        call.const(np.ones(channels, dtype)) if weight is None else weight,
        call.const(np.zeros(channels, dtype)) if bias is None else bias,
    )


def _layer_norm(call: AtenCall) -> Value:
    shape = call.ints("normalized_shape")
    dtype = call.dtype("input").numpy
    weight, bias = call.optional("weight"), call.optional("bias")
    scale = call.const(np.ones(shape, dtype)) if weight is None else weight
    y = call.op(
        "LayerNormalization",
        call.ref("input"),
        scale,
        bias,
        axis=-len(shape),
        epsilon=call.real("eps", 1e-5),
    )
    return _first_of(call, y)


def _rms_norm(call: AtenCall) -> Value:
    shape = call.ints("normalized_shape")
    dtype = call.dtype("input")
    weight = call.optional("weight")
    scale = call.const(np.ones(shape, dtype.numpy)) if weight is None else weight
    epsilon = call.plain("eps")
    if epsilon is None:
        epsilon = float(np.finfo(np.float32 if dtype is not DType.F64 else np.float64).eps)
    y = call.op(
        "RMSNormalization", call.ref("input"), scale, axis=-len(shape), epsilon=float(epsilon)
    )
    return _first_of(call, y)


def _group_norm(call: AtenCall) -> Value:
    """Two variants, with the number of groups under different names."""
    groups = call.integer("num_groups" if "num_groups" in call.args else "group")
    channels = call.meta("input").shape[1]
    scale, bias = _affine(call, int(channels))
    y = call.op(
        "GroupNormalization",
        call.ref("input"),
        scale,
        bias,
        num_groups=groups,
        epsilon=call.real("eps", 1e-5),
    )
    return _first_of(call, y)


def _instance_norm(call: AtenCall) -> Value:
    if not call.plain("use_input_stats"):
        return _batch_norm(call)
    scale, bias = _affine(call, int(call.meta("input").shape[1]))
    attrs = {"epsilon": call.real("eps", 1e-5)}
    return call.emit("InstanceNormalization", [call.ref("input"), scale, bias], attrs)


MAPPINGS: Mappings = {
    "aten::batch_norm": _batch_norm,
    "aten::_native_batch_norm_legit_no_training": _batch_norm,
    "aten::native_batch_norm": _batch_norm,
    "aten::_native_batch_norm_legit": _batch_norm,
    "aten::_native_batch_norm_legit_functional": _batch_norm,
    "aten::layer_norm": _layer_norm,
    "aten::native_layer_norm": _layer_norm,
    "aten::rms_norm": _rms_norm,
    "aten::_fused_rms_norm": _rms_norm,
    "aten::group_norm": _group_norm,
    "aten::native_group_norm": _group_norm,
    "aten::instance_norm": _instance_norm,
}
