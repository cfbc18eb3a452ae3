"""Normalisation: over a batch, a layer, groups of channels."""

from __future__ import annotations

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _batch_norm(call: AtenCall) -> Value:
    for name in ("training", "use_input_stats"):
        if call.plain(name):
            call.unsupported(
                "it normalises by the batch's own statistics, as in training; call .eval() first"
            )
    x = call.ref("input")
    mean, variance = call.optional("running_mean"), call.optional("running_var")
    if mean is None or variance is None:
        call.unsupported("it has no running statistics to normalise by")
    scale, bias = _affine(call, call.meta("running_mean").shape[0])
    y = call.op(
        "BatchNormalization", x, scale, bias, mean, variance, epsilon=call.real("eps", 1e-5)
    )
    return call.alone(y)


def _affine(call: AtenCall, channels: int) -> tuple[Ref, Ref]:
    """Weight and bias; one and zero where there are none."""
    bias = call.optional("bias")
    zeros = np.zeros(channels, call.dtype("input").numpy)
    return _scale(call, (channels,)), call.const(zeros) if bias is None else bias


def _scale(call: AtenCall, shape: tuple[int, ...]) -> Ref:
    weight = call.optional("weight")
    return call.const(np.ones(shape, call.dtype("input").numpy)) if weight is None else weight


def _layer_norm(call: AtenCall) -> Value:
    shape = call.ints("normalized_shape")
    inputs = [call.ref("input"), _scale(call, shape), call.optional("bias")]
    y = call.op("LayerNormalization", *inputs, axis=-len(shape), epsilon=call.real("eps", 1e-5))
    return call.alone(y)


def _rms_norm(call: AtenCall) -> Value:
    shape = call.ints("normalized_shape")
    scale = _scale(call, shape)
    is_double = call.dtype("input") is DType.F64
    epsilon = call.real("eps", float(np.finfo(np.float64 if is_double else np.float32).eps))
    y = call.op("RMSNormalization", call.ref("input"), scale, axis=-len(shape), epsilon=epsilon)
    return call.alone(y)


def _by_channel(call: AtenCall, op: str, **attrs: Attr) -> Value:
    """With a weight and a bias for each channel."""
    scale, bias = _affine(call, int(call.meta("input").shape[1]))
    epsilon = call.real("eps", 1e-5)
    return call.alone(call.op(op, call.ref("input"), scale, bias, epsilon=epsilon, **attrs))


def _group_norm(call: AtenCall) -> Value:
    """Two variants, with the number of groups under different names."""
    groups = call.integer("num_groups" if "num_groups" in call.args else "group")
    return _by_channel(call, "GroupNormalization", num_groups=groups)


def _instance_norm(call: AtenCall) -> Value:
    if not call.plain("use_input_stats"):
        return _batch_norm(call)
    return _by_channel(call, "InstanceNormalization")


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
