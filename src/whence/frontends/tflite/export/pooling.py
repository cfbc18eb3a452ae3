"""Pools over channels-last tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.convolution import bordered
from whence.frontends.tflite.export.windows import SAME, Frame, frame_of
from whence.frontends.tflite.schema import Option
from whence.ops.quantised.quantise import integer_range
from whence.types import DType, TensorType


def _options(frame: Frame, activation: int) -> dict[str, Option]:
    return {
        "padding": frame.padding,
        "stride_w": frame.strides[1],
        "stride_h": frame.strides[0],
        "filter_width": frame.kernel[1],
        "filter_height": frame.kernel[0],
        "fused_activation_function": activation,
    }


def _frame(call: ExportCall) -> tuple[int, TensorType, Frame]:
    """The input with two spatial axes, and the window over them."""
    kernel = call.numbers("kernel_shape", ())
    if len(kernel) not in (1, 2) or any(
        step != 1 for step in call.numbers("dilations", (1,) * len(kernel))
    ):
        call.unsupported(
            f"a pool with window {list(kernel)} and dilations {list(call.numbers('dilations', ()))}"
        )
    frame = frame_of(call, kernel)
    tensor = call.input(0)
    kind = TensorType(call.type_of_tensor(tensor), call.known_rank(call.type(0)))
    if len(kernel) == 1:
        frame = frame.in_two_axes
        sizes = call.shape(0)
        kind = TensorType(kind.dtype, (sizes[0], 1, *sizes[1:]))
        tensor = call.reshaped(tensor, (sizes[0], 1, *sizes[1:]))
    return tensor, kind, frame


def _finish(
    call: ExportCall,
    op: str,
    tensor: int,
    frame: Frame,
    kind: TensorType,
    scale: np.ndarray | None = None,
) -> None:
    """The pool, what it is multiplied with, and the axis that was put in taken out again."""
    flat = len(call.known_rank(call.output_type())) == 3
    version = {DType.I8: 2, DType.I16: 3}.get(kind.dtype, 1)
    if not flat and scale is None:
        call.emit(op, [tensor], _options(frame, call.activation), version=version)
        return
    y = call.output_shape()
    made_kind = TensorType(kind.dtype, (y[0], 1, *y[1:]) if flat else y)
    made = call.step(
        op, [tensor], made_kind, _options(frame, call.activation if scale is None else 0), version
    )
    if scale is not None and flat:
        made = call.step(
            "MUL",
            [made, call.const(scale)],
            made_kind,
            {"fused_activation_function": call.activation},
        )
    elif scale is not None:
        call.emit("MUL", [made, call.const(scale)])
        return
    call.emit_reshape(made, y)


def _maximum(call: ExportCall) -> None:
    if len(call.node.outputs) > 1:
        call.unsupported("the places of the largest values")
    tensor, kind, frame = _frame(call)
    lowest = np.finfo(np.float32).min if kind.dtype.is_float else integer_range(kind.dtype)[0]
    tensor = bordered(call, tensor, kind, frame.border, float(lowest))
    _finish(call, "MAX_POOL_2D", tensor, frame, kind)


def _average(call: ExportCall) -> None:
    tensor, kind, frame = _frame(call)
    counts_border = bool(call.integer("count_include_pad"))
    if frame.padding == SAME and counts_border:
        if not kind.dtype.is_float:
            call.unsupported("an average of whole numbers that counts SAME padding")
        _counted(call, tensor, kind, frame)
        return
    if not frame.has_border or counts_border:
        tensor = bordered(call, tensor, kind, frame.border)
        _finish(call, "AVERAGE_POOL_2D", tensor, frame, kind)
        return
    if not kind.dtype.is_float or call.is_quantised:
        call.unsupported(f"an average of whole numbers with a border of {list(frame.border)}")
    # The border is in the file's count and not in ours: what is divided by too much is multiplied
    # back.
    ratio = _share_inside(call, kind, frame)
    tensor = bordered(call, tensor, kind, frame.border)
    _finish(call, "AVERAGE_POOL_2D", tensor, frame, kind, ratio)


def _counted(call: ExportCall, tensor: int, kind: TensorType, frame: Frame) -> None:
    """SAME padding that counts: the file's operator leaves it out, so averages are scaled."""
    shape = call.known_rank(kind)
    y = call.output_shape()
    sizes = [dim for dim in shape[1:-1] if isinstance(dim, int)]
    results = y[1:-1] if len(y) == 4 else (1, y[1])
    needed = [
        max((result - 1) * stride + each - size, 0)
        for size, result, stride, each in zip(
            sizes, results, frame.strides, frame.kernel, strict=True
        )
    ]
    border = tuple((each // 2, each - each // 2) for each in needed)
    share = _share_inside(call, kind, replace(frame, border=border))
    _finish(call, "AVERAGE_POOL_2D", tensor, frame, kind, (1 / share).astype(np.float32))


def _share_inside(call: ExportCall, kind: TensorType, frame: Frame) -> np.ndarray:
    """For every place of the result: elements of the window over those that are not border."""
    counts = []
    for dim, each, stride, (before, after) in zip(
        call.known_rank(kind)[1:-1], frame.kernel, frame.strides, frame.border, strict=True
    ):
        assert isinstance(dim, int)
        inside = np.pad(np.ones(dim), (before, after))
        starts = range(0, len(inside) - each + 1, stride)
        counts.append(np.array([inside[start : start + each].sum() for start in starts]))
    whole = frame.kernel[0] * frame.kernel[1]
    return np.asarray(whole / np.maximum(np.outer(counts[0], counts[1]), 1))[
        None, :, :, None
    ].astype(np.float32)


def _global(call: ExportCall, op: str) -> None:
    """Over all spatial axes of a channels-first tensor."""
    rank = call.rank(0)
    call.emit(op, [call.input(0), call.ints(range(2, rank))], {"keep_dims": True})


EXPORTS: Exports = {
    "ChannelsLastAveragePool": _average,
    "ChannelsLastMaxPool": _maximum,
    "GlobalAveragePool": partial(_global, op="MEAN"),
    "GlobalMaxPool": partial(_global, op="REDUCE_MAX"),
}
