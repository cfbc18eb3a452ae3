"""Convolutions, forward and transposed."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _convolution(call: AtenCall) -> Value:
    """`aten.convolution` is the general case; the others name their arguments alike."""
    rank = call.rank("weight") - 2
    transposed = bool(call.plain("transposed")) if "transposed" in call.args else False
    return _emit(call, rank, transposed)


def _transposed(call: AtenCall) -> Value:
    return _emit(call, call.rank("weight") - 2, True)


def _emit(call: AtenCall, rank: int, transposed: bool) -> Value:
    x, batched = call.ref("input"), call.rank("input") == rank + 2
    if not batched:
        x = call.op("Unsqueeze", x, call.numbers(0))
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
    y: Ref = call.emit(op, [x, call.ref("weight"), call.optional("bias")], attrs)
    return y if batched else call.op("Squeeze", y, call.numbers(0))


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
    "aten::conv_transpose1d": _transposed,
    "aten::conv_transpose2d": _transposed,
    "aten::conv_transpose3d": _transposed,
}
