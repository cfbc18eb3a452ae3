"""What follows a sum of products of codes: its scaling, the zero point, the limits, and the type of
the result.

LiteRT:  cast(clip(fixed_point_scale(sum) + zero))                          in integers
         cast(clip(round(double(sum) · (scales in / scale out)) + zero))    for some sums of 64 bits, halves away from zero
ONNX:    cast(clip(round(float(sum) · (scales in / scale out)) + zero))     in float32, halves to even
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Ref
from whence.graph.edit import Edit
from whence.passes.quantised.fixed_point import fixed_points
from whence.passes.quantised.quantised_op import QuantisedOp
from whence.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Tail:
    """The steps from integer sum to codes. `fixed`: multiplier and shift, else a real `factor`."""

    match: QuantisedOp
    fixed: tuple[np.ndarray, np.ndarray] | None
    factor: np.ndarray | None
    rounding: str = "double"
    """How often the fixed-point product is rounded, see FixedPointScale."""

    def build(self, edit: Edit, sums: Ref) -> Ref:
        """The codes made of `sums`, an integer value of `edit`."""
        match, of = self.match, [*self.match.activations, self.match.last]
        if self.fixed is not None:
            multiplier, shift = self.fixed
            attrs = {} if self.rounding == "double" else {"rounding": self.rounding}
            value = edit.node(
                "FixedPointScale", [sums, edit.const(multiplier), edit.const(shift)], attrs, of=of
            ).ref()
            return narrowed(edit, value, match, of)
        assert self.factor is not None
        value = edit.node("Cast", [sums], {"to": int(DType.of(self.factor))}, of=of).ref()
        value = edit.node("Mul", [value, edit.const(self.factor)], of=of).ref()
        if self.factor.dtype == np.float32:
            return narrowed(edit, edit.node("Round", [value], of=of).ref(), match, of)
        size = edit.node(
            "Add", [edit.node("Abs", [value], of=of).ref(), edit.const(np.float64(0.5))], of=of
        ).ref()
        whole = edit.node("Floor", [size], of=of).ref()
        return narrowed(
            edit,
            edit.node("Mul", [edit.node("Sign", [value], of=of).ref(), whole], of=of).ref(),
            match,
            of,
        )


def tail_of(
    match: QuantisedOp, reals: np.ndarray, *, in_double: bool = False, rounding: str = "double"
) -> Tail | None:
    """The tail that multiplies a sum by `reals` (one number or one for each element of the last
    axis); `None` when they are out of range.
    """
    if match.is_fixed_point and not in_double:
        fixed = fixed_points(float(real) for real in reals.reshape(-1))
        return None if fixed is None else Tail(match, fixed, None, rounding)
    factor = reals.astype(np.float64 if match.is_fixed_point else np.float32)
    if not np.all(np.isfinite(factor)):
        return None
    return Tail(match, None, factor.reshape(()) if factor.size == 1 else factor.reshape(-1))


def narrowed(edit: Edit, value: Ref, match: QuantisedOp, of: list[Node]) -> Ref:
    """A value in units of the result's scale as its codes: with zero point, limits and type."""
    kind = edit.type_of(value)
    assert isinstance(kind, TensorType)
    zero, low, high = (
        np.asarray(number, kind.dtype.numpy)
        for number in (match.result.zero, match.low, match.high)
    )
    if match.result.zero:
        value = edit.node("Add", [value, edit.const(zero)], of=of).ref()
    value = edit.node("Clip", [value, edit.const(low), edit.const(high)], of=of).ref()
    return edit.node("Cast", [value], {"to": int(match.result.dtype)}, of=of).ref()
