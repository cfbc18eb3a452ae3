"""Operators and attribute values that got other names or other defaults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite, as_named

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
    Adapter("Scatter", 11, partial(as_named, op="ScatterElements")),
    Adapter("GridSample", 20, grid_sample),
    Adapter("RoiAlign", 16, _roi_align),
)
