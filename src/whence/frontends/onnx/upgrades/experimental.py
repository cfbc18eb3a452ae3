"""Operators that ONNX had as experiments; old models for ONNX Runtime still have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite, as_named

_END = np.iinfo(np.int64).max


def _affine(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """alpha * x + beta"""
    data = record.required(0)
    scaled = build.op("Mul", data, build.like(record.number("alpha", 1.0), data))
    return build.result("Add", scaled, build.like(record.number("beta", 0.0), data))


def _image_scaler(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """scale * x + bias of the channel"""
    data = record.required(0)
    scaled = build.op("Mul", data, build.like(record.number("scale", 1.0), data))
    bias = np.array(record.numbers("bias") or (0.0,)).reshape(1, -1, 1, 1)
    dtype = build.dtype(data)
    return build.result(
        "Add", scaled, build.constant(bias.astype(np.float32 if dtype is None else dtype.numpy))
    )


def _crop(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """A border of (left, top, right, bottom) is cut off; with a scale of (height, width), that much
    is kept from the corner on.
    """
    border, size = record.integers("border"), record.integers("scale")
    if border is None or len(border) != 4 or (size is not None and len(size) != 2):
        raise record.unsupported("a border that is not four numbers, or a scale that is not two")
    left, top, right, bottom = border
    ends = (
        (-bottom if bottom else _END, -right if right else _END)
        if size is None
        else (top + size[0], left + size[1])
    )
    return build.result(
        "Slice", record.required(0), build.ints(top, left), build.ints(*ends), build.ints(2, 3)
    )


def _scaled(record: OpRecord, build: Rewrite, op: str) -> Sequence[OpRecord]:
    """alpha * f(beta * x)"""
    data = record.required(0)
    inner = build.op("Mul", data, build.like(record.number("beta", 1.0), data))
    return build.result("Mul", build.op(op, inner), build.like(record.number("alpha", 1.0), data))


def _scale(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = record.required(0)
    return build.result("Mul", data, build.like(record.number("scale", 1.0), data))


def _given_tensor_fill(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    values, shape = record.numbers("values"), record.integers("shape")
    if record.inputs or record.integer("input_as_shape", 0) or values is None or shape is None:
        raise record.unsupported("only a fill whose values and shape are attributes is known")
    if any(dim < 0 for dim in shape) or int(np.prod(shape, dtype=object)) != len(values):
        raise record.unsupported(f"{len(values)} values do not fill the shape {list(shape)}")
    return build.result("Constant", value=np.array(values, np.float32).reshape(shape))


def root_mean_square(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """x / sqrt(mean(x²) + eps) * scale over the dimensions from `axis` on; output 1, when wanted,
    is the factor of x.
    """
    data, scale = record.required(0), record.required(1)
    kind = build.dtype(scale)
    if kind is not None and build.dtype(data) not in (None, kind):
        data = build.cast(data, kind)
    axis, epsilon = record.integer("axis", -1), record.number("epsilon", 1e-5)
    if not record.output(1):
        return build.result(
            "RMSNormalization", data, scale, axis=axis, epsilon=epsilon, stash_type=1
        )
    rank = build.known_rank(record.required(0))
    axes = build.ints(*range(record.axis(-1, rank), rank))
    square = build.op("ReduceMean", build.op("Mul", data, data), axes, keepdims=1)
    build.into(
        [record.output(1)],
        "Reciprocal",
        build.op("Sqrt", build.op("Add", square, build.like(epsilon, scale))),
    )
    return build.result("Mul", build.op("Mul", data, record.output(1)), scale)


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("Affine", EVERY_OPSET, _affine),
    Adapter("Crop", EVERY_OPSET, _crop),
    # Slice as it is since opset 10, without steps.
    Adapter("DynamicSlice", EVERY_OPSET, partial(as_named, op="Slice")),
    Adapter("GivenTensorFill", EVERY_OPSET, _given_tensor_fill),
    Adapter("ImageScaler", EVERY_OPSET, _image_scaler),
    Adapter("ParametricSoftplus", EVERY_OPSET, partial(_scaled, op="Softplus")),
    Adapter("Scale", EVERY_OPSET, _scale),
    Adapter("ScaledTanh", EVERY_OPSET, partial(_scaled, op="Tanh")),
    Adapter("SimplifiedLayerNormalization", EVERY_OPSET, root_mean_square),
)
