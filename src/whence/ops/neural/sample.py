"""Reading images at real-valued coordinates: the interpolation under GridSample and DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Call, Value
from whence.ops.neural.window import Window
from whence.ops.precision import narrow, optional_tensor, tensor, widen

Locate: TypeAlias = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray | None]]
"""Positions along an axis → positions inside the image, and which are real (`None`: all)."""


def cubic_weights(fraction: np.ndarray, a: float) -> tuple[np.ndarray, ...]:
    """Keys' cubic convolution: weights of the pixels at -1, 0, 1, 2 for a point at `fraction`."""

    def outer(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a * t - 5 * a) * t + 8 * a) * t - 4 * a)

    def inner(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a + 2) * t - (a + 3)) * t * t + 1)

    return outer(fraction + 1), inner(fraction), inner(1 - fraction), outer(2 - fraction)


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
                    for offset, weight in enumerate(cubic_weights(fraction, -0.75))
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
