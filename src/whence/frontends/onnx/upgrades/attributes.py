"""Attributes that later opsets made inputs, and names and defaults that they changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite, as_named
from whence.types import DType

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


def _ints_to_input(record: OpRecord, build: Rewrite, attribute: str) -> Sequence[OpRecord]:
    """The list `attribute` becomes input 1. An empty list meant the same as none."""
    values = record.integers(attribute)
    inputs = record.inputs[:1]
    if values:
        inputs.append(build.ints(*values))
    return [record.with_(inputs=inputs, attrs=record.attrs_without(attribute))]


def _split_count(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Without sizes, the number of equal parts was the number of outputs; now it is stated."""
    if record.input(1) or "num_outputs" in record.attrs:
        return [record]
    return [
        record.with_(
            inputs=record.inputs[:1], attrs={**record.attrs, "num_outputs": len(record.outputs)}
        )
    ]


def _slice(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    starts, ends, axes = record.integers("starts"), record.integers("ends"), record.integers("axes")
    if starts is None or ends is None:
        raise record.unsupported("a Slice of this opset has its starts and ends as attributes")
    parts = (starts, ends) if axes is None else (starts, ends, axes)
    inputs = [
        record.required(0),
        *(build.ints(*part) for part in parts),
    ]
    return [record.with_(inputs=inputs, attrs={})]


def _pad(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    pads = record.integers("pads")
    if pads is None:
        raise record.unsupported("a Pad of this opset has its pads as an attribute")
    value = record.number("value", 0.0)
    data = record.required(0)
    # Most pads are with zero, which is also what an absent value means.
    fill = build.like(value, data) if value != 0.0 else ""
    return build.result("Pad", data, build.ints(*pads), fill, mode=record.text("mode", "constant"))


def _clip(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = record.required(0)
    low = build.like(record.number("min", 0.0), data) if "min" in record.attrs else ""
    high = build.like(record.number("max", 0.0), data) if "max" in record.attrs else ""
    return build.result("Clip", data, low, high)


def _top_k(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    count = build.ints(record.integer("k", 1))
    return [record.with_(inputs=[record.required(0), count], attrs=record.attrs_without("k"))]


def _dropout(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    ratio = build.constant(np.array(record.number("ratio", 0.5), np.float32))
    build.into(record.outputs[:1], "Dropout", record.required(0), ratio)
    return _with_mask(build, DType.BOOL)


def _dropout_mask(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Before opset 10 the mask had the data's type."""
    build.into(record.outputs[:1], "Dropout", record.required(0), **record.attrs)
    return _with_mask(build, build.dtype(record.required(0)) or DType.F32)


def _with_mask(build: Rewrite, dtype: DType) -> list[OpRecord]:
    """Before opset 12 the mask of an inference was undefined; ONNX Runtime fills it with zeros."""
    record = build.record
    if record.output(1):
        shape = build.op("Shape", record.required(0))
        build.into(record.outputs[1:2], "ConstantOfShape", shape, value=np.zeros(1, dtype.numpy))
    return build.records


def _dft(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    axis = build.scalar_int(record.integer("axis", 1))
    return [
        record.with_(
            inputs=[record.required(0), record.input(1), axis], attrs=record.attrs_without("axis")
        )
    ]


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def grid_sample(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    mode = record.text("mode", "bilinear")
    return [record.with_(attrs={**record.attrs, "mode": _GRID_MODES.get(mode, mode)})]


def _roi_align(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Before opset 16 there was no half-pixel shift of the regions."""
    return [
        record.with_(attrs={**record.attrs, "coordinate_transformation_mode": "output_half_pixel"})
    ]


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("Squeeze", 13, partial(_ints_to_input, attribute="axes")),
    Adapter("Unsqueeze", 13, partial(_ints_to_input, attribute="axes")),
    Adapter("ReduceSum", 13, partial(_ints_to_input, attribute="axes")),
    *(
        Adapter(f"Reduce{kind}", 18, partial(_ints_to_input, attribute="axes"))
        for kind in _REDUCTIONS
    ),
    Adapter("Split", 13, partial(_ints_to_input, attribute="split")),
    Adapter("Split", 18, _split_count),
    Adapter("Slice", 10, _slice),
    Adapter("Pad", 11, _pad),
    Adapter("Clip", 11, _clip),
    Adapter("TopK", 10, _top_k),
    Adapter("Dropout", 10, _dropout_mask),
    Adapter("Dropout", 12, _dropout),
    Adapter("DFT", 20, _dft),
    Adapter("Scatter", 11, partial(as_named, op="ScatterElements")),
    Adapter("GridSample", 20, grid_sample),
    Adapter("RoiAlign", 16, _roi_align),
)
