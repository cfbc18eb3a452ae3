"""What follows a sum of products of codes: its scaling, the zero point, the limits, and the type of
the result.

LiteRT:  cast(clip(fixed_point_scale(sum) + zero))                          in integers
         cast(clip(round(double(sum) · (scales in / scale out)) + zero))    for some sums of 64 bits, halves away from zero
ONNX:    cast(clip(round(float(sum) · (scales in / scale out)) + zero))     in float32, halves to even
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Ref
from whence.graph.edit import Edit
from whence.graph.maker import Maker
from whence.passes.quantised.fixed_point import FixedPoint, fixed_point
from whence.passes.quantised.quantised_op import QuantisedOp
from whence.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Tail:
    """The steps from an integer sum to codes."""

    match: QuantisedOp
    scale: FixedPoint | np.ndarray
    """What the sum is multiplied by: in integers, or in float32 or float64."""
    rounding: str = "double"
    """How often the fixed-point product is rounded, see FixedPointScale."""

    def build(self, edit: Edit, sums: Ref) -> Ref:
        """The codes made of `sums`, an integer value of `edit`."""
        match = self.match
        make = Maker(edit, [*match.activations, match.last])
        if isinstance(self.scale, FixedPoint):
            attrs = {} if self.rounding == "double" else {"rounding": self.rounding}
            return narrowed(make, make("FixedPointScale", sums, *self.scale, **attrs), match)
        value = make("Mul", make.cast(sums, DType.of(self.scale)), self.scale)
        if self.scale.dtype == np.float32:
            return narrowed(make, make("Round", value), match)
        whole = make("Floor", make("Add", make("Abs", value), np.float64(0.5)))
        return narrowed(make, make("Mul", make("Sign", value), whole), match)


def tail_of(
    match: QuantisedOp, reals: np.ndarray, *, in_double: bool = False, rounding: str = "double"
) -> Tail | None:
    """The tail that multiplies a sum by `reals` (one number or one for each element of the last
    axis); `None` when they are out of range.
    """
    reals = reals.reshape(() if reals.size == 1 else -1)
    if match.is_fixed_point and not in_double:
        fixed = fixed_point(reals)
        return None if fixed is None else Tail(match, fixed, rounding)
    factor = reals.astype(np.float64 if match.is_fixed_point else np.float32)
    return Tail(match, factor) if np.all(np.isfinite(factor)) else None


def narrowed(make: Maker, value: Ref, match: QuantisedOp) -> Ref:
    """A value in units of the result's scale as codes of the result: plus the zero point, limited,
    in its type.
    """
    kind = make.edit.type_of(value)
    assert isinstance(kind, TensorType)
    zero, low, high = (
        np.asarray(number, kind.dtype.numpy)
        for number in (match.result.zero, match.low, match.high)
    )
    if match.result.zero:
        value = make("Add", value, zero)
    return make.cast(make("Clip", value, low, high), match.result.dtype)
