"""Upsample, and Resize as it was before opset 11 and 13."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite
from whence.ops.definition import Attr


def _upsample_scales(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    scales = record.numbers("scales")
    if scales is None:
        raise record.unsupported("an Upsample of this opset has its scales as an attribute")
    return [
        record.with_(
            inputs=[record.required(0), build.scope.constant(np.array(scales, np.float32))],
            attrs=record.attrs_without("scales"),
        )
    ]


def _upsample(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    mode = record.text("mode", "nearest")
    return [record.with_(op="Resize", attrs={"mode": "linear" if mode == "bilinear" else mode})]


def _resize_10(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Output i reads input i / scale, rounded down when enlarging and up when shrinking."""
    data, scales, mode = record.required(0), record.required(1), record.text("mode", "nearest")
    known = build.scope.value_of(scales)
    if mode != "nearest" or known is None or not (known < 1).any():
        return build.result("Resize", data, "", scales, **_asymmetric(mode, "floor"))
    if not (known > 1).any():
        return build.result("Resize", data, "", scales, **_asymmetric(mode, "ceil"))
    # Nearest-neighbour resizing is separable, so the two directions can go one after the other.
    larger, smaller = (build.constant(limit(known, 1)) for limit in (np.maximum, np.minimum))
    grown = build.op("Resize", data, "", larger, **_asymmetric(mode, "floor"))
    return build.result("Resize", grown, "", smaller, **_asymmetric(mode, "ceil"))


def _asymmetric(mode: str, rounding: str) -> dict[str, Attr]:
    return {
        "mode": mode,
        "nearest_mode": rounding,
        "coordinate_transformation_mode": "asymmetric",
    }


_FOR_NEAREST = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""Rounding of (i + 1/2) / s, and the same pixel as a rounding of (i + 1/2) / s - 1/2: floor(p +
1/2) rounds halves upwards, ceil(p + 1/2 - 1/2) is ceil.
"""


def _half_pixel_for_nn(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """A coordinate mode that opset 13 dropped, in the terms of half_pixel where that can be said;
    files of any opset have it.
    """
    rounding = _FOR_NEAREST.get(record.text("nearest_mode", "round_prefer_floor"))
    if (
        record.text("coordinate_transformation_mode", "half_pixel") != "tf_half_pixel_for_nn"
        or record.text("mode", "nearest") != "nearest"
        or rounding is None
    ):
        return [record]
    return [
        record.with_(
            attrs={
                **record.attrs,
                "coordinate_transformation_mode": "half_pixel",
                "nearest_mode": rounding,
            }
        )
    ]


def _absent_inputs(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """An input that is an empty constant means the same as one left out; a region matters only to
    tf_crop_and_resize.
    """
    inputs = [record.required(0), record.input(1), record.input(2), record.input(3)]
    if record.text("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        inputs[1] = ""
    for index in (2, 3):
        known = build.scope.value_of(inputs[index]) if inputs[index] else None
        if known is not None and known.size == 0:
            inputs[index] = ""
    while not inputs[-1]:
        inputs.pop()
    return [record] if inputs == record.inputs else [record.with_(inputs=inputs)]


def _newest(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    (record,) = _half_pixel_for_nn(record, build)
    return _absent_inputs(record, build)


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("Upsample", 9, _upsample_scales),
    Adapter("Upsample", 10, _upsample),
    Adapter("Resize", 11, _resize_10),
    Adapter("Resize", EVERY_OPSET, _newest),
)
