"""Convolutions and pools. Activations keep TFLite's layout, channels last; stored weights are
transposed to (out, in, spatial...) here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.quantisation import parameters
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType

_SAME = 0


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """SAME padding before and after: as many outputs as strides fit, the odd one at the end."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def window_attrs(
    call: OperatorCall,
    source: int,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> dict[str, Attr]:
    """Strides, dilations and padding of a window over the spatial axes of input `source`, which
    stand between the first and the last.
    """
    if any(step < 1 for step in (*strides, *dilations)):
        call.fail(f"strides {list(strides)} and dilations {list(dilations)} must be positive")
    attrs: dict[str, Attr] = {"strides": tuple(strides)}
    if any(step != 1 for step in dilations):
        attrs["dilations"] = tuple(dilations)
    if call.integer("padding") != _SAME:
        return attrs
    shape = call.type(source).shape
    if shape is None or len(shape) != len(kernel) + 2:
        call.fail(f"its input is {call.type(source)}, not a tensor of {len(kernel) + 2} dimensions")
    sizes = [size for size in shape[1:-1] if isinstance(size, int)]
    if len(sizes) != len(kernel):
        return attrs | {"auto_pad": "SAME_UPPER"}
    pads = [same_padding(*each) for each in zip(sizes, kernel, strides, dilations, strict=True)]
    if any(before or after for before, after in pads):
        attrs["pads"] = (*(before for before, _ in pads), *(after for _, after in pads))
    return attrs


def real_weights(call: OperatorCall, index: int, x: int) -> Ref:
    """Weights in real numbers, as they are multiplied with input `x`."""
    found = call.quantisation(index)
    if found is None or not _are_signed(call, index, x):
        return call.real(index)
    # The first float models with quantised weights called their signed codes unsigned, and LiteRT
    # reads them so still.
    codes = call.op("BitCast", call.needed(index), to=int(DType.I8))
    scale, _, axis = parameters(call.tensor(index), found)
    zero = np.zeros(scale.shape, np.int8)
    return call.dequantise(codes, call.tensor(index), scale, zero, axis)


def weights(call: OperatorCall, index: int, order: Sequence[int], x: int = 0) -> Ref:
    """Weights with their axes in `order`: transposed now if stored, else at run time."""
    if call.rank(index) != len(order):
        call.fail(f"its weights are {call.type(index)}, not a tensor of {len(order)} dimensions")
    found = call.quantisation(index)
    in_blocks = found is not None and found.blocks is not None
    codes = call.constant_codes(index) if call.stored(index) else None
    if codes is None or in_blocks or (found is not None and _are_signed(call, index, x)):
        return call.op("Transpose", real_weights(call, index, x), perm=tuple(order))
    axis = 0 if found is None or len(found.scales) == 1 else order.index(found.axis)
    return call.arranged(index, codes.transpose(order), axis)


def _are_signed(call: OperatorCall, index: int, x: int) -> bool:
    """Are quantised weights of real numbers `x` signed codes that are called unsigned?"""
    return call.tensor(index).type == "UINT8" and call.type(x).dtype.is_float


def _convolution(
    call: OperatorCall, order: Sequence[int], axes: str, *, depthwise: bool = False
) -> None:
    """`order` takes the weights' axes to (out, in, spatial...); `axes` are the letters of the
    spatial axes in the options.
    """
    rank = len(axes) + 2
    if call.rank(0) != rank:
        call.fail(f"its input is {call.type(0)}, not a tensor of {rank} dimensions")
    shape = call.shape(1)
    kernel = [shape[axis] for axis in order[2:]]
    strides = [call.integer(f"stride_{axis}") for axis in axes]
    dilations = [call.integer(f"dilation_{axis}_factor", 1) for axis in axes]
    attrs = window_attrs(call, 0, kernel, strides, dilations)
    channels = call.type(0).shape
    known = channels[-1] if channels is not None else None
    if not isinstance(known, int) or known < 1:
        call.unsupported(f"the number of channels of its input, {call.type(0)}, is not known")
    group = known if depthwise else known // max(shape[order[1]], 1)
    if (depthwise and (shape[0] != 1 or shape[-1] % known)) or (
        not depthwise and group * shape[order[1]] != known
    ):
        call.fail(f"weights of shape {list(shape)} do not fit an input of {known} channels")
    if group != 1:
        attrs["group"] = group
    x, w = call.real(0), weights(call, 1, order)
    result = call.emit("ChannelsLastConv", [x, w, call.bias(2, bias_scale(call, 0, 1))], attrs)
    call.output(0, call.activate(result))


def bias_scale(call: OperatorCall, x: int, w: int) -> np.ndarray | None:
    """What a unit of the accumulator is worth: the product of the scales of what is multiplied.
    `None` where that is not codes by codes.
    """
    given, weighing = call.quantisation(x), call.quantisation(w)
    if given is None or weighing is None or weighing.blocks is not None:
        return None
    return np.asarray(given.scales * weighing.scales)


def _transposed(call: OperatorCall, order: Sequence[int], axes: str) -> None:
    """Input 0 is the output shape; the padding is that of the inverse convolution."""
    known = call.constant_codes(0) is not None
    wanted = call.numbers(0, "output shape") if known else (0,) * (call.shape(0) or (0,))[0]
    rank = len(axes) + 2
    given, shape = call.type(2).shape, call.shape(1)
    if len(wanted) != rank or given is None or len(given) != rank:
        call.fail(
            f"its input is {call.type(2)} and its output shape {list(wanted) if known else 'has'}"
            f"{'' if known else f' {len(wanted)} numbers'}; both should have {rank} dimensions"
        )
    sizes = [size for size in given[1:-1] if isinstance(size, int)]
    if len(sizes) != len(axes):
        call.unsupported(f"the size of its input, {call.type(2)}, is not known")
    strides = [call.integer(f"stride_{axis}") for axis in axes]
    if any(stride < 1 for stride in strides):
        call.fail(f"strides {strides} must be positive")
    kernels = [shape[axis] for axis in order[2:]]
    if not known:
        _transposed_to_computed_shape(call, order, kernels, strides)
        return
    if wanted[-1] != shape[order[1]]:
        call.fail(
            f"its output shape is {list(wanted)}, and its weights make {shape[order[1]]} channels"
        )
    before, after, extra = [], [], []
    for size, out, kernel, stride in zip(sizes, wanted[1:-1], kernels, strides, strict=True):
        begin = same_padding(out, kernel, stride)[0] if call.integer("padding") == _SAME else 0
        end = (size - 1) * stride + kernel - begin - out
        before.append(begin)
        after.append(max(end, 0))
        extra.append(max(-end, 0))
    attrs: dict[str, Attr] = {"strides": tuple(strides), "pads": (*before, *after)}
    if any(extra):
        attrs["output_padding"] = tuple(extra)
    call.output(0, _transposed_conv(call, order, attrs))


def _transposed_conv(call: OperatorCall, order: Sequence[int], attrs: dict[str, Attr]) -> Ref:
    x, w = call.real(2), weights(call, 1, order, 2)
    bias = call.bias(3, bias_scale(call, 2, 1))
    return call.activate(call.emit("ChannelsLastConvTranspose", [x, w, bias], attrs))


# conv_transpose(x) of size n = the elements begin to begin + n of the convolution without padding
def _transposed_to_computed_shape(
    call: OperatorCall, order: Sequence[int], kernels: Sequence[int], strides: Sequence[int]
) -> None:
    """The size of the output, and with it the padding, is known only when the model runs: the
    largest that the strides allow is computed, and the part that is asked for is taken. Asking for
    more is an index out of range, for another batch or other channels a shape that does not fit.
    """
    attrs: dict[str, Attr] = {"strides": tuple(strides)}
    if any(stride > 1 for stride in strides):
        attrs["output_padding"] = tuple(stride - 1 for stride in strides)
    result = call.as_output(0, _transposed_conv(call, order, attrs))
    shape = call.whole(0)
    zero, one = (call.scalar(number, DType.I64) for number in (0, 1))
    for axis, (kernel, stride) in enumerate(zip(kernels, strides, strict=True), 1):
        size = call.op("Gather", shape, call.scalar(axis, DType.I64), axis=0)
        indices = call.op("Range", zero, size, one)
        if call.integer("padding") == _SAME:
            begin = _same_padding_before(call, size, kernel, stride)
            indices = call.op("Add", indices, begin)
        result = call.op("Gather", result, indices, axis=axis)
    call.output_codes(0, call.op("Reshape", result, shape, allowzero=1))


def _same_padding_before(call: OperatorCall, size: Ref, kernel: int, stride: int) -> Ref:
    """The first number of `same_padding`, of a size that is computed when the model runs."""

    def number(value: int) -> Ref:
        return call.scalar(value, DType.I64)

    steps = call.op("Div", call.op("Add", size, number(stride - 1)), number(stride))
    covered = call.op("Add", call.op("Mul", steps, number(stride)), number(kernel - stride))
    total = call.op("Max", call.op("Sub", covered, size), number(0))
    return call.op("Div", total, number(2))


# ---- pools: averages do not count padding; maxima of quantised tensors are taken on codes ----


def _pool_attrs(call: OperatorCall) -> dict[str, Attr]:
    if call.rank(0) != 4:
        call.fail(f"its input is {call.type(0)}, not a tensor of 4 dimensions")
    kernel = (call.integer("filter_height"), call.integer("filter_width"))
    if min(kernel) < 1:
        call.fail(f"its window is {list(kernel)}")
    strides = (call.integer("stride_h"), call.integer("stride_w"))
    return {"kernel_shape": kernel, **window_attrs(call, 0, kernel, strides, (1, 1))}


def _average(call: OperatorCall) -> None:
    made = call.activate(call.emit("ChannelsLastAveragePool", [call.real(0)], _pool_attrs(call)))
    call.output(0, made)


def _maximum(call: OperatorCall) -> None:
    call.move(lambda x: call.emit("ChannelsLastMaxPool", [x], _pool_attrs(call)))


def _root_mean_square(call: OperatorCall) -> None:
    x = call.real(0)
    mean = call.emit("ChannelsLastAveragePool", [call.op("Mul", x, x)], _pool_attrs(call))
    call.output(0, call.activate(call.op("Sqrt", mean)))


MAPPINGS: Mappings = {
    "AVERAGE_POOL_2D": _average,
    "CONV_2D": lambda call: _convolution(call, (0, 3, 1, 2), "hw"),
    "CONV_3D": lambda call: _convolution(call, (4, 3, 0, 1, 2), "dhw"),
    "CONV_3D_TRANSPOSE": lambda call: _transposed(call, (4, 3, 0, 1, 2), "dhw"),
    "DEPTHWISE_CONV_2D": lambda call: _convolution(call, (3, 0, 1, 2), "hw", depthwise=True),
    "L2_POOL_2D": _root_mean_square,
    "MAX_POOL_2D": _maximum,
    "TRANSPOSE_CONV": lambda call: _transposed(call, (3, 0, 1, 2), "hw"),
}
