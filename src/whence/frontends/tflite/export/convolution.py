"""Convolutions. The graph's are channels-last already; weights are transposed to the order that
each operator of the file wants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.windows import SAME, VALID, Frame, frame_of
from whence.frontends.tflite.schema import Option
from whence.types import DType, TensorType


def bordered(
    call: ExportCall,
    tensor: int,
    kind: TensorType,
    border: Sequence[tuple[int, int]],
    value: float | None = None,
) -> int:
    """The tensor with a border around its spatial axes: of zeros (of zero's code where it is
    quantised), or of `value`.
    """
    if not any(before or after for before, after in border):
        return tensor
    amounts = np.array([(0, 0), *border, (0, 0)], np.int32)
    shape = call.known_rank(kind)
    sizes = tuple(
        dim + before + after if isinstance(dim, int) else None
        for dim, (before, after) in zip(shape, amounts.tolist(), strict=True)
    )
    result, codes = TensorType(call.type_of_tensor(tensor), sizes), call.codes_of_tensor(tensor)
    inputs = [tensor, call.const(amounts)]
    if value is None:
        return call.step("PAD", inputs, result, codes=codes)
    return call.step("PADV2", [*inputs, call.scalar(value, result)], result, codes=codes)


def _conv(call: ExportCall) -> None:
    rank = call.rank(0)
    if rank not in (3, 4, 5):
        call.unsupported(f"a convolution over {rank - 2} axes")
    frame = frame_of(call, call.shape(1)[2:])
    if rank == 5:
        _conv_3d(call, frame)
    elif rank == 3:
        _conv_1d(call, frame)
    else:
        tensor = bordered(call, call.input(0), call.type(0), frame.border)
        _conv_2d(call, tensor, frame, None)


def _options(frame: Frame, activation: int) -> dict[str, Option]:
    options: dict[str, Option] = {
        "padding": frame.padding,
        "fused_activation_function": activation,
    }
    axes = "dhw"[-len(frame.kernel) :]
    for axis, stride, dilation in zip(axes, frame.strides, frame.dilations, strict=True):
        options[f"stride_{axis}"] = stride
        options[f"dilation_{axis}_factor"] = dilation
    return options


def _conv_2d(call: ExportCall, tensor: int, frame: Frame, outputs: list[int] | None) -> None:
    group, count = call.integer("group", 1), call.shape(1)[0]
    channels = call.shape(1)[1] * group
    depthwise = group == channels and group > 1
    if call.is_circle and group > 1 and not depthwise:
        _group_by_group(call, tensor, frame, outputs)
        return
    # (out, in / group, h, w) → (out, h, w, in / group), or (1, h, w, out) where every channel is a
    # group of its own.
    order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
    weights = call.weights(1, order)
    if weights is None:
        weights = _transposed_weights(call, order)
    bias = call.bias(call.node.operand("B"), count, weights)
    options = _options(frame, call.activation)
    if depthwise:
        options["depth_multiplier"] = count // channels
    version = (
        3
        if call.is_quantised and call.type_of_tensor(tensor) is not DType.U8
        else 2
        if depthwise and max(frame.dilations) > 1
        else 1
    )
    call.emit(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
        [tensor, weights, bias],
        options,
        outputs=outputs,
        version=version,
    )


def _group_by_group(call: ExportCall, tensor: int, frame: Frame, outputs: list[int] | None) -> None:
    """onert takes a convolution in groups for one without."""
    group, (count, width) = call.integer("group", 1), call.shape(1)[:2]
    value, bias = call.value(1), call.value(2) if call.has(2) else np.zeros(count, np.float32)
    if call.is_quantised or value is None or bias is None or value.ndim != 4:
        call.unsupported(
            f"a convolution in {group} groups, quantised or with weights that are not stored"
        )
    before, after = call.known_rank(call.type(0))[:-1], call.known_rank(call.output_type())[:-1]
    wide = before
    if len(before) == len(after):
        wide = tuple(call.writer.subgraph.tensors[tensor].shape[:-1])
    parts = [call.between(TensorType(DType.F32, (*wide, width))) for _ in range(group)]
    call.emit("SPLIT", [call.ints(3), tensor], {"num_splits": group}, outputs=parts)
    made = []
    for number, part in enumerate(parts):
        rows = slice(number * (count // group), (number + 1) * (count // group))
        constants = [
            call.const(value[rows].transpose(0, 2, 3, 1)),
            call.const(bias[rows]),
        ]
        made.append(
            call.step(
                "CONV_2D",
                [part, *constants],
                TensorType(DType.F32, (*after, count // group)),
                _options(frame, call.activation),
            )
        )
    call.emit("CONCATENATION", made, {"axis": 3}, outputs=outputs)


def _transposed_weights(call: ExportCall, order: Sequence[int]) -> int:
    """Weights that are computed while the model runs."""
    if call.is_quantised or call.rank(1) != 4:
        call.unsupported("its weights are computed while the model runs")
    return call.transposed(call.input(1), call.type(1), order)[0]


def _conv_1d(call: ExportCall, frame: Frame) -> None:
    """As a convolution over two axes of which the first has one place."""
    x, y = call.shape(0), call.output_shape()
    if call.is_quantised:
        call.unsupported("a quantised convolution over one axis")
    flat = frame.in_two_axes
    kind = TensorType(call.type(0).dtype, (x[0], 1, *x[1:]))
    tensor = bordered(call, call.reshaped(call.input(0), (x[0], 1, *x[1:])), kind, flat.border)
    made = call.between(TensorType(kind.dtype, (y[0], 1, *y[1:])))
    _conv_2d(call, tensor, flat, [made])
    call.emit_reshape(made, y)


def _conv_3d(call: ExportCall, frame: Frame) -> None:
    if call.integer("group", 1) != 1 or call.is_quantised:
        call.unsupported("a convolution over three axes, quantised or in groups")
    tensor = bordered(call, call.input(0), call.type(0), frame.border)
    weights = call.weights(1, (2, 3, 4, 1, 0))
    if weights is None:
        call.unsupported("its weights are computed while the model runs")
    bias = call.bias(call.node.operand("B"), call.shape(1)[0], weights)
    call.emit("CONV_3D", [tensor, weights, bias], _options(frame, call.activation))


def _conv_transpose(call: ExportCall) -> None:
    """The file's operator has the shape of its result, and the padding of its inverse."""
    if call.rank(0) != 4:
        call.unsupported(f"a transposed convolution over {call.rank(0) - 2} axes")
    x, w, y = call.shape(0), call.shape(1), call.output_shape()
    strides = call.numbers("strides", (1, 1))
    if call.integer("group", 1) != 1 or any(
        step != 1 for step in call.numbers("dilations", (1, 1))
    ):
        call.unsupported("a transposed convolution with groups or dilations")
    weights = call.weights(1, (1, 2, 3, 0))
    if weights is None:
        call.unsupported("its weights are computed while the model runs")
    full = [
        (size - 1) * stride + kernel
        for size, stride, kernel in zip(x[1:3], strides, w[2:], strict=True)
    ]
    begins = _cut_before(call, full, y[1:3])
    options: dict[str, Option] = {
        "stride_w": strides[1],
        "stride_h": strides[0],
        "fused_activation_function": 0,
    }
    # SAME cuts half of what is too much before, the rest after.
    halves = [
        max((-(-out // stride) - 1) * stride + kernel - out, 0) // 2
        for out, stride, kernel in zip(y[1:3], strides, w[2:], strict=True)
    ]
    fits = all(
        size == -(-out // stride) for size, out, stride in zip(x[1:3], y[1:3], strides, strict=True)
    )
    bias = None
    if call.has(2) or call.is_quantised:
        bias = call.bias(call.node.operand("B"), w[1], weights)
    padding = None
    if begins == [0, 0] and full == list(y[1:3]):
        padding = VALID
    elif fits and begins == halves:
        padding = SAME
    if padding is not None:
        call.emit(
            "TRANSPOSE_CONV",
            [call.ints(y), weights, call.input(0), bias],
            {"padding": padding, **options},
            version=3 if bias is not None else 2 if call.is_quantised else 1,
        )
    else:
        if call.is_quantised:
            call.unsupported(
                "quantised, with padding that is neither SAME nor VALID:"
                f" {list(call.numbers('pads', ()))}"
            )
        whole = (y[0], *full, y[3])
        kind = call.type(0).dtype
        made = call.step(
            "TRANSPOSE_CONV",
            [call.ints(whole), weights, call.input(0)],
            TensorType(kind, whole),
            {"padding": VALID, **options},
        )
        missing = [
            (0, max(begin + out - size, 0))
            for begin, out, size in zip(begins, y[1:3], full, strict=True)
        ]
        made = bordered(call, made, TensorType(kind, whole), missing)
        part = [made, call.ints((0, *begins, 0)), call.ints(y)]
        if bias is None:
            call.emit("SLICE", part)
        else:
            # Also where nothing but the bias is.
            call.emit("ADD", [call.step("SLICE", part, TensorType(kind, y)), bias])


def _cut_before(call: ExportCall, full: Sequence[int], wanted: Sequence[int]) -> list[int]:
    auto = call.text("auto_pad", "NOTSET")
    if auto in ("NOTSET", "") and not call.node.attrs.get("output_shape"):
        return list(call.numbers("pads", (0, 0, 0, 0))[:2])
    extra = [max(size - out, 0) for size, out in zip(full, wanted, strict=True)]
    return [(each + (auto == "SAME_LOWER")) // 2 if auto != "VALID" else 0 for each in extra]


EXPORTS: Exports = {"ChannelsLastConv": _conv, "ChannelsLastConvTranspose": _conv_transpose}
