"""Pooling over any number of spatial axes, global pooling, unpooling, regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.ops.attributes import get_float, get_int, get_ints, get_str
from whence.ops.definition import Attrs, Call, OpClass, OpDef, Pattern, TypeQuery, Value, count
from whence.ops.neural.window import Window, make_window, pad_spatial
from whence.ops.operand import INDEX, PARAMETER, UNARY, named
from whence.ops.precision import narrow, optional_tensor, rounded_once, tensor, widen
from whence.ops.tensor.reduce import largest, limit_of
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import global_pool, pool
from whence.types import ValueType


def _pool_window(call: Call, spatial: Sequence[int]) -> Window:
    return make_window(call.op, call.attrs, spatial, get_ints(call.attrs, "kernel_shape"))


def _reduce(x: np.ndarray, window: Window, fill: float, combine: np.ufunc) -> np.ndarray:
    """`combine` over windows of `x`, axis by axis: k taps for each, not k to the power of all."""
    y = pad_spatial(x, window, fill)
    for axis, size in enumerate(window.kernel):
        before = (slice(None),) * (2 + axis)
        total = y[(*before, window.tap_slice(axis, 0))]
        if size > 1:
            total = combine(total, y[(*before, window.tap_slice(axis, 1))])
            for tap in range(2, size):
                combine(total, y[(*before, window.tap_slice(axis, tap))], out=total)
        y = total
    return y


def _max_pool(call: Call) -> Value:
    x = tensor(call, 0)
    wide = widen(x)
    lowest = limit_of(wide.dtype, lowest=True)
    window = _pool_window(call, x.shape[2:])
    if call.n_outputs < 2:
        return narrow(np.ascontiguousarray(_reduce(wide, window, lowest, np.maximum)), x.dtype)
    spatial = x.shape[2:]
    padded = pad_spatial(wide, window, lowest)
    # The flat position of an element within its image, before padding; column-major order counts
    # the first axis fastest.
    order = (
        range(len(spatial))
        if get_int(call.attrs, "storage_order", 0)
        else reversed(range(len(spatial)))
    )
    unit, units = 1, [0] * len(spatial)
    for axis in order:
        units[axis], unit = unit, unit * spatial[axis]
    best = np.full((*x.shape[:2], *window.output), lowest, dtype=wide.dtype)
    indices = np.full(best.shape, -1, dtype=np.int64)
    for tap in window.taps():
        values = padded[window.tap_index(tap)]
        place = np.zeros(window.output, dtype=np.int64)
        real = np.ones(window.output, dtype=np.bool_)
        for axis, position in enumerate(tap):
            along = (
                np.arange(window.output[axis]) * window.strides[axis]
                + position * window.dilations[axis]
                - window.begins[axis]
            )
            along = along.reshape(-1, *(1,) * (len(spatial) - 1 - axis))
            place += along * units[axis]
            real &= (along >= 0) & (along < spatial[axis])
        # The first of equal elements wins, and padding never does.
        greater = ((values > best) | (indices < 0)) & real
        np.copyto(best, values, where=greater)
        np.copyto(indices, place, where=greater)
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * math.prod(spatial)
    return narrow(best, x.dtype), indices + planes.reshape(*x.shape[:2], *(1,) * len(spatial))


def _counts(window: Window, spatial: Sequence[int], with_padding: bool) -> np.ndarray:
    """How many elements each window averages over; what `ceil_mode` adds never counts."""
    counts = np.ones((), dtype=np.int64)
    for axis, size in enumerate(spatial):
        starts = np.arange(window.output[axis]) * window.strides[axis] - window.begins[axis]
        places = starts[:, np.newaxis] + np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = (-window.begins[axis], size + window.ends[axis]) if with_padding else (0, size)
        counts = counts[..., np.newaxis] * ((places >= low) & (places < high)).sum(axis=1)
    return counts


def _average_pool(call: Call) -> Value:
    x = tensor(call, 0)
    window = _pool_window(call, x.shape[2:])
    counts = _counts(window, x.shape[2:], bool(get_int(call.attrs, "count_include_pad", 0)))
    total = _reduce(widen(x), window, 0, np.add)
    return narrow(total / np.maximum(counts, 1).astype(total.dtype), x.dtype)


def _lp_pool(call: Call) -> Value:
    x = tensor(call, 0)
    p = get_int(call.attrs, "p", 2)
    total = _reduce(np.abs(widen(x)) ** p, _pool_window(call, x.shape[2:]), 0, np.add)
    return narrow(total ** (1 / p), x.dtype)


def _spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@rounded_once
def _global_lp_pool(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    p = get_int(attrs, "p", 2)
    total = (np.abs(x) ** p).sum(axis=_spatial_axes(x), keepdims=True)
    return np.asarray(total ** (1 / p))


def _max_unpool(call: Call) -> Value:
    x, indices, wanted = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    rank = x.ndim - 2
    kernel = get_ints(call.attrs, "kernel_shape")
    strides = get_ints(call.attrs, "strides", (1,) * rank)
    pads = get_ints(call.attrs, "pads", (0,) * (2 * rank))
    if wanted is None:
        sizes = (
            (x.shape[2 + axis] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[rank + axis]
            for axis in range(rank)
        )
        shape = (*x.shape[:2], *sizes)
    else:
        # The indices count positions in the tensor that was pooled, and that is the tensor asked
        # for here.
        shape = tuple(int(size) for size in wanted)
    y = np.zeros(math.prod(shape), dtype=x.dtype)
    y[indices.reshape(-1)] = x.reshape(-1)
    return y.reshape(shape)


def _bilinear_taps(
    start: float, bin_size: float, bins: int, samples: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Along one axis: lower and upper neighbour of every sample of every bin, and their weights
    (zero when out of the image).
    """
    position = (
        start
        + (np.arange(bins)[:, np.newaxis] + (np.arange(samples) + 0.5) / max(samples, 1)).reshape(
            -1
        )
        * bin_size
    )
    real = (position >= -1.0) & (position <= size)
    position = np.clip(position, 0, size - 1)
    low = np.minimum(position.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    fraction = (position - low) * real
    return low, high, real - fraction, fraction


def _roi_align(call: Call) -> Value:
    x, rois, batch = tensor(call, 0), widen(tensor(call, 1)), tensor(call, 2)
    rows, columns = get_int(call.attrs, "output_height", 1), get_int(call.attrs, "output_width", 1)
    ratio = get_int(call.attrs, "sampling_ratio", 0)
    scale = get_float(call.attrs, "spatial_scale", 1.0)
    shifted = get_str(call.attrs, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    average = get_str(call.attrs, "mode", "avg") == "avg"
    images, (height, width) = widen(x), x.shape[2:]
    y = np.zeros((rois.shape[0], x.shape[1], rows, columns), dtype=images.dtype)
    for index, roi in enumerate(rois):
        left, top, right, bottom = (float(edge) * scale - (0.5 if shifted else 0.0) for edge in roi)
        across, down = right - left, bottom - top
        if not shifted:
            across, down = max(across, 1.0), max(down, 1.0)
        n_down = ratio if ratio > 0 else max(math.ceil(down / rows), 0)
        n_across = ratio if ratio > 0 else max(math.ceil(across / columns), 0)
        if not n_down or not n_across:
            continue
        y_low, y_high, y_first, y_second = _bilinear_taps(top, down / rows, rows, n_down, height)
        x_low, x_high, x_first, x_second = _bilinear_taps(
            left, across / columns, columns, n_across, width
        )
        image = images[int(batch[index])]
        corners = [
            image[:, ys[:, np.newaxis], xs] * (wy[:, np.newaxis] * wx).astype(image.dtype)
            for ys, wy in ((y_low, y_first), (y_high, y_second))
            for xs, wx in ((x_low, x_first), (x_high, x_second))
        ]
        shape = (x.shape[1], rows, n_down, columns, n_across)
        if average:
            y[index] = sum(corners[1:], corners[0]).reshape(shape).mean(axis=(2, 4))
        else:
            # ONNX takes the largest of the weighted corners, not of the interpolated values.
            y[index] = np.maximum.reduce(corners).reshape(shape).max(axis=(2, 4))
    return narrow(y, x.dtype)


def _max_roi_pool(call: Call) -> Value:
    x, rois = tensor(call, 0), tensor(call, 1)
    rows, columns = get_ints(call.attrs, "pooled_shape")
    scale = get_float(call.attrs, "spatial_scale", 1.0)
    y = np.zeros((rois.shape[0], x.shape[1], rows, columns), dtype=x.dtype)

    def edges(first: float, last: float, bins: int, size: int) -> list[slice]:
        # Corners round half away from zero, both ends belong to the region, and a region has at
        # least one pixel.
        begin, end = (math.floor(corner * scale + 0.5) for corner in (first, last))
        step = max(end - begin + 1, 1) / bins
        starts = [min(max(math.floor(bin_ * step) + begin, 0), size) for bin_ in range(bins)]
        stops = [min(max(math.ceil((bin_ + 1) * step) + begin, 0), size) for bin_ in range(bins)]
        return [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]

    for index, (image, left, top, right, bottom) in enumerate(widen(rois).tolist()):
        for row, ys in enumerate(edges(top, bottom, rows, x.shape[2])):
            for column, xs in enumerate(edges(left, right, columns, x.shape[3])):
                region = x[int(image), :, ys, xs]
                if region.shape[1] and region.shape[2]:
                    y[index, :, row, column] = region.max(axis=(1, 2))
    return y


def pool_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """One operation per element under the kernel."""
    return count(outputs[0]) * math.prod(get_ints(query.attrs, "kernel_shape"))


_ANCHOR = Pattern.OUT_ELEMWISE_FUSABLE
_windows = partial(
    OpDef, pattern=_ANCHOR, classes=OpClass.POOL, infer=pool, flops=pool_flops, operands=UNARY
)
_global = partial(
    OpDef,
    pattern=_ANCHOR,
    classes=OpClass.POOL,
    infer=global_pool,
    flops=lambda query, outputs: count(query.types[0]),
    operands=UNARY,
)
_pool = partial(OpDef, classes=OpClass.POOL)
OPS: tuple[OpDef, ...] = (
    _windows(
        "MaxPool",
        reference=_max_pool,
        traits=Trait.SELECTS | Trait.COMPARES | Trait.EXACT | Trait.POOLS_WINDOWS,
    ),
    _windows("AveragePool", reference=_average_pool, traits=Trait.POOLS_WINDOWS),
    _windows("LpPool", reference=_lp_pool, traits=Trait.POOLS_WINDOWS),
    _global(
        "GlobalAveragePool",
        reference=rounded_once(lambda x, _: x.mean(axis=_spatial_axes(x), keepdims=True)),
        over_space="ReduceMean",
        traits=Trait.SUMS,
    ),
    _global(
        "GlobalMaxPool",
        reference=rounded_once(lambda x, _: largest(x, _spatial_axes(x), keep=True)),
        over_space="ReduceMax",
        traits=Trait.EXACT,
    ),
    _global("GlobalLpPool", reference=_global_lp_pool),
    _pool(
        "MaxUnpool",
        reference=_max_unpool,
        operands=named("X", I=INDEX, output_shape=PARAMETER),
        traits=Trait.GROWS,
    ),
    _pool("MaxRoiPool", reference=_max_roi_pool, operands=named("X", "rois")),
    _pool("RoiAlign", reference=_roi_align, operands=named("X", "rois", batch_indices=INDEX)),
)
