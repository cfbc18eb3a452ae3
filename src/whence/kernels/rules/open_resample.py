"""Resize along an axis whose size is known only at run time: places and weights are computed where
they are used, as the reference computes them for its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.extent import is_symbolic, surely_divides, surely_equal
from whence.graph import Node
from whence.kernels.expressions import apply, cast, position
from whence.kernels.index import Index, LoadedIndex, of
from whence.kernels.ir import Expr, Fn, Literal
from whence.kernels.rules.elementwise import add, div, maximum, minimum, mul, sub
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.neural.resize import ResizeAxis, nearest_pixels, source_positions
from whence.types import DType

# So long an axis shows whether pixels are repeated a whole number of times: places of these
# transformations have the factor as their period.
_PROTOTYPE = 64
_PERIODIC = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"})
_TRANSFORMS = frozenset({*_PERIODIC, "align_corners"})


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """An axis that changes, of open size."""

    axis: int
    size: int
    output: int
    factor: np.float32 | None
    """`None`: the quotient of both sizes."""

    def at(self, transform: str, place: Index) -> Expr:
        """Where an output element lies on the input axis, in float32; see `source_positions`."""
        number, half = position(place, DType.F32), Literal(0.5, DType.F32)
        if transform == "align_corners":
            scale = div(_real(self.size - 1), _real(self.output - 1))
            return mul(number, scale)
        scale = (
            div(_real(self.output), _real(self.size))
            if self.factor is None
            else Literal(float(self.factor), DType.F32)
        )
        if transform == "asymmetric":
            return div(number, scale)
        middle = div(add(number, half), scale)
        return middle if transform == "tf_half_pixel_for_nn" else sub(middle, half)

    def places(self, node: Node, at: Index) -> tuple[tuple[Index, Expr | None], ...]:
        """The input elements that output place `at` is made of, with their weights."""
        transform = get_str(node.attrs, "coordinate_transformation_mode", "half_pixel")
        if get_str(node.attrs, "mode", "nearest") == "linear":
            return self._linear(transform, at)
        nearest = get_str(node.attrs, "nearest_mode", "round_prefer_floor")
        return ((self._nearest(transform, nearest, at), None),)

    def _nearest(self, transform: str, mode: str, place: Index) -> Index:
        """The one pixel that an output element is."""
        repeats = self._repeats(transform, mode)
        if repeats:
            return place // repeats
        real, half = self.at(transform, place), Literal(0.5, DType.F32)
        rounded = {
            "round_prefer_floor": lambda: apply(Fn.CEIL, sub(real, half)),
            "round_prefer_ceil": lambda: apply(Fn.FLOOR, add(real, half)),
            "floor": lambda: apply(Fn.FLOOR, real),
            "ceil": lambda: apply(Fn.CEIL, real),
        }[mode]()
        return self._pixel(rounded)

    def _linear(self, transform: str, place: Index) -> tuple[tuple[Index, Expr], ...]:
        """The two pixels that an output element lies between, and their weights."""
        real = self._clipped(self.at(transform, place))
        first = apply(Fn.FLOOR, real)
        second, one = sub(real, first), Literal(1.0, DType.F32)
        return (self._pixel(first), sub(one, second)), (self._pixel(add(first, one)), second)

    def _repeats(self, transform: str, mode: str) -> int:
        """How often each pixel is repeated; 0 where they are not, or not all equally often."""
        factor = self.factor
        if factor is None or transform not in _PERIODIC or factor < 1 or factor != int(factor):
            return 0
        times = int(factor)
        if not surely_equal(self.output, self.size * times):
            return 0
        plan = ResizeAxis(0, _PROTOTYPE, _PROTOTYPE * times, factor, (0.0, 1.0))
        places = nearest_pixels(source_positions(transform, plan), mode)
        places = np.clip(places, 0, _PROTOTYPE - 1)
        return times if np.array_equal(places, np.arange(plan.output) // times) else 0

    def _clipped(self, real: Expr) -> Expr:
        return minimum(maximum(real, Literal(0.0, DType.F32)), _real(self.size - 1))

    def _pixel(self, whole: Expr) -> Index:
        return of(LoadedIndex(cast(self._clipped(whole), DType.I64), self.size))


def _real(size: int) -> Expr:
    return cast(Literal(size, DType.I64), DType.F32)


def open_axes(
    node: Node, shape: Sequence[int], out: Sequence[int], scales: Sequence[float] | None
) -> list[OpenAxis] | None:
    """The axes that change; `None` where none is open, or tables are needed after all."""
    mode = get_str(node.attrs, "mode", "nearest")
    if (
        not any(map(is_symbolic, (*shape, *out)))
        or mode not in {"nearest", "linear"}
        or get_str(node.attrs, "coordinate_transformation_mode", "half_pixel") not in _TRANSFORMS
        or get_str(node.attrs, "keep_aspect_ratio_policy", "stretch") != "stretch"
        or get_int(node.attrs, "antialias", 0)
        or get_int(node.attrs, "exclude_outside", 0)
    ):
        return None
    named = get_ints(node.attrs, "axes", tuple(range(len(shape))))
    found = []
    for number, axis in enumerate(each % len(shape) for each in named):
        size, output = shape[axis], out[axis]
        if scales is not None:
            factor: np.float32 | None = np.float32(scales[number])
        elif surely_divides(size, output) and not is_symbolic(output // size):
            factor = np.float32(output // size)
        else:
            factor = None
        if factor == 1 and surely_equal(size, output):
            continue
        found.append(OpenAxis(axis, size, output, factor))
    return found
