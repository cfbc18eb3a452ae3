"""The element rule of Resize: each output element is a weighted sum of a few input elements, whose
places and weights are known beforehand.

Places that follow a straight line, as when every pixel is repeated, become index arithmetic; others
are looked up in tables in the code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import cast, select
from whence.kernels.index import Index, LoadedIndex, of
from whence.kernels.ir import Expr, Literal, LookupTable
from whence.kernels.rules.elementwise import add, mul
from whence.kernels.rules.open_resample import OpenAxis, open_axes
from whence.ops.attributes import get_float, get_str
from whence.ops.definition import Call
from whence.ops.neural.resize import ResizeAxis, nearest_pixels, resize_axes, source_positions, taps
from whence.types import DType

# Loads for one output element beyond which code size and compile time are not worth it.
_MOST_TAPS = 64
# Largest factor by which whole pixels are repeated in index arithmetic.
_MOST_REPEATS = 16
# The longest axis for which places and weights are listed in code.
_MOST_PLACES = 1 << 20


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
    axes: Sequence[OpenAxis | _Resized] | None = _open_axes(elements, node)
    axes = _axes(elements, node) if axes is None else axes

    def combined(rest: Sequence[OpenAxis | _Resized], moved: Indices) -> Expr:
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


def _open_axes(elements: Elements, node: Node) -> list[OpenAxis] | None:
    source = node.first_input
    scales = elements.graph.const_value(node.operand("scales"))
    factors = None if scales is None or not scales.size else [float(each) for each in scales]
    sizes = elements.graph.known_value(node.operand("sizes"))
    if factors is None and (sizes is None or not sizes.size):
        return None
    return open_axes(node, elements.shape(source), elements.shape(node.ref()), factors)


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


RULES: Mapping[str, Rule] = {"Resize": _resize}
