"""Quantisation: between real tensors and small integers or small floats, per tensor, per axis or
per block.

Beside ONNX's attributes, QuantizeLinear has `arithmetic`: "fixed_point" says that the codes are
those of LiteRT, whose integer arithmetic passes then follow, and which rounds halves away from
zero. "round_away" says only the latter: LiteRT's QUANTIZE of what a file computes in real numbers.
LiteRT also has codes of int32, which ONNX's QuantizeLinear has not.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Attrs, Call, OpClass, OpDef, Pattern, TypeQuery, Value
from whence.ops.operand import CODING, named
from whence.ops.precision import narrow, optional_tensor, tensor, widen, working_dtype
from whence.ops.traits import Trait
from whence.ops.types.type_rules import is_absent, tensor_type
from whence.types import DType, TensorType


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type, 2- and 4-bit types included."""
    if dtype in {DType.U2, DType.U4, DType.U8, DType.U16, DType.U32, DType.U64}:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def code_of_nan(dtype: DType, away: bool) -> float:
    """A NaN has no integer. LiteRT, which rounds halves `away` from zero, makes the smallest code
    of it (the logarithm of a negative number, say); elsewhere it is 0.
    """
    return float(integer_range(dtype)[0]) if away else 0.0


def centred(codes: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    """Codes less their zero point, in float64, which holds all sums of products of bytes exactly."""
    wide = codes.astype(np.float64)
    return wide if zero_point is None else wide - zero_point.astype(np.float64)


def round_away(real: np.ndarray) -> np.ndarray:
    """To the nearest whole number, halves away from zero."""
    whole = np.trunc(real)
    # Adding a half first would carry the number just below it to one.
    return np.asarray(whole + np.copysign(np.abs(real - whole) >= 0.5, real), dtype=real.dtype)


def requantise(
    real: np.ndarray,
    zero_point: np.ndarray | None,
    dtype: DType,
    saturate: bool = True,
    away: bool = False,
) -> np.ndarray:
    """Real values, already divided by the scale, as `dtype`.

    Integers: round half to even, or `away` from zero, add the zero point, saturate. Small floats:
    add the zero point, round to nearest; values out of range saturate, or with `saturate=False`
    become what the format has for them (infinity or NaN).
    """
    if dtype.is_integer:
        low, high = integer_range(dtype)
        if dtype is DType.I32:
            # float32 does not hold the largest of them.
            real = real.astype(np.float64)
        rounded = round_away(real) if away else np.asarray(np.rint(real))
        if zero_point is not None:
            rounded += zero_point.astype(rounded.dtype)
        np.clip(rounded, low, high, out=rounded)
        np.nan_to_num(rounded, copy=False, nan=code_of_nan(dtype, away))
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
    """A scale or zero point in a shape that broadcasts against a tensor of `shape`, by the
    attributes `axis` and `block_size`.
    """
    if parameter.size == 1:
        return parameter.reshape(())
    axis, block = get_int(call.attrs, "axis", 1), get_int(call.attrs, "block_size", 0)
    axis = 0 if len(shape) == 1 else axis % len(shape)
    if block > 0:
        repeated = np.repeat(parameter, block, axis=axis)
        return repeated[(slice(None),) * axis + (slice(shape[axis]),)]
    if parameter.ndim != 1 or parameter.size != shape[axis]:
        raise ModelError(
            f"{call.op}: a scale of shape {list(parameter.shape)} does not fit axis {axis} of {list(shape)}"
        )
    return parameter.reshape(tuple(-1 if position == axis else 1 for position in range(len(shape))))


def is_fixed_point(attrs: Attrs) -> bool:
    """Does LiteRT's integer arithmetic compute what this QuantizeLinear quantises?"""
    return get_str(attrs, "arithmetic", "") == "fixed_point"


def rounds_away(attrs: Attrs) -> bool:
    """Does this QuantizeLinear round halves away from zero, as LiteRT does, and not to even?"""
    return get_str(attrs, "arithmetic", "") in {"fixed_point", "round_away"}


def _quantise_linear(call: Call) -> Value:
    x, scale, zero_point = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    chosen = get_int(call.attrs, "output_dtype", 0)
    dtype = DType(chosen or DType.U8) if zero_point is None else DType.of(zero_point)
    precision = get_int(call.attrs, "precision", 0)
    if precision:
        exact = DType(precision).numpy
        ratio = widen(
            (widen(x.astype(exact)) / widen(spread(call, scale.astype(exact), x.shape))).astype(
                exact
            )
        )
    else:
        working = working_dtype(scale.dtype)
        ratio = x.astype(working, copy=False) / spread(
            call, scale.astype(working, copy=False), x.shape
        )
    shift = (
        None if zero_point is None or not np.any(zero_point) else spread(call, zero_point, x.shape)
    )
    return requantise(
        ratio,
        shift,
        dtype,
        saturate=bool(get_int(call.attrs, "saturate", 1)),
        away=rounds_away(call.attrs),
    )


def _dequantise_linear(call: Call) -> Value:
    x, scale, zero_point = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    chosen = get_int(call.attrs, "output_dtype", 0)
    dtype = DType(chosen).numpy if chosen else scale.dtype
    working = working_dtype(dtype)
    if DType.of(x) in {DType.I32, DType.I64} and zero_point is not None:
        # float32 does not hold every such number, so the zero point must go before the conversion.
        centred = (x.astype(np.int64) - spread(call, zero_point, x.shape)).astype(working)
    else:
        centred = x.astype(working)
        if zero_point is not None:
            centred -= spread(call, zero_point.astype(working), x.shape)
    centred *= spread(call, scale.astype(working), x.shape)
    return narrow(centred, dtype)


def _dynamic_quantise_linear(call: Call) -> tuple[Value, Value, Value]:
    x = widen(tensor(call, 0))
    low, high = np.minimum(x.min(initial=0.0), 0), np.maximum(x.max(initial=0.0), 0)
    scale = np.asarray((high - low) / np.float32(255) if high > low else 1.0, dtype=np.float32)
    zero_point = requantise(np.asarray(-low / scale), None, DType.U8)
    return requantise(x / scale, zero_point, DType.U8), scale, zero_point


def _infer_quantise(query: TypeQuery) -> TensorType:
    chosen = get_int(query.attrs, "output_dtype", 0)
    dtype = DType(chosen or DType.U8) if is_absent(query, 2) else tensor_type(query, 2).dtype
    return TensorType(dtype, tensor_type(query, 0).shape)


def _infer_dequantise(query: TypeQuery) -> TensorType:
    chosen = get_int(query.attrs, "output_dtype", 0)
    return TensorType(
        DType(chosen) if chosen else tensor_type(query, 1).dtype, tensor_type(query, 0).shape
    )


_coding = partial(
    OpDef,
    pattern=Pattern.BROADCAST,
    classes=OpClass.QUANTISE | OpClass.ELEMENTWISE,
    traits=Trait.CODES,
)
OPS: tuple[OpDef, ...] = (
    _coding(
        "QuantizeLinear",
        infer=_infer_quantise,
        reference=_quantise_linear,
        flops=4,
        operands=named("x", y_scale=CODING, y_zero_point=CODING),
    ),
    _coding(
        "DequantizeLinear",
        infer=_infer_dequantise,
        reference=_dequantise_linear,
        flops=2,
        operands=named("x", x_scale=CODING, x_zero_point=CODING),
    ),
    OpDef(
        "DynamicQuantizeLinear",
        classes=OpClass.QUANTISE,
        reference=_dynamic_quantise_linear,
        flops=6,
        operands=named("x"),
    ),
)
