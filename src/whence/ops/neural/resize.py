"""Resize, one axis after the other, and reading images at real-valued coordinates: the operators
that sample on a grid, and the interpolation under DeformConv.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int, get_ints, get_str
from whence.ops.definition import (
    Attrs,
    Call,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
    count,
    sizes,
)
from whence.ops.neural.window import Window
from whence.ops.operand import PARAMETER, named
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.shape_rules import resize as infer_resize
from whence.types import ValueType, same_dim


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """How one axis is resized."""

    axis: int
    size: int
    output: int
    scale: np.float32
    roi: tuple[float, float]


def resize_axes(call: Call, shape: Sequence[int]) -> list[ResizeAxis]:
    """Scale, output size and region of every axis that is named, from `scales` or `sizes`."""
    roi, scales, sizes = (optional_tensor(call, index) for index in (1, 2, 3))
    axes = [axis % len(shape) for axis in get_ints(call.attrs, "axes", tuple(range(len(shape))))]
    lengths = [shape[axis] for axis in axes]
    if scales is not None and scales.size:
        factors = [np.float32(scale) for scale in scales]
        # The region does not change the size, whatever ONNX's text says: neither its inference nor
        # ONNX Runtime counts it.
        outputs = [
            math.floor(factor * np.float32(length))
            for factor, length in zip(factors, lengths, strict=False)
        ]
    elif sizes is not None and sizes.size:
        outputs = [int(size) for size in sizes]
        factors = [
            np.float32(size) / np.float32(length)
            for size, length in zip(outputs, lengths, strict=False)
        ]
        policy = get_str(call.attrs, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            common = (min if policy == "not_larger" else max)(factors)
            factors = [common] * len(axes)
            outputs = [
                math.floor(common * np.float32(length) + np.float32(0.5)) for length in lengths
            ]
    else:
        raise ModelError("neither scales nor sizes are given")
    if len(factors) != len(axes):
        raise ModelError(f"{len(factors)} scales or sizes do not fit {len(axes)} axes")
    regions = [(0.0, 1.0)] * len(axes)
    if get_str(call.attrs, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(axes):
            raise ModelError(
                f"tf_crop_and_resize needs a region with a start and an end for each of"
                f" {len(axes)} axes"
            )
        regions = list(zip(*roi.astype(np.float64).reshape(2, -1).tolist(), strict=True))
    for axis, output in zip(axes, outputs, strict=True):
        if output < 0:
            raise ModelError(f"axis {axis} would have the size {output}")
    return [
        ResizeAxis(*fields) for fields in zip(axes, lengths, outputs, factors, regions, strict=True)
    ]


def source_positions(mode: str, plan: ResizeAxis) -> np.ndarray:
    """Where each output element lies on the input axis. In float32, because ONNX Runtime's nearest
    pixel depends on its rounding.
    """
    one, half = np.float32(1), np.float32(0.5)
    at, scale = np.arange(plan.output, dtype=np.float32), plan.scale
    size, output = np.float32(plan.size), np.float32(plan.output)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and plan.output > 1):
        return (at + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.zeros_like(at)
    if mode == "half_pixel_symmetric":
        adjustment = output / (scale * size)
        return size / 2 * (one - adjustment) + (at + half) / scale - half
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        # Of opsets 11 and 12; exporters still write it.
        return (at + half) / scale
    if mode == "align_corners":
        return at * (size - one) / (output - one) if plan.output > 1 else np.zeros_like(at)
    # tf_crop_and_resize
    start, end = np.float32(plan.roi[0]), np.float32(plan.roi[1])
    if plan.output > 1:
        return start * (size - one) + at * (end - start) * (size - one) / (output - one)
    return np.full_like(at, half * (start + end) * (size - one))


def nearest_pixels(position: np.ndarray, mode: str) -> np.ndarray:
    """Real positions as whole ones."""
    if mode == "round_prefer_floor":
        return np.asarray(np.ceil(position - np.float32(0.5)))
    if mode == "round_prefer_ceil":
        return np.asarray(np.floor(position + np.float32(0.5)))
    return np.asarray(np.floor(position) if mode == "floor" else np.ceil(position))


def taps(
    attrs: Attrs, mode: str, position: np.ndarray, plan: ResizeAxis
) -> tuple[np.ndarray, np.ndarray]:
    """The pixels that each output is a weighted sum of, and the weights: (output, taps) each."""
    cubic_a = get_float(attrs, "cubic_coeff_a", -0.75)
    stretched = bool(get_int(attrs, "antialias", 0)) and plan.scale < 1
    position = position.astype(np.float64)
    if stretched:
        # The filter is widened by 1 / scale, so that every input pixel counts.
        scale = float(plan.scale)
        support = (2 if mode == "cubic" else 1) / scale
        index = np.floor(position - support)[:, np.newaxis] + np.arange(2 * math.ceil(support) + 2)
        distance = np.abs(index - position[:, np.newaxis]) * scale
        if mode == "cubic":
            weight = _cubic(distance, cubic_a)
        else:
            weight = np.maximum(1 - distance, 0.0)
    elif mode == "cubic":
        base = np.floor(position)
        index = base[:, np.newaxis] + np.arange(-1, 3)
        weight = np.stack(_cubic_weights(position - base, cubic_a), axis=1)
    else:
        position = np.clip(position, 0, plan.size - 1)
        base = np.floor(position)
        index = base[:, np.newaxis] + np.arange(2)
        weight = np.stack((1 - (position - base), position - base), axis=1)
    if get_int(attrs, "exclude_outside", 0):
        weight = np.where((index >= 0) & (index < plan.size), weight, 0.0)
    if stretched or get_int(attrs, "exclude_outside", 0):
        total = weight.sum(axis=1, keepdims=True)
        weight = weight / np.where(total == 0, 1.0, total)
    return np.clip(index, 0, plan.size - 1).astype(np.int64), weight


def _combine(x: np.ndarray, axis: int, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weighted sums along `axis`."""
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    total: np.ndarray | None = None
    for tap in range(index.shape[1]):
        if not weight[:, tap].any():
            continue
        part = np.take(x, index[:, tap], axis=axis)
        part *= weight[:, tap].astype(x.dtype).reshape(shape)
        total = part if total is None else np.add(total, part, out=total)
    return np.take(x, index[:, 0], axis=axis) * x.dtype.type(0) if total is None else total


def _resize(call: Call) -> Value:
    x = tensor(call, 0)
    mode = get_str(call.attrs, "mode", "nearest")
    transform = get_str(call.attrs, "coordinate_transformation_mode", "half_pixel")
    nearest = get_str(call.attrs, "nearest_mode", "round_prefer_floor")
    plans = resize_axes(call, x.shape)
    y = x if mode == "nearest" else x.astype(np.float32) if x.dtype.kind in "iub" else widen(x)
    for plan in plans:
        crop = transform == "tf_crop_and_resize"
        if plan.output == plan.size and plan.scale == 1 and not (crop and plan.roi != (0.0, 1.0)):
            continue
        if plan.output == 0 or plan.size == 0:
            y = np.zeros(
                (*y.shape[: plan.axis], plan.output, *y.shape[plan.axis + 1 :]), dtype=y.dtype
            )
            continue
        position = source_positions(transform, plan)
        if mode == "nearest":
            pixel = np.clip(nearest_pixels(position, nearest), 0, plan.size - 1).astype(np.int64)
            y = np.take(y, pixel, axis=plan.axis)
        else:
            y = _combine(y, plan.axis, *taps(call.attrs, mode, position, plan))
        outside = (position < 0) | (position > plan.size - 1)
        if crop and outside.any():
            y[(slice(None),) * plan.axis + (outside,)] = get_float(
                call.attrs, "extrapolation_value", 0.0
            )
    return narrow(y, x.dtype)


def _resize_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """Nearest only moves; otherwise a multiply-add per tap and resized axis."""
    x, y, mode = sizes(query.types[0]), sizes(outputs[0]), get_str(query.attrs, "mode", "nearest")
    axes = sum(not same_dim(before, after) for before, after in zip(x, y, strict=False))
    return count(outputs[0]) * axes * {"nearest": 0, "linear": 4}.get(mode, 8)


# ---- images at real-valued coordinates ----

Locate: TypeAlias = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray | None]]
"""Positions along an axis → positions inside the image, and which are real (`None`: all)."""


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution: the weight of a pixel at this distance from a point."""
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance >= 2, 0, np.where(distance > 1, outer, inner))


def _cubic_weights(fraction: np.ndarray, a: float) -> list[np.ndarray]:
    """Weights of the pixels at -1, 0, 1, 2 for a point at `fraction`."""
    return [_cubic(each, a) for each in (fraction + 1, fraction, 1 - fraction, 2 - fraction)]


def interpolate(
    image: np.ndarray, points: Sequence[np.ndarray], mode: str, locate: Locate
) -> np.ndarray:
    """An image (C, D1, ..., Dr) read at r coordinate arrays of shape S: (C, *S)."""
    sizes = image.shape[1:]
    corners: list[list[tuple[np.ndarray, np.ndarray | None]]] = []
    for point, size in zip(points, sizes, strict=True):
        taps: list[tuple[np.ndarray, np.ndarray | None]]
        if mode == "nearest":
            taps = [(np.rint(point), None)]
        else:
            base = np.floor(point)
            fraction = point - base
            if mode == "cubic":
                taps = [
                    (base + (offset - 1), weight)
                    for offset, weight in enumerate(_cubic_weights(fraction, -0.75))
                ]
            else:
                taps = [(base, 1 - fraction), (base + 1, fraction)]
        axis = []
        for position, weight in taps:
            index, real = locate(position, size)
            if real is not None:
                weight = real.astype(image.dtype) if weight is None else weight * real
            axis.append((index, weight))
        corners.append(axis)
    flat = image.reshape(image.shape[0], -1)
    total: np.ndarray | None = None
    for corner in itertools.product(*corners):
        index, weight = corner[0]
        for (other, factor), size in zip(corner[1:], sizes[1:], strict=True):
            index = index * size + other
            weight = factor if weight is None else weight if factor is None else weight * factor
        values = flat[:, index.reshape(-1)].reshape(image.shape[0], *index.shape)
        if weight is not None:
            values = values * weight.astype(image.dtype, copy=False)
        total = values if total is None else total + values
    if total is None:
        raise ModelError("an image without spatial axes cannot be sampled")
    return total


def zeros_outside(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Outside the image everything is zero."""
    real = (position >= 0) & (position <= size - 1)
    return np.where(real, position, 0).astype(np.int64), real


def border_outside(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Outside the image the nearest pixel of its border goes on."""
    return np.clip(position, 0, size - 1).astype(np.int64), None


def reflect(position: np.ndarray, low: float, high: float) -> np.ndarray:
    """Positions mirrored at `low` and `high` until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(position, low)
    distance = np.mod(position - low, 2 * span)
    return np.asarray(low + np.where(distance > span, 2 * span - distance, distance)).astype(
        position.dtype, copy=False
    )


def grid_sample(call: Call) -> Value:
    """ONNX's GridSample over any number of spatial axes."""
    x, grid = tensor(call, 0), widen(tensor(call, 1))
    mode = get_str(call.attrs, "mode", "linear")
    padding = get_str(call.attrs, "padding_mode", "zeros")
    # Opset 16 wrote bilinear and bicubic for what is now linear and cubic.
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    aligned = bool(get_int(call.attrs, "align_corners", 0))

    def mirror(position: np.ndarray, size: int) -> np.ndarray:
        return (
            reflect(position, 0.0, size - 1.0) if aligned else reflect(position, -0.5, size - 0.5)
        )

    def reflected(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
        return border_outside(np.trunc(mirror(position, size)), size)

    locate = {"zeros": zeros_outside, "border": border_outside, "reflection": reflected}[padding]
    images = x.astype(np.float32) if x.dtype.kind in "iub" else widen(x)
    y = np.empty((*x.shape[:2], *grid.shape[1:-1]), dtype=images.dtype)
    for image in range(x.shape[0]):
        points = []
        for axis, size in enumerate(x.shape[2:]):
            # The last coordinate of the grid belongs to the first spatial axis.
            unit = grid[image, ..., x.ndim - 3 - axis]
            point = (unit + 1) / 2 * (size - 1) if aligned else ((unit + 1) * size - 1) / 2
            if mode == "nearest":
                point = np.rint(point)
            # Cubic weights reach past the border on purpose: only the pixels they fall on are held
            # inside.
            if padding == "border" and mode != "cubic":
                point = np.clip(point, 0, size - 1)
            elif padding == "reflection":
                point = mirror(point, size)
                point = np.trunc(point) if mode == "nearest" else point
            points.append(point)
        y[image] = interpolate(images[image], points, mode, locate)
    return narrow(y, x.dtype)


def deform_columns(call: Call, window: Window) -> Iterator[np.ndarray]:
    """Each image's unfolded patches (C, kernel..., output...) at the displaced positions."""
    x, offset, mask = widen(tensor(call, 0)), widen(tensor(call, 2)), optional_tensor(call, 4)
    groups = get_int(call.attrs, "offset_group", 1)
    rank = x.ndim - 2
    taps = math.prod(window.kernel)
    per_group = x.shape[1] // groups
    offsets = offset.reshape(x.shape[0], groups, *window.kernel, rank, *window.output)
    masks = None
    if mask is not None:
        masks = widen(mask).reshape(x.shape[0], groups, *window.kernel, *window.output)
    base = []
    for axis in range(rank):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = window.kernel[axis], window.output[axis]
        along_kernel = np.arange(window.kernel[axis])[:, np.newaxis] * window.dilations[axis]
        along_output = np.arange(window.output[axis])[np.newaxis, :] * window.strides[axis]
        base.append(
            (along_kernel + along_output - window.begins[axis]).astype(x.dtype).reshape(shape)
        )
    for image in range(x.shape[0]):
        columns = np.empty((groups, per_group, taps, *window.output), dtype=x.dtype)
        for group in range(groups):
            displaced = np.moveaxis(offsets[image, group], rank, 0)
            points = [displaced[axis] + base[axis] for axis in range(rank)]
            read = interpolate(
                x[image, group * per_group : (group + 1) * per_group],
                points,
                "linear",
                zeros_outside,
            )
            if masks is not None:
                read = read * masks[image, group]
            columns[group] = read.reshape(columns.shape[1:])
        yield columns.reshape(x.shape[1], *window.kernel, *window.output)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "Resize",
        Pattern.INJECTIVE,
        OpClass.MOVEMENT,
        infer=infer_resize,
        reference=_resize,
        flops=_resize_flops,
        operands=named("X", roi=PARAMETER, scales=PARAMETER, sizes=PARAMETER),
        traits=Trait.REPEATS | Trait.GROWS,
    ),
    OpDef(
        "GridSample",
        classes=OpClass.MOVEMENT,
        reference=grid_sample,
        flops=12,
        operands=named("X", "grid"),
    ),
    OpDef("AffineGrid", flops=6, operands=named("theta", size=PARAMETER), traits=Trait.GROWS),
)
