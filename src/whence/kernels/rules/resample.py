"""The element rule of Resize: each output element is a weighted sum of a few input elements.

Where sizes are numbers, places and weights are known beforehand. Places that follow a straight
line, as when every pixel is repeated, become index arithmetic; others are looked up in tables in
the code. Along an axis whose size is known only at run time, places and weights are computed where
they are used, as the reference computes them for its tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import is_symbolic, surely_divides, surely_equal
from whence.graph import Node
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, position, select
from whence.kernels.index import Index, LoadedIndex, of
from whence.kernels.ir import Expr, Fn, Literal, LookupTable
from whence.kernels.rules.elementwise import add, div, maximum, minimum, mul, sub
from whence.ops.attributes import get_float, get_int, get_ints, get_str
from whence.ops.definition import Call
from whence.ops.neural.resize import ResizeAxis, nearest_pixels, resize_axes, source_positions, taps
from whence.types import DType

# Loads for one output element beyond which code size and compile time are not worth it.
_MOST_TAPS = 64
# Largest factor by which whole pixels are repeated in index arithmetic.
_MOST_REPEATS = 16
# The longest axis for which places and weights are listed in code.
_MOST_PLACES = 1 << 20
# So long an axis shows whether pixels are repeated a whole number of times: places of these
# transformations have the factor as their period.
_PROTOTYPE = 64
_PERIODIC = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"})
_TRANSFORMS = frozenset({*_PERIODIC, "align_corners"})


@dataclass(frozen=True, slots=True)
class _Tap:
    """One of the input elements along an axis: where it is for each output place, and what it
    counts. No weight: it is the element itself.
    """

    places: np.ndarray
    weights: np.ndarray | None
    step: int | None
    """The places follow a straight line with this step."""
    repeats: int
    """Each place, from 0 on, is there so many times; 0 when it is not like that."""


@dataclass(frozen=True, slots=True)
class _Resized:
    """One axis that changes."""

    axis: int
    size: int
    taps: tuple[_Tap, ...]
    outside: np.ndarray | None
    """Where the region leaves the input and the extrapolation value stands instead."""

    def places(self, node: Node, at: Index) -> Iterator[tuple[Index, Expr | None]]:
        """The input elements that output place `at` is made of, with their weights."""
        for tap in self.taps:
            weight = None if tap.weights is None else _looked_up(tap.weights, at)
            yield _place(tap, at, self.size), weight


def _resize(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    if node.attrs.get("mode", "nearest") != "nearest" and not elements.dtype(source).is_float:
        raise UnsupportedError(f"Resize '{node.name}' interpolates {elements.dtype(source)}")
    axes: Sequence[_OpenAxis | _Resized] | None = _open_axes(elements, node)
    axes = _axes(elements, node) if axes is None else axes

    def combined(rest: Sequence[_OpenAxis | _Resized], moved: Indices) -> Expr:
        if not rest:
            return elements.value(source, moved)
        # The last axis is combined last, as the reference does it.
        *inner, axis = rest
        at, parts = axis.axis, []
        for place, weight in axis.places(node, index[at]):
            part = combined(inner, (*moved[:at], place, *moved[at + 1 :]))
            parts.append(part if weight is None else mul(part, cast(weight, part.dtype)))
        total = reduce(add, parts)
        if not isinstance(axis, _Resized) or axis.outside is None:
            return total
        hidden = cast(_looked_up(axis.outside.astype(np.uint8), index[at]), DType.BOOL)
        instead = get_float(node.attrs, "extrapolation_value", 0.0)
        return select(hidden, Literal(instead, total.dtype), total)

    return combined(axes, index)


def _axes(elements: Elements, node: Node) -> list[_Resized]:
    """The axes that change, with what each output place is made of."""
    source = node.first_input
    graph = elements.graph
    refs = [node.input(slot) for slot in (1, 2, 3)]
    # Tables are for one size: those that are open are asked for.
    values = [_numbers(graph.known_value(ref)) for ref in refs]
    if any(value is None and ref is not None for value, ref in zip(values, refs, strict=True)):
        raise UnsupportedError(f"Resize '{node.name}': scales or sizes are not constant")
    shape = tuple(map(int, elements.shape(source)))
    mode = get_str(node.attrs, "mode", "nearest")
    transform = get_str(node.attrs, "coordinate_transformation_mode", "half_pixel")
    crop = transform == "tf_crop_and_resize"
    found = []
    for plan in resize_axes(Call("Resize", node.attrs, (None, *values), 1), shape):
        if plan.output == plan.size and plan.scale == 1 and not (crop and plan.roi != (0.0, 1.0)):
            continue
        if plan.output == 0 or plan.size == 0:
            raise UnsupportedError(f"Resize '{node.name}' has no elements")
        if plan.output > _MOST_PLACES:
            raise UnsupportedError(
                f"Resize '{node.name}' makes an axis of {plan.output}; kernels list at most"
                f" {_MOST_PLACES} places"
            )
        positions = source_positions(transform, plan)
        outside = (positions < 0) | (positions > plan.size - 1)
        hidden = outside if crop and outside.any() else None
        places = _taps(node, mode, positions, plan)
        found.append(_Resized(plan.axis, plan.size, places, hidden))
    if math.prod(len(axis.taps) for axis in found) > _MOST_TAPS:
        raise UnsupportedError(
            f"Resize '{node.name}' reads more than {_MOST_TAPS} elements for each of its own"
        )
    return found


def _numbers(value: np.ndarray | None) -> np.ndarray | None:
    if value is None or value.dtype != np.object_:
        return value
    return np.array([int(item) for item in value.reshape(-1)], np.int64)


def _taps(node: Node, mode: str, positions: np.ndarray, plan: ResizeAxis) -> tuple[_Tap, ...]:
    if mode == "nearest":
        nearest = get_str(node.attrs, "nearest_mode", "round_prefer_floor")
        return (
            _tap(
                np.clip(nearest_pixels(positions, nearest), 0, plan.size - 1).astype(np.int64), None
            ),
        )
    places, weights = taps(node.attrs, mode, positions, plan)
    used = [tap for tap in range(places.shape[1]) if weights[:, tap].any()]
    return tuple(_tap(places[:, tap], weights[:, tap].astype(np.float32)) for tap in used or [0])


def _tap(places: np.ndarray, weights: np.ndarray | None) -> _Tap:
    numbers = np.arange(len(places))
    step = int(places[1] - places[0]) if len(places) > 1 else 0
    straight = np.array_equal(places, places[0] + step * numbers)
    changes = np.flatnonzero(places != places[0])
    repeats = int(changes[0]) if changes.size else 0
    whole = (
        not straight and 1 < repeats <= _MOST_REPEATS and np.array_equal(places, numbers // repeats)
    )
    return _Tap(
        places.astype(np.int32), weights, step if straight else None, repeats if whole else 0
    )


def _place(tap: _Tap, at: Index, size: int) -> Index:
    """The input place for output place `at`."""
    if tap.step is not None:
        return at * tap.step + int(tap.places[0])
    if tap.repeats:
        return at // tap.repeats
    return of(LoadedIndex(cast(_looked_up(tap.places, at), DType.I64), size))


def _looked_up(values: np.ndarray, at: Index) -> Expr:
    """A number for each output place."""
    dtype = DType.of(values)
    if (values == values[0]).all():
        return Literal(values[0].item(), dtype)
    if not at.terms:
        return Literal(values[at.const].item(), dtype)
    return LookupTable(values.tobytes(), at, dtype)


# ---- open sizes ----


@dataclass(frozen=True, slots=True)
class _OpenAxis:
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


def _open_axes(elements: Elements, node: Node) -> list[_OpenAxis] | None:
    """The axes that change; `None` where none is open, or tables are needed after all."""
    scales = elements.graph.const_value(node.operand("scales"))
    sizes = elements.graph.known_value(node.operand("sizes"))
    factors = [] if scales is None else [float(each) for each in scales]
    shape, out = elements.shape(node.first_input), elements.shape(node.ref())
    if (
        not (factors or (sizes is not None and sizes.size))
        or not any(map(is_symbolic, (*shape, *out)))
        or get_str(node.attrs, "mode", "nearest") not in {"nearest", "linear"}
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
        factor: np.float32 | None = None
        if factors:
            factor = np.float32(factors[number])
        elif surely_divides(size, output) and not is_symbolic(output // size):
            factor = np.float32(output // size)
        if factor == 1 and surely_equal(size, output):
            continue
        found.append(_OpenAxis(axis, size, output, factor))
    return found


RULES: Mapping[str, Rule] = {"Resize": _resize}
