"""Custom operators of MediaPipe's models."""

from __future__ import annotations

import struct

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.conv import bias_scale, same_padding, weights
from whence.ops.definition import Attr

_SAME, _VALID = 1, 2


def _transpose_conv_bias(call: OperatorCall) -> None:
    """A transposed convolution with a bias. Its options are three numbers: the padding, and the
    strides along width and height.
    """
    if len(call.record.custom_options) != 12:
        call.fail(f"its options have {len(call.record.custom_options)} bytes, not 12")
    padding, across, down = struct.unpack("<3i", call.record.custom_options)
    shape, given = call.shape(1), call.type(0).shape
    if (
        given is None
        or len(given) != 4
        or len(shape) != 4
        or across < 1
        or down < 1
        or padding not in (_SAME, _VALID)
    ):
        call.fail(
            f"its input {call.type(0)}, weights {list(shape)} and options {padding, across, down}"
            " do not fit"
        )
    before, after = [], []
    for size, kernel, stride in zip(given[1:3], shape[1:3], (down, across), strict=True):
        if not isinstance(size, int):
            call.unsupported(f"the size of its input, {call.type(0)}, is not known")
        wanted = size * stride if padding == _SAME else (size - 1) * stride + kernel
        begin = same_padding(wanted, kernel, stride)[0] if padding == _SAME else 0
        end = (size - 1) * stride + kernel - begin - wanted
        if end < 0:
            call.unsupported(f"strides {down} and {across} that are longer than its kernel")
        before.append(begin)
        after.append(end)
    attrs: dict[str, Attr] = {"strides": (down, across), "pads": (*before, *after)}
    result = call.emit(
        "ChannelsLastConvTranspose",
        [call.real(0), weights(call, 1, (3, 0, 1, 2)), call.bias(2, bias_scale(call, 0, 1))],
        attrs,
    )
    call.output(0, result)


MAPPINGS: Mappings = {"CUSTOM:Convolution2DTransposeBias": _transpose_conv_bias}
