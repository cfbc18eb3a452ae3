"""Bilinear interpolation of codes as LiteRT has it, the coding being the same on both sides.

1. uint8: the four neighbours weighted in float32 and added one after the other, plus 1/2, cut off
2. int8, int16: rows, then columns, weighted with multiples of 1/1024 in 32 or 64 bits, the sum of
   all four rounded once, halves away from zero
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.graph import Ref, Rewriter
from whence.graph.maker import Maker
from whence.ops.attributes import get_int, get_str
from whence.passes.pattern import static_shape_of
from whence.passes.quantised.quantised_op import QuantisedOp
from whence.types import DType

_BITS = 10
_UNIT = 1 << _BITS
_RULE = "quantise(resize(dequantise(x))) = resize(x) in integers"


class _Axis(NamedTuple):
    """Interpolation along one axis: for each place of the result the two places it lies between,
    and the weight of the second.
    """

    axis: int
    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray


def rewrite_resize(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """True when a rule applied."""
    node, x = match.op, match.operand(0)
    before, after = (static_shape_of(rewriter.graph, ref) for ref in (node.inputs[0], node.ref()))
    if (
        x is None
        or not match.is_fixed_point
        or get_str(node.attrs, "mode", "nearest") != "linear"
        or not x.coding.equals(match.result)
    ):
        return False
    if (
        before is None
        or after is None
        or len(before) != 4
        or before[0] != after[0]
        or before[3] != after[3]
        or get_int(node.attrs, "antialias", 0)
    ):
        return False
    mode = get_str(node.attrs, "coordinate_transformation_mode", "half_pixel")
    if mode not in {"half_pixel", "align_corners", "asymmetric"} or match.activations:
        return False
    make = Maker(rewriter.edit(*match.matched, rule=_RULE), match.matched)
    if match.result.dtype is DType.U8:
        axes = [_in_float(axis, before[axis], after[axis], mode) for axis in (1, 2)]
        value = _added_up(make, x.codes, axes[0], axes[1])
    else:
        axes = [_in_integers(axis, before[axis], after[axis], mode) for axis in (1, 2)]
        dtype = DType.I32 if match.result.dtype is DType.I8 else DType.I64
        value = _interpolated(make, x.codes, axes, dtype)
    return make.edit.finish(match.last.ref(), make.cast(value, match.result.dtype))


def _in_integers(axis: int, size: int, target: int, mode: str) -> _Axis:
    if mode == "align_corners" and target > 1:
        step = (_UNIT * (size - 1) + (target - 1) // 2) // (target - 1)
    else:
        step = (_UNIT * size + target // 2) // target
    place = np.arange(target, dtype=np.int64) * step
    if mode == "half_pixel":
        place += step // 2 - _UNIT // 2
    # Quotients are cut towards zero, and places before the first element are the first element.
    first = np.maximum(place, 0) // _UNIT
    second = np.minimum(np.maximum(place + _UNIT - 1, 0) // _UNIT, size - 1)
    return _Axis(axis, first, second, place - first * _UNIT)


def _in_float(axis: int, size: int, target: int, mode: str) -> _Axis:
    aligned = mode == "align_corners" and target > 1
    step = (
        np.float32(size - 1) / np.float32(target - 1)
        if aligned
        else np.float32(size) / np.float32(target)
    )
    place = np.arange(target).astype(np.float32)
    place = (
        (place + np.float32(0.5)) * step - np.float32(0.5) if mode == "half_pixel" else place * step
    )
    first = np.maximum(np.floor(place), 0).astype(np.int64)
    second = np.minimum(np.ceil(place).astype(np.int64), size - 1)
    return _Axis(axis, first, second, place - first.astype(np.float32))


def _taken(make: Maker, value: Ref, axis: _Axis, places: np.ndarray, weight: np.ndarray) -> Ref:
    """The elements at these places of the axis, each times its weight."""
    shape = tuple(-1 if each == axis.axis else 1 for each in range(4))
    return make("Mul", make("Gather", value, places, axis=axis.axis), weight.reshape(shape))


def _added_up(make: Maker, codes: Ref, rows: _Axis, columns: _Axis) -> Ref:
    """In the order in which LiteRT adds, on which the last bit depends."""
    x, one = make.cast(codes, DType.F32), np.float32(1)
    above = _taken(make, x, rows, rows.first, one - rows.weight)
    below = _taken(make, x, rows, rows.second, rows.weight)
    total: Ref | None = None
    for places, weight in ((columns.first, one - columns.weight), (columns.second, columns.weight)):
        for row in (above, below):
            part = _taken(make, row, columns, places, weight)
            total = part if total is None else make("Add", total, part)
    return make("Floor", make("Add", total, np.float32(0.5)))


def _interpolated(make: Maker, codes: Ref, axes: list[_Axis], dtype: DType) -> Ref:
    value = make.cast(codes, dtype)
    for each in axes:
        first = _taken(make, value, each, each.first, (_UNIT - each.weight).astype(dtype.numpy))
        second = _taken(make, value, each, each.second, each.weight.astype(dtype.numpy))
        value = make("Add", first, second)
    if dtype is DType.I32:
        # Twice the sum times a half is exact, so that only the shift rounds, and does so once.
        doubled = make("Mul", value, np.int32(2))
        return make("FixedPointScale", doubled, np.int32(1 << 30), np.int32(-2 * _BITS))
    # Integer division cuts towards zero.
    half = make("Mul", make("Sign", value), np.int64(1 << (2 * _BITS - 1)))
    return make("Div", make("Add", value, half), np.int64(1 << (2 * _BITS)))
