"""Convolutions, forward and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.ops.definition import Attr


def _convolution(call: AtenCall, transposed: bool = False) -> Value:
    """`aten.convolution` is the general case; the others name their arguments alike."""
    if "transposed" in call.args:
        transposed = bool(call.plain("transposed"))
    rank = call.rank("weight") - 2
    stride, dilation = call.ints("stride", rank), call.ints("dilation", rank)
    kernel = call.shape("weight")[2:]
    padding = call.plain("padding")
    pads = (
        _named_padding(padding, kernel, dilation)
        if isinstance(padding, str)
        else (*call.ints("padding", rank), *call.ints("padding", rank))
    )
    attrs: dict[str, Attr] = {
        "kernel_shape": kernel,
        "strides": stride or (1,) * rank,
        "dilations": dilation or (1,) * rank,
        "pads": pads,
        "group": call.integer("groups", 1),
    }
    op = "Conv"
    if transposed:
        op = "ConvTranspose"
        extra = call.ints("output_padding", rank)
        if any(extra):
            attrs["output_padding"] = extra
    weights = [call.ref("weight"), call.optional("bias")]
    return call.batched("input", rank, lambda x: call.emit(op, [x, *weights], attrs))


def _named_padding(padding: str, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """`same` keeps the size: what is odd is padded at the end."""
    if padding == "valid":
        return (0,) * (2 * len(kernel))
    total = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    begin = [each // 2 for each in total]
    return (*begin, *(each - half for each, half in zip(total, begin, strict=True)))


MAPPINGS: Mappings = {
    "aten::convolution": _convolution,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::conv_transpose1d": partial(_convolution, transposed=True),
    "aten::conv_transpose2d": partial(_convolution, transposed=True),
    "aten::conv_transpose3d": partial(_convolution, transposed=True),
}
