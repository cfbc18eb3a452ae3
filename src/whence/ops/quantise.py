"""Quantisation: between real tensors and small integers or small floats, per tensor, per axis or per block."""

from __future__ import annotations

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Call, OpClass, OpDef, Pattern, Value
from whence.ops.precision import narrow, optional_tensor, tensor, widen, working_dtype
from whence.types import DType


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type, 2- and 4-bit types included."""
    if dtype in {DType.U2, DType.U4, DType.U8, DType.U16, DType.U32, DType.U64}:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def requantise(real: np.ndarray, zero_point: np.ndarray | None, dtype: DType, saturate: bool = True) -> np.ndarray:
    """Real values, already divided by the scale, as `dtype`.

    Integers: round half to even, add the zero point, saturate. Small floats: add the zero point, round to nearest; values
    out of range saturate, or with `saturate=False` become what the format has for them (infinity or NaN).
    """
    if dtype.is_integer:
        low, high = integer_range(dtype)
        rounded = np.asarray(np.rint(real))
        if zero_point is not None:
            rounded += zero_point.astype(rounded.dtype)
        np.clip(rounded, low, high, out=rounded)
        # A NaN has no integer; zero is as good as any and the same everywhere.
        np.nan_to_num(rounded, copy=False, nan=0.0)
        return rounded.astype(np.int32).astype(dtype.numpy)
    if zero_point is not None:
        real = real + zero_point.astype(real.dtype)
    if saturate and dtype is not DType.F4E2M1:
        limit = np.asarray(largest(dtype)).astype(real.dtype)
        real = np.clip(real, -limit, limit)
    return real.astype(dtype.numpy)


def largest(dtype: DType) -> float:
    """The largest finite value of a small float type."""
    codes = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    return float(codes[np.isfinite(codes)].max())


def spread(call: Call, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A scale or zero point in a shape that broadcasts against a tensor of `shape`, by the attributes `axis` and `block_size`."""
    if parameter.size == 1:
        return parameter.reshape(())
    axis, block = get_int(call.attrs, "axis", 1), get_int(call.attrs, "block_size", 0)
    axis = 0 if len(shape) == 1 else axis % len(shape)
    if block > 0:
        repeated = np.repeat(parameter, block, axis=axis)
        return repeated[(slice(None),) * axis + (slice(shape[axis]),)]
    if parameter.ndim != 1 or parameter.size != shape[axis]:
        raise ModelError(f"{call.op}: a scale of shape {list(parameter.shape)} does not fit axis {axis} of {list(shape)}")
    return parameter.reshape(tuple(-1 if position == axis else 1 for position in range(len(shape))))


def _quantise_linear(call: Call) -> tuple[Value]:
    x, scale, zero_point = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    chosen = get_int(call.attrs, "output_dtype", 0)
    dtype = DType.of(zero_point) if zero_point is not None else DType(chosen) if chosen else DType.U8
    precision = get_int(call.attrs, "precision", 0)
    if precision:
        exact = DType(precision).numpy
        ratio = widen((widen(x.astype(exact)) / widen(spread(call, scale.astype(exact), x.shape))).astype(exact))
    else:
        working = working_dtype(scale.dtype)
        ratio = x.astype(working, copy=False) / spread(call, scale.astype(working, copy=False), x.shape)
    shift = None if zero_point is None or not np.any(zero_point) else spread(call, zero_point, x.shape)
    return (requantise(ratio, shift, dtype, saturate=bool(get_int(call.attrs, "saturate", 1))),)


def _dequantise_linear(call: Call) -> tuple[Value]:
    x, scale, zero_point = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    chosen = get_int(call.attrs, "output_dtype", 0)
    dtype = DType(chosen).numpy if chosen else scale.dtype
    working = working_dtype(dtype)
    if DType.of(x) is DType.I32 and zero_point is not None:
        # float32 does not hold every int32, so the zero point must go before the conversion.
        centred = (x.astype(np.int64) - spread(call, zero_point, x.shape)).astype(working)
    else:
        centred = x.astype(working)
        if zero_point is not None:
            centred -= spread(call, zero_point.astype(working), x.shape)
    centred *= spread(call, scale.astype(working), x.shape)
    return (narrow(centred, dtype),)


def _dynamic_quantise_linear(call: Call) -> tuple[Value, Value, Value]:
    x = widen(tensor(call, 0))
    low, high = np.minimum(x.min(initial=0.0), 0), np.maximum(x.max(initial=0.0), 0)
    scale = np.asarray((high - low) / np.float32(255) if high > low else 1.0, dtype=np.float32)
    zero_point = requantise(np.asarray(-low / scale), None, DType.U8)
    return requantise(x / scale, zero_point, DType.U8), scale, zero_point


OPS: tuple[OpDef, ...] = (
    OpDef("QuantizeLinear", Pattern.BROADCAST, OpClass.QUANTISE | OpClass.ELEMENTWISE, reference=_quantise_linear, flops=4),
    OpDef("DequantizeLinear", Pattern.BROADCAST, OpClass.QUANTISE | OpClass.ELEMENTWISE, reference=_dequantise_linear, flops=2),
    OpDef("DynamicQuantizeLinear", Pattern.OPAQUE, OpClass.QUANTISE, reference=_dynamic_quantise_linear, flops=6),
)
