"""Operators that read shapes, and those that build tensors: constants, ranges, fills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from whence.errors import ModelError
from whence.extent import is_symbolic, larger
from whence.ops.attributes import get_float, get_floats, get_int, get_ints, get_str, get_strs
from whence.ops.definition import Attrs, Call, OpClass, OpDef, Pattern, TypeQuery, Value
from whence.ops.operand import PARAMETER, named
from whence.ops.precision import narrow, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.shape_rules import clamp_range, shape_of, size_of
from whence.ops.types.type_rules import common_dtype, const_ints, target_dtype, tensor_type
from whence.types import DType, TensorType


def _shape(call: Call) -> Value:
    dims = tensor(call, 0).shape
    start, end = clamp_range(call.attrs, len(dims))
    return np.array(dims[start:end], np.int64)


def _size(call: Call) -> Value:
    return np.array(tensor(call, 0).size, np.int64)


def constant_value(attrs: Attrs) -> np.ndarray:
    """The tensor that a `Constant` operator's attributes describe."""
    if "value" in attrs:
        value = attrs["value"]
        if not isinstance(value, np.ndarray):
            raise ModelError(
                f"Constant: attribute value must be a tensor, found {type(value).__name__}"
            )
        return value
    if "value_float" in attrs:
        return np.array(get_float(attrs, "value_float", 0.0), np.float32)
    if "value_floats" in attrs:
        return np.array(get_floats(attrs, "value_floats"), np.float32)
    if "value_int" in attrs:
        return np.array(get_int(attrs, "value_int", 0), np.int64)
    if "value_ints" in attrs:
        return np.array(get_ints(attrs, "value_ints"), np.int64)
    if "value_string" in attrs:
        return np.array(get_str(attrs, "value_string", ""), np.object_)
    if "value_strings" in attrs:
        return np.array(get_strs(attrs, "value_strings"), np.object_)
    raise ModelError(f"Constant: no value among the attributes {sorted(attrs)}")


def _fill(attrs: Attrs) -> np.ndarray:
    """The one element that `ConstantOfShape` repeats."""
    value = attrs.get("value")
    if value is None:
        return np.zeros((), np.float32)
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise ModelError("ConstantOfShape: attribute value must be a tensor of one element")
    return value.reshape(())


def _constant_of_shape(call: Call) -> Value:
    shape, fill = tuple(int(dim) for dim in tensor(call, 0).reshape(-1)), _fill(call.attrs)
    if min(shape, default=0) < 0:
        raise ModelError(f"{list(shape)} is not a shape")
    return np.full(shape, fill, fill.dtype)


def _constant_of_shape_type(query: TypeQuery) -> TensorType:
    dtype, shape = DType.of(_fill(query.attrs)), const_ints(query, 0)
    if shape is None:
        length = tensor_type(query, 0).static_shape
        return TensorType(
            dtype,
            (None,) * length[0] if length and length[0] <= 64 else () if length == (0,) else None,
        )
    if any(dim < 0 for dim in shape):
        raise ModelError(f"{list(shape)} is not a shape")
    return TensorType(dtype, shape)


def range_length(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> int:
    """How many of start, start + delta, ... come before limit."""
    first, end, step = (item.reshape(-1)[0] for item in (start, limit, delta))
    items = [item.item() if isinstance(item, np.generic) else item for item in (first, end, step)]
    if any(map(is_symbolic, items)):
        # Among expressions, real numbers that are whole are as good.
        items = [int(it) if isinstance(it, float) and it.is_integer() else it for it in items]
    if all(isinstance(item, int) for item in items):
        return whole_range_length(*items)
    if step == 0:
        raise ModelError("Range: delta must not be 0")
    ratio = (float(end) - float(first)) / float(step)
    if not math.isfinite(ratio):
        raise ModelError(f"Range: from {first} to {end} by {step} is no finite number of elements")
    return max(math.ceil(ratio), 0)


def _range(call: Call) -> Value:
    start, limit, delta = (tensor(call, index) for index in range(3))
    places = np.arange(range_length(start, limit, delta)).astype(widen(start).dtype)
    # Each element is computed on its own, so that errors do not add up.
    return narrow(
        np.asarray(widen(start).reshape(()) + places * widen(delta).reshape(())), start.dtype
    )


def _range_type(query: TypeQuery) -> TensorType:
    dtype = common_dtype(query.op, (tensor_type(query, index) for index in range(3)))
    bounds = [
        value for value in query.values[:3] if isinstance(value, np.ndarray) and value.size == 1
    ]
    return TensorType(dtype, (range_length(*bounds) if len(bounds) == 3 else None,))


def whole_range_length(first: int, end: int, step: int) -> int:
    """How many of first, first + step, ... come before end; sizes may be expressions."""
    if step == 0:
        raise ModelError("Range: delta must not be 0")
    if step == -1:
        return larger(first - end, 0)
    return larger(end - first, 0) if step == 1 else larger(-((first - end) // step), 0)


def dimension_value(attrs: Attrs) -> np.ndarray:
    """The numbers and expressions of a `DimensionValue`, as an array of objects."""
    value = attrs["value"]
    if not isinstance(value, tuple):
        raise ModelError(f"DimensionValue: attribute value must be a list, found {value!r}")
    array = _objects(value)
    return array.reshape(()) if get_int(attrs, "scalar", 0) else array


def size_array(values: Sequence[Any]) -> np.ndarray:
    """Integers as an array; of objects if one is an expression over the model's dimensions."""
    return _objects(values) if any(map(is_symbolic, values)) else np.array(values, np.int64)


def _objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), np.object_)
    # One by one: NumPy would ask an expression in a list for its number.
    for at, item in enumerate(values):
        array[at] = item
    return array


def _dimension_value(call: Call) -> Value:
    dtype = target_dtype(call.op, get_int(call.attrs, "to", 0)).numpy
    return np.asarray(dimension_value(call.attrs), dtype)


def _dimension_value_type(query: TypeQuery) -> TensorType:
    dtype = target_dtype(query.op, get_int(query.attrs, "to", 0))
    return TensorType(dtype, dimension_value(query.attrs).shape)


def _eye_like(call: Call) -> Value:
    x, chosen = tensor(call, 0), get_int(call.attrs, "dtype", 0)
    if x.ndim != 2:
        raise ModelError(f"needs a matrix, found rank {x.ndim}")
    dtype = target_dtype(call.op, chosen).numpy if chosen else x.dtype
    return np.eye(x.shape[0], x.shape[1], k=get_int(call.attrs, "k", 0)).astype(dtype)


_shape_op = partial(OpDef, classes=OpClass.SHAPE, flops=0)
OPS: tuple[OpDef, ...] = (
    _shape_op(
        "Shape", infer=shape_of, reference=_shape, operands=named("data"), traits=Trait.SHAPE_ONLY
    ),
    _shape_op(
        "Size", infer=size_of, reference=_size, operands=named("data"), traits=Trait.SHAPE_ONLY
    ),
    _shape_op(
        "ConstantOfShape",
        pattern=Pattern.INJECTIVE,
        infer=_constant_of_shape_type,
        reference=_constant_of_shape,
        operands=named(input=PARAMETER),
        traits=Trait.GROWS | Trait.TAKES_SIZES,
    ),
    OpDef(
        "Range",
        Pattern.INJECTIVE,
        OpClass.SHAPE,
        infer=_range_type,
        reference=_range,
        operands=named(start=PARAMETER, limit=PARAMETER, delta=PARAMETER),
        traits=Trait.GROWS | Trait.TAKES_SIZES,
    ),
    OpDef(
        # Numbers that the dimensions of a call decide: a list, or one number if `scalar` is set.
        "DimensionValue",
        Pattern.INJECTIVE,
        OpClass.SHAPE,
        _dimension_value_type,
        _dimension_value,
        flops=0,
    ),
    OpDef(
        "Constant",
        infer=lambda query: TensorType.of(constant_value(query.attrs)),
        reference=lambda call: constant_value(call.attrs),
        flops=0,
    ),
    OpDef(
        "EyeLike",
        reference=_eye_like,
        flops=0,
        operands=named("input"),
        traits=Trait.SHAPE_ONLY | Trait.READS_TYPE,
    ),
)
