"""Integer arithmetic as quantised models have it: exact sums of products of codes, and their
scaling by fixed-point numbers.

| operator               | inputs                   | value                                                                                    |
|------------------------|--------------------------|------------------------------------------------------------------------------------------|
| `IntegerConv`          | x, w, x_zero?, w_zero?   | the convolution of x - x_zero, (N, spatial..., C), with w - w_zero, (O, k..., C / group) |
| `IntegerConvTranspose` | x, w, x_zero?, w_zero?   | the same for ConvTranspose; w is (O / group, k..., C)                                    |
| `FixedPointScale`      | x, multiplier, shift     | x · multiplier · 2^(shift - 31), rounded                                                 |
| `LookUp`               | x, table                 | table[x - the smallest code of x's type]                                                 |

The convolutions are channels-last, in (N, spatial..., C) and out (N, spatial..., O), with the
attributes of Conv and ConvTranspose (no output_shape); padding adds nothing to a sum. Of an x of 8
bits the result is int32, of an int16 x it is int64. `x_zero` is one number, `w_zero` one number or
one for each of the O output channels.

`FixedPointScale` is elementwise; multiplier and shift are int32, one number or one for each element
of the last axis, and the result is int32. On int32 it rounds by the attribute `rounding`: "double"
(default) rounds x · 2^max(shift, 0) · multiplier / 2^31 to nearest, halves up, then divides by
2^max(-shift, 0) and rounds to nearest, halves away from zero, as gemmlowp does; "single" rounds
once, halves up. Products that leave 32 bits wrap around before the multiplication; minimum times
minimum saturates. On int64 the multiplier is first rounded to 16 bits, and the product rounded
once, halves up.

`LookUp` is elementwise; the table has one entry for each code, 256 for 8 bits and 65,536 for 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value, count, sizes
from whence.ops.neural.channels_last import channels_first, channels_last
from whence.ops.neural.conv import centred_operands, conv_flops, convolve, convolve_transposed
from whence.ops.neural.matmul import wrap_int32
from whence.ops.neural.window import make_window
from whence.ops.operand import CODING, named, with_optional
from whence.ops.precision import optional_tensor, tensor
from whence.ops.quantised.quantise import integer_range
from whence.ops.types.spatial_rules import conv as infer_conv
from whence.ops.types.spatial_rules import conv_transpose as infer_conv_transpose
from whence.ops.types.type_rules import tensor_type
from whence.types import DType, TensorType, ValueType

_CODES = (DType.I8, DType.U8, DType.I16)


# ---- scaling by fixed-point numbers ----


def scale_fixed_point(
    x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, rounding: str = "double"
) -> np.ndarray:
    """x · multiplier · 2^(shift - 31) in int32, as the module's docstring says; broadcasts."""
    if x.dtype == np.int64:
        return _scale_wide(x, multiplier, shift)
    if rounding == "single":
        total = 31 - shift.astype(np.int64)
        product = x.astype(np.int64) * multiplier.astype(np.int64) + (np.int64(1) << (total - 1))
        return np.asarray(product >> total).astype(np.int32)
    if rounding != "double":
        raise ModelError(f"FixedPointScale: unknown rounding {rounding!r}")
    left, right = np.maximum(shift, 0).astype(np.int64), np.maximum(-shift, 0).astype(np.int64)
    shifted = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64)
    product = shifted * multiplier.astype(np.int64)
    # The quotient is cut towards zero after half has been added or, less one, taken away: halves go
    # up.
    nudged = product + np.where(product >= 0, np.int64(1 << 30), np.int64(1 - (1 << 30)))
    high = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
    high = np.minimum(high, (1 << 31) - 1)
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > threshold)).astype(np.int32)


def _scale_wide(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    factor = multiplier.astype(np.int64)
    narrow = np.where(factor < 0x7FFF0000, (factor + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - shift.astype(np.int64)
    return np.asarray((x * narrow + (np.int64(1) << (total - 1))) >> total).astype(np.int32)


def _fixed_point_scale(call: Call) -> Value:
    x, multiplier, shift = (tensor(call, index) for index in range(3))
    if x.dtype not in {np.dtype(np.int32), np.dtype(np.int64)}:
        raise ModelError(f"the input must be int32 or int64, found {x.dtype}")
    if np.any(shift < -31) or np.any(shift > 30):
        raise ModelError("shifts must be between -31 and 30")
    return scale_fixed_point(x, multiplier, shift, get_str(call.attrs, "rounding", "double"))


def _infer_scale(query: TypeQuery) -> TensorType:
    x = tensor_type(query, 0)
    if x.dtype not in {DType.I32, DType.I64, DType.UNDEFINED}:
        raise ModelError(f"the input must be int32 or int64, found {x}")
    for index in (1, 2):
        _check_parameter(query, index, x)
    return TensorType(DType.I32, x.shape)


def _check_parameter(query: TypeQuery, index: int, x: TensorType) -> None:
    kind = tensor_type(query, index)
    if kind.dtype is not DType.I32:
        raise ModelError(f"input {index} must be int32, found {kind}")
    if kind.elements == 1 and (kind.rank or 0) <= 1:
        return
    if kind.rank != 1 or not x.shape or kind.shape is None or kind.shape[0] != x.shape[-1]:
        raise ModelError(
            f"input {index} must have one element or one for each of the last axis of"
            f" {x}, found {kind}"
        )


# ---- tables ----


def _look_up(call: Call) -> Value:
    x, table = tensor(call, 0), tensor(call, 1)
    low, high = integer_range(DType.of(x))
    if table.shape != (high - low + 1,):
        raise ModelError(
            f"{x.dtype} has {high - low + 1} codes, the table {list(table.shape)} entries"
        )
    return table[x.astype(np.int64) - low]


def _infer_look_up(query: TypeQuery) -> TensorType:
    x, table = tensor_type(query, 0), tensor_type(query, 1)
    if x.dtype not in _CODES:
        raise ModelError(f"the input must be of 8 or 16 bits, found {x}")
    if table.shape != (1 << x.dtype.bits,):
        raise ModelError(
            f"{x.dtype} has {1 << x.dtype.bits} codes, which does not fit a table {table}"
        )
    return TensorType(table.dtype, x.shape)


# ---- convolutions ----


def _centred(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Activations (N, C, spatial...) and weights (O, I, k...), both without their zero points, in
    float64, which holds every sum exactly.
    """
    x, w = tensor(call, 0), tensor(call, 1)
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ModelError(f"weights {list(w.shape)} do not fit an input {list(x.shape)}")
    x, w = centred_operands(x, w, optional_tensor(call, 2), optional_tensor(call, 3))
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)), np.ascontiguousarray(np.moveaxis(w, -1, 1))


def _finished(call: Call, sums: np.ndarray) -> np.ndarray:
    wide = tensor(call, 0).dtype.itemsize > 1
    sums = np.moveaxis(sums, 1, -1)
    return np.ascontiguousarray(sums.astype(np.int64) if wide else wrap_int32(sums))


def _integer_conv(call: Call) -> np.ndarray:
    x, w = _centred(call)
    window = make_window(call.op, call.attrs, x.shape[2:], w.shape[2:])
    return _finished(call, convolve(x, w, window, get_int(call.attrs, "group", 1)))


def _integer_conv_transpose(call: Call) -> np.ndarray:
    x, w = _centred(call)
    return _finished(call, convolve_transposed(call, x, w.swapaxes(0, 1)))


def _plain_query(query: TypeQuery, *, transposed: bool) -> TypeQuery:
    """The query as Conv or ConvTranspose has it: channels second, no zero points."""
    x, w = tensor_type(query, 0), tensor_type(query, 1)
    for kind in (x, w):
        if kind.dtype not in {*_CODES, DType.UNDEFINED} or (kind is w and kind.dtype is DType.I16):
            raise ModelError(f"it works on codes of 8 bits, or activations of 16, found {kind}")
        if kind.shape is not None and len(kind.shape) < 3:
            raise ModelError(f"activations and weights need at least three axes, found {kind}")
    x_shape = None if x.shape is None else channels_first(x.shape)
    w_shape = None if w.shape is None else channels_first(w.shape)
    if transposed and w_shape is not None:
        w_shape = (w_shape[1], w_shape[0], *w_shape[2:])
    return TypeQuery(
        query.op,
        query.attrs,
        (TensorType(x.dtype, x_shape), TensorType(w.dtype, w_shape)),
        (None, None),
        1,
    )


def _sums(query: TypeQuery, y: TensorType) -> TensorType:
    dtype = DType.I64 if tensor_type(query, 0).dtype is DType.I16 else DType.I32
    return TensorType(dtype, None if y.shape is None else channels_last(y.shape))


def _infer_conv(query: TypeQuery) -> TensorType:
    return _sums(query, infer_conv(_plain_query(query, transposed=False)))


def _infer_conv_transpose(query: TypeQuery) -> TensorType:
    if get_ints(query.attrs, "output_shape"):
        raise ModelError(
            "the output's size follows from pads and output_padding, not from output_shape"
        )
    return _sums(query, infer_conv_transpose(_plain_query(query, transposed=True)))


def _transpose_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """Two operations per multiply-add: each input element meets the whole of one filter."""
    return 2 * count(query.types[0]) * math.prod(sizes(query.types[1])[:-1])


_ANCHOR, _ELEMENTWISE = Pattern.OUT_ELEMWISE_FUSABLE, OpClass.ELEMENTWISE | OpClass.QUANTISE
_CONV = OpClass.CONV | OpClass.QUANTISE
_convolution = partial(
    OpDef,
    pattern=_ANCHOR,
    classes=_CONV,
    operands=with_optional(2, named("x", "w", x_zero_point=CODING, w_zero_point=CODING)),
)
_by_code = partial(OpDef, pattern=Pattern.BROADCAST, classes=_ELEMENTWISE)
OPS: tuple[OpDef, ...] = (
    _convolution("IntegerConv", infer=_infer_conv, reference=_integer_conv, flops=conv_flops),
    _convolution(
        "IntegerConvTranspose",
        infer=_infer_conv_transpose,
        reference=_integer_conv_transpose,
        flops=_transpose_flops,
    ),
    _by_code(
        "FixedPointScale",
        infer=_infer_scale,
        reference=_fixed_point_scale,
        flops=6,
        operands=named("X", multiplier=CODING, shift=CODING),
    ),
    _by_code("LookUp", infer=_infer_look_up, reference=_look_up, operands=named("X", table=CODING)),
)
