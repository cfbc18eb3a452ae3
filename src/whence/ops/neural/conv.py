"""Convolutions over any number of spatial axes: Conv, ConvTranspose, and their integer forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value, count, sizes
from whence.ops.neural.matmul import wrap_int32
from whence.ops.neural.resize import deform_columns
from whence.ops.neural.window import (
    Index,
    Window,
    make_transposition,
    make_window,
    pad_spatial,
    patches,
    spatial_index,
)
from whence.ops.operand import CODING, DATA, PARAMETER, named
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.quantised.quantise import centred, requantise
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import conv as infer_conv
from whence.ops.types.spatial_rules import conv_transpose as infer_conv_transpose
from whence.types import DType, ValueType

_COLUMN_BYTES = 64 << 20
"""Unfolded patches are made in pieces of at most this size: large enough for a fast product, small
enough for any machine.
"""
_BLOCK_ELEMENTS = 1 << 16
"""Depthwise convolution works on blocks of channels that stay in the cache."""


def convolve(x: np.ndarray, w: np.ndarray, window: Window, group: int) -> np.ndarray:
    """The convolution of x (N, C, ...) with w (M, C / group, ...), in their type, without bias."""
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ModelError(
            f"Conv: weights {list(w.shape)} in {group} groups do not fit an input {list(x.shape)}"
        )
    x = pad_spatial(x, window, 0)
    if w.shape[1] == 1 and group > 1:
        return _convolve_depthwise(x, w, window, group)
    batch, per_group = x.shape[0], w.shape[0] // group
    matrix = w.reshape(group, per_group, math.prod(w.shape[1:]))
    y = np.empty((batch, group, per_group, *window.output), dtype=x.dtype)
    if window.is_pointwise:
        taken = x[window.tap_index((0,) * len(window.kernel))]
        positions = math.prod(window.output)
        np.matmul(
            matrix,
            taken.reshape(batch, group, w.shape[1], positions),
            out=y.reshape(batch, group, per_group, positions),
        )
        return y.reshape(batch, w.shape[0], *window.output)
    view = patches(x, window, group)
    first = 3 + len(window.kernel)
    depth = group * matrix.shape[2]
    row_bytes = max(1, depth * math.prod(window.output[1:]) * x.itemsize)
    rows = max(1, _COLUMN_BYTES // row_bytes)
    for image in range(batch):
        for start in range(0, window.output[0], rows):
            rows_here: Index = (image, *(slice(None),) * (first - 1), slice(start, start + rows))
            piece = view[rows_here]
            columns = np.ascontiguousarray(piece).reshape(group, matrix.shape[2], -1)
            y[image, :, :, start : start + rows] = (matrix @ columns).reshape(
                group, per_group, *piece.shape[first - 1 :]
            )
    return y.reshape(batch, w.shape[0], *window.output)


def _convolve_depthwise(x: np.ndarray, w: np.ndarray, window: Window, group: int) -> np.ndarray:
    """One input channel per group: a sum over the positions of the kernel, no matrix product."""
    multiplier, rank = w.shape[0] // group, len(window.kernel)
    weights = np.moveaxis(w.reshape(group, multiplier, *window.kernel), (0, 1), (-2, -1))
    y = np.zeros((x.shape[0], group, multiplier, *window.output), dtype=x.dtype)
    step = max(1, _BLOCK_ELEMENTS // max(1, multiplier * math.prod(window.output)))
    scratch = np.empty((min(step, group), multiplier, *window.output), dtype=x.dtype)
    for image in range(x.shape[0]):
        for start in range(0, group, step):
            block = slice(start, min(start + step, group))
            total = y[image, block]
            product = scratch[: total.shape[0]]
            for tap in window.taps():
                factor = weights[tap][block].reshape(-1, multiplier, *(1,) * rank)
                np.multiply(x[image, block, np.newaxis][window.tap_index(tap)], factor, out=product)
                total += product
    return y.reshape(x.shape[0], w.shape[0], *window.output)


def _channelwise(vector: np.ndarray, rank: int) -> np.ndarray:
    """A vector over channels that broadcasts against (N, C, ...) of `rank` axes; or a scalar."""
    return vector.reshape(()) if vector.size == 1 else vector.reshape(-1, *(1,) * (rank - 2))


def _with_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """A new array with a number added to each of its channels, if there is one."""
    if bias is not None:
        y += _channelwise(widen(bias), y.ndim)
    return y


def conv(call: Call) -> np.ndarray:
    """Conv on inputs x, w, b? in the working type."""
    x, w = widen(tensor(call, 0)), widen(tensor(call, 1))
    window = make_window(call.op, call.attrs, x.shape[2:], w.shape[2:])
    y = convolve(x, w, window, get_int(call.attrs, "group", 1))
    return _with_bias(y, optional_tensor(call, 2))


def centred_operands(
    x: np.ndarray, w: np.ndarray, x_zero: np.ndarray | None, w_zero: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes less their zero points: one for all of x, one for all or for each filter of w."""
    return (
        centred(x, None if x_zero is None else x_zero.reshape(())),
        centred(w, None if w_zero is None else _channelwise(w_zero, w.ndim + 1)),
    )


def _integer_convolution(
    call: Call, w: np.ndarray, x_zero: np.ndarray | None, w_zero: np.ndarray | None
) -> np.ndarray:
    x, w = centred_operands(tensor(call, 0), w, x_zero, w_zero)
    window = make_window(call.op, call.attrs, x.shape[2:], w.shape[2:])
    return convolve(x, w, window, get_int(call.attrs, "group", 1))


def _conv_integer(call: Call) -> Value:
    x_zero, w_zero = optional_tensor(call, 2), optional_tensor(call, 3)
    return wrap_int32(_integer_convolution(call, tensor(call, 1), x_zero, w_zero))


def _qlinear_conv(call: Call) -> Value:
    total = _integer_convolution(call, tensor(call, 3), tensor(call, 2), tensor(call, 5))
    bias, y_zero = optional_tensor(call, 8), tensor(call, 7)
    if bias is not None:
        total += _channelwise(bias.astype(np.float64), total.ndim)
    x_scale, w_scale, y_scale = (tensor(call, index).astype(np.float32) for index in (1, 4, 6))
    scale = _channelwise(x_scale.reshape(()) * w_scale / y_scale.reshape(()), total.ndim)
    return requantise(total.astype(np.float32) * scale, y_zero.reshape(()), DType.of(y_zero))


def conv_transpose(call: Call) -> np.ndarray:
    """ConvTranspose on inputs x, w, b? in the working type."""
    y = convolve_transposed(call, widen(tensor(call, 0)), widen(tensor(call, 1)))
    return _with_bias(y, optional_tensor(call, 2))


def convolve_transposed(call: Call, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The transposed convolution of x (N, C, ...) with w (C, M / group, ...), in their type, by the
    attributes of a call.
    """
    group = get_int(call.attrs, "group", 1)
    if group < 1 or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ModelError(
            f"weights {list(w.shape)} in {group} groups do not fit an input {list(x.shape)}"
        )
    geometry = make_transposition(call.op, call.attrs, x.shape[2:], w.shape[2:])
    window, batch, per_group = geometry.window, x.shape[0], w.shape[1]
    full = tuple(
        max(reach, begin + out)
        for reach, begin, out in zip(window.reach, geometry.begins, geometry.output, strict=True)
    )
    canvas = np.zeros((batch, group, per_group, *full), dtype=x.dtype)
    inputs = x.reshape(batch, group, x.shape[1] // group, math.prod(x.shape[2:]))
    # (kernel..., group, M / group, C / group): one contiguous stack of matrices for each position
    # of the kernel.
    weights = np.moveaxis(
        w.reshape(group, w.shape[0] // group, per_group, *window.kernel), (0, 1, 2), (-3, -1, -2)
    )
    for tap in window.taps():
        product = np.ascontiguousarray(weights[tap]) @ inputs
        canvas[window.tap_index(tap)] += product.reshape(batch, group, per_group, *x.shape[2:])
    return np.ascontiguousarray(canvas[spatial_index(geometry.begins, geometry.output)]).reshape(
        batch, group * per_group, *geometry.output
    )


def _col2im(call: Call) -> Value:
    x = tensor(call, 0)
    image = tuple(int(size) for size in tensor(call, 1))
    block = tuple(int(size) for size in tensor(call, 2))
    window = make_window(call.op, call.attrs, image, block)
    # (kernel..., N, C, output...)
    columns = np.moveaxis(
        widen(x).reshape(x.shape[0], -1, *block, *window.output),
        (0, 1),
        (len(block), len(block) + 1),
    )
    batch, channels = columns.shape[len(block) : len(block) + 2]
    canvas = np.zeros((batch, channels, *window.padded(image)), dtype=columns.dtype)
    for tap in window.taps():
        canvas[window.tap_index(tap)] += columns[tap]
    return narrow(canvas[spatial_index(window.begins, image)], x.dtype)


def _causal_conv(call: Call) -> tuple[Value, ...]:
    x, w, past = tensor(call, 0), tensor(call, 1), optional_tensor(call, 3)
    overlap = w.shape[-1] - 1
    history = np.zeros((*x.shape[:2], overlap), dtype=x.dtype) if past is None else past
    joined = np.concatenate((history, x), axis=2)
    window = make_window(call.op, {}, joined.shape[2:], w.shape[2:])
    y = _convolve_depthwise(widen(joined), widen(w), window, x.shape[1])
    y = _with_bias(y, optional_tensor(call, 2))
    if get_str(call.attrs, "activation", "none") in {"silu", "swish"}:
        y = y / (1 + np.exp(-y))
    return narrow(y, x.dtype), joined[:, :, joined.shape[2] - overlap :]


def _deform_conv(call: Call) -> Value:
    x, w = tensor(call, 0), widen(tensor(call, 1))
    group = get_int(call.attrs, "group", 1)
    window = make_window(call.op, call.attrs, x.shape[2:], w.shape[2:])
    matrix = w.reshape(group, w.shape[0] // group, -1)
    y = np.empty((x.shape[0], w.shape[0], *window.output), dtype=w.dtype)
    for image, columns in enumerate(deform_columns(call, window)):
        y[image] = (matrix @ columns.reshape(group, matrix.shape[2], -1)).reshape(y.shape[1:])
    return narrow(_with_bias(y, optional_tensor(call, 3)), x.dtype)


def conv_flops(query: TypeQuery, outputs: Sequence[ValueType], weight: int = 1) -> int:
    """Two operations per multiply-add: each output element sums over the whole of one filter."""
    return 2 * count(outputs[0]) * math.prod(sizes(query.types[weight])[1:])


def conv_transpose_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """Two operations per multiply-add: each input element meets the whole of one filter."""
    return 2 * count(query.types[0]) * math.prod(sizes(query.types[1])[1:])


_ANCHOR = Pattern.OUT_ELEMWISE_FUSABLE
_conv_op = partial(OpDef, classes=OpClass.CONV, flops=conv_flops)
_quantised = partial(OpDef, classes=OpClass.CONV | OpClass.QUANTISE, flops=conv_flops)
OPS: tuple[OpDef, ...] = (
    _conv_op(
        "Conv",
        pattern=_ANCHOR,
        infer=infer_conv,
        reference=lambda call: narrow(conv(call), tensor(call, 0).dtype),
        operands=named("X", "W", "B"),
        traits=Trait.CONVOLUTION,
    ),
    OpDef(
        "ConvTranspose",
        _ANCHOR,
        OpClass.CONV,
        infer=infer_conv_transpose,
        reference=lambda call: narrow(conv_transpose(call), tensor(call, 0).dtype),
        flops=conv_transpose_flops,
        operands=named("X", "W", "B"),
        traits=Trait.TRANSPOSED_CONVOLUTION,
    ),
    _quantised(
        "ConvInteger",
        pattern=_ANCHOR,
        reference=_conv_integer,
        operands=named("x", "w", x_zero_point=CODING, w_zero_point=CODING),
    ),
    _quantised(
        "QLinearConv",
        reference=_qlinear_conv,
        flops=lambda query, outputs: conv_flops(query, outputs, weight=3),
        operands=named(
            "x",
            x_scale=CODING,
            x_zero_point=CODING,
            w=DATA,
            w_scale=CODING,
            w_zero_point=CODING,
            y_scale=CODING,
            y_zero_point=CODING,
            B=DATA,
        ),
    ),
    _conv_op("DeformConv", reference=_deform_conv, operands=named("X", "W", "offset", "B", "mask")),
    _conv_op(
        "CausalConvWithState",
        reference=_causal_conv,
        operands=named("input", "weight", "bias", "past_state"),
    ),
    OpDef(
        "Col2Im",
        classes=OpClass.MOVEMENT,
        reference=_col2im,
        operands=named("input", image_shape=PARAMETER, block_shape=PARAMETER),
    ),
)
