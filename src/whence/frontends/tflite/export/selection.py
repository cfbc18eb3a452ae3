"""Taking some of the values: slices, gathers, the largest, those that are not zero, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from flatbuffers import flexbuffers

from whence.frontends.tflite.export.call import ExportCall, Exports, cast_options
from whence.frontends.tflite.operators.select import REAL_DETECTION_OPTIONS, WHOLE_DETECTION_OPTIONS
from whence.frontends.tflite.schema import Option
from whence.types import DType, TensorType


def _slice(call: ExportCall) -> None:
    rank = call.rank(0)
    axes_value = call.value(3)
    count = call.known_rank(call.type(1))[0]
    if call.has(3) and axes_value is None:
        call.unsupported("its axes are computed while the model runs")
    axes = (
        [int(axis) % rank for axis in axes_value.reshape(-1)]
        if axes_value is not None
        else list(range(count if isinstance(count, int) else rank))
    )
    steps = call.integers(4, "steps") if call.has(4) else (1,) * len(axes)
    begins, ends = call.value(1), call.value(2)
    if begins is None or ends is None:
        _computed_slice(call, axes, steps)
        return
    shape = call.type(0).static_shape
    if shape is not None and all(step == 1 for step in steps):
        starts, sizes = [0] * rank, list(call.output_shape())
        for axis, begin in zip(axes, begins.reshape(-1).tolist(), strict=True):
            starts[axis] = min(max(begin + shape[axis] if begin < 0 else begin, 0), shape[axis])
        _contiguous(call, shape, starts, sizes)
        return
    full = [(0, 0, 1)] * rank
    begin_mask = end_mask = (1 << rank) - 1
    for axis, begin, end, step in zip(
        axes, begins.reshape(-1).tolist(), ends.reshape(-1).tolist(), steps, strict=True
    ):
        full[axis] = (begin, end, step)
        begin_mask &= ~(1 << axis)
        end_mask &= ~(1 << axis)
        if abs(end) >= 1 << 31 or (
            step < 0 and end < -(shape[axis] if shape is not None else 1 << 31)
        ):
            end_mask |= 1 << axis
            full[axis] = (begin, 0, step)
        if abs(begin) >= 1 << 31:
            begin_mask |= 1 << axis
            full[axis] = (0, full[axis][1], step)
    inputs = [call.input(0), *(call.ints([entry[column] for entry in full]) for column in range(3))]
    call.emit("STRIDED_SLICE", inputs, {"begin_mask": begin_mask, "end_mask": end_mask})


_MOST_AXES = 4


def _contiguous(
    call: ExportCall, shape: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
) -> None:
    """A slice of every element in between. onert slices four axes right and more wrong, so those
    that stay whole are made one.
    """
    if not call.is_circle or len(shape) <= _MOST_AXES:
        call.emit("SLICE", [call.input(0), call.ints(starts), call.ints(sizes)])
        return
    merged: list[tuple[int, int, int]] = []
    was_whole = False
    for length, start, size in zip(shape, starts, sizes, strict=True):
        is_whole = length == size
        if merged and is_whole and was_whole:
            merged[-1] = (merged[-1][0] * length, 0, merged[-1][2] * size)
        else:
            merged.append((length, start, size))
        was_whole = is_whole
    lengths, begins, kept = (tuple(entry[column] for entry in merged) for column in range(3))
    source = call.reshaped(call.input(0), lengths)
    kind, codes = TensorType(call.type_of_tensor(source), kept), call.codes_of_tensor(source)
    part = [source, call.ints(begins), call.ints(kept)]
    call.emit_reshape(call.step("SLICE", part, kind, codes=codes), sizes)


def _computed_slice(call: ExportCall, axes: list[int], steps: tuple[int, ...]) -> None:
    """Bounds that the graph computes, for all axes in order."""
    rank = call.rank(0)
    if axes != list(range(len(axes))):
        call.unsupported(f"a slice of axes {axes} whose bounds are computed while the model runs")
    bounds = [call.index_input(1), call.index_input(2)]
    mask = ((1 << rank) - 1) & ~((1 << len(axes)) - 1)
    if len(axes) < rank:
        kind = TensorType(DType.I32, (rank,))
        rest = call.ints([0] * (rank - len(axes)))
        bounds = [call.step("CONCATENATION", [each, rest], kind, {"axis": 0}) for each in bounds]
    call.emit(
        "STRIDED_SLICE",
        [call.input(0), *bounds, call.ints((*steps, *(1,) * (rank - len(axes))))],
        {"begin_mask": mask, "end_mask": mask},
    )


def _gather(call: ExportCall) -> None:
    axis = call.axis("axis", 0, call.rank(0))
    indices = call.value(1)
    if indices is not None:
        size = call.type(0).shape
        length = size[axis] if size is not None else None
        if np.any(indices < 0):
            if not isinstance(length, int):
                call.unsupported("indices that count from the end of an axis of unknown length")
            indices = np.where(indices < 0, indices + length, indices)
        tensor = call.ints(indices)
    else:
        tensor = call.input(1)
    call.emit("GATHER", [call.input(0), tensor], {"axis": axis, "batch_dims": 0})


def _gather_nd(call: ExportCall) -> None:
    batch = call.integer("batch_dims")
    if batch == 0:
        call.emit("GATHER_ND", [call.input(0), call.index_input(1)])
        return
    last = call.known_rank(call.type(1))[-1]
    if last != 1:
        call.unsupported(f"indices of {last} numbers with {batch} batch dimensions")
    shape = call.known_rank(call.type(1))[:-1]
    kind = TensorType(DType.I32, shape)
    sizes = [dim if isinstance(dim, int) else -1 for dim in shape]
    flat = call.step(
        "RESHAPE", [call.index_input(1), call.ints(sizes)], kind, {"new_shape": tuple(sizes)}
    )
    call.emit("GATHER", [call.input(0), flat], {"axis": batch, "batch_dims": batch})


def _scatter_nd(call: ExportCall) -> None:
    """The file's operator adds to zeros, so the graph's must begin with zeros."""
    source = call.graph[call.ref(0).node]
    value = call.value(0)
    filled = source.op == "ConstantOfShape" and not np.any(np.asarray(source.attrs.get("value", 0)))
    if not filled and (value is None or np.any(value)):
        call.unsupported("a tensor that is not zero where nothing is written")
    if call.text("reduction", "none") not in ("none", "add"):
        call.unsupported(f"updates that are combined by {call.text('reduction', 'none')}")
    shape = call.output_type().static_shape
    sizes = (
        call.ints(shape)
        if shape is not None
        else call.narrow(
            call.writer.tensor(source.inputs[0] or call.ref(0)),
            TensorType(DType.I64, (call.rank(0),)),
        )
    )
    call.emit("SCATTER_ND", [call.index_input(1), call.input(2), sizes])


def _arg(call: ExportCall, op: str) -> None:
    if call.integer("select_last_index"):
        call.unsupported("the last of equal values")
    along = call.axis("axis", 0, call.rank(0))
    axis = call.ints(along)
    options: dict[str, Option] = {"output_type": 4}
    if not call.integer("keepdims", 1):
        call.emit(op, [call.input(0), axis], options)
        return
    shape = call.output_shape()
    kept = shape[:along] + shape[along + 1 :]
    made = call.step(op, [call.input(0), axis], TensorType(DType.I64, kept), options)
    call.emit_reshape(made, shape)


def _top_k(call: ExportCall) -> None:
    rank = call.rank(0)
    if call.axis("axis", -1, rank) != rank - 1 or not call.integer("largest", 1):
        call.unsupported("the smallest values, or those along another axis than the last")
    count = call.value(1)
    wanted = (
        call.ints(count.reshape(()))
        if count is not None
        else call.step(
            "RESHAPE",
            [call.index_input(1), call.const(np.empty(0, np.int32))],
            TensorType(DType.I32, ()),
            {"new_shape": ()},
        )
    )
    places = call.between(TensorType(DType.I32, call.output_type(1).shape))
    call.emit("TOPK_V2", [call.input(0), wanted], outputs=[call.output(0), places])
    call.emit("CAST", [places], cast_options(DType.I32, DType.I64), outputs=[call.output(1)])


def _non_zero(call: ExportCall) -> None:
    """A column for each element that is not zero; the file's operator makes rows."""
    kind = call.output_type()
    shape = call.known_rank(kind)
    truth = call.input(0)
    if call.type(0).dtype is not DType.BOOL:
        truth = call.step(
            "NOT_EQUAL",
            [truth, call.scalar(0, call.type(0))],
            TensorType(DType.BOOL, call.type(0).shape),
        )
    rows = call.step("WHERE", [truth], TensorType(DType.I64, (shape[1], shape[0])))
    call.emit("TRANSPOSE", [rows, call.ints((1, 0))])


def _one_hot(call: ExportCall) -> None:
    values = call.value(2)
    if values is None:
        call.unsupported("its two values are computed while the model runs")
    off, on = (call.const(np.asarray(each)) for each in np.asarray(values).reshape(-1)[:2])
    depth = call.value(1)
    if depth is None:
        call.unsupported("its depth is computed while the model runs")
    axis = call.integer("axis", -1)
    wanted = call.ints(depth.reshape(()))
    call.emit(
        "ONE_HOT",
        [call.index_input(0), wanted, on, off],
        {"axis": axis if axis < call.rank(0) else -1},
    )


def _reverse_sequence(call: ExportCall) -> None:
    options: dict[str, Option] = {
        "seq_dim": call.integer("time_axis", 0),
        "batch_dim": call.integer("batch_axis", 1),
    }
    call.emit("REVERSE_SEQUENCE", [call.input(0), call.index_input(1)], options)


def _unique(call: ExportCall) -> None:
    if call.integer("sorted", 1) or call.has_attr("axis"):
        call.unsupported("different values in order, or along an axis")
    if call.is_used(1) or call.is_used(3):
        call.unsupported("the places or the numbers of different values")
    numbers = (
        call.output(2)
        if len(call.node.outputs) > 2
        else call.between(TensorType(DType.I64, (None,)))
    )
    call.emit("UNIQUE", [call.input(0)], {"idx_out_type": 4}, outputs=[call.output(0), numbers])


def _suppression(call: ExportCall) -> None:
    """Boxes that do not overlap better ones."""
    given = call.inputs()
    indices, scores, count = (call.output(index) for index in range(3))
    if len(given) > 5:
        call.emit("NON_MAX_SUPPRESSION_V5", given, outputs=[indices, scores, count])
    elif call.is_used(1):
        softness = call.const(np.zeros((), np.float32))
        call.emit("NON_MAX_SUPPRESSION_V5", [*given, softness], outputs=[indices, scores, count])
    else:
        call.emit("NON_MAX_SUPPRESSION_V4", given, outputs=[indices, count])


def _post_process(call: ExportCall) -> None:
    """The custom operator at the end of SSD detectors, whose options are a FlexBuffer."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, absent in WHOLE_DETECTION_OPTIONS.items():
            builder.Key(name)
            value = call.integer(name, absent)
            # The only one that is a truth value there.
            if name == "use_regular_nms":
                builder.Bool(bool(value))
            else:
                builder.Int(value)
        for name, missing in REAL_DETECTION_OPTIONS.items():
            builder.Key(name)
            builder.Float(call.number(name, missing))
    options = bytes(builder.Finish())
    call.emit("CUSTOM:TFLite_Detection_PostProcess", call.inputs(), custom=options)


EXPORTS: Exports = {
    "ArgMax": partial(_arg, op="ARG_MAX"),
    "ArgMin": partial(_arg, op="ARG_MIN"),
    "DetectionPostProcess": _post_process,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "PaddedNonMaxSuppression": _suppression,
    "ReverseSequence": _reverse_sequence,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "TopK": _top_k,
    "Unique": _unique,
}
