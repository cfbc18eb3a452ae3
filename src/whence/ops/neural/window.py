"""The geometry of kernels that slide over the spatial axes of an (N, C, D1, ..., Dn) tensor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whence.errors import ModelError
from whence.extent import larger
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Attrs

Index: TypeAlias = tuple[Any, ...]
"""A subscript of an array with as many axes as it happens to have."""
_MOST = 2**31 - 1
"""Positions of a window, and elements from one to the next."""


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel's placement: one number per spatial axis in every field."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    """Padding before the first element, as given or as `auto_pad` chose it."""
    ends: tuple[int, ...]
    """Padding after the last element. With `ceil_mode` the last window may reach further still."""
    output: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How far the dilated kernel reaches."""
        return tuple(
            (size - 1) * dilation + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """The length of the padded axis that all windows together touch."""
        return tuple(
            (out - 1) * stride + extent
            for out, stride, extent in zip(self.output, self.strides, self.extents, strict=True)
        )

    @property
    def is_pointwise(self) -> bool:
        """True when each output element reads exactly one position."""
        return math.prod(self.kernel) == 1

    def padded(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """The lengths of axes of these sizes with padding around, enough for every window."""
        return tuple(
            max(begin + size, reach)
            for begin, size, reach in zip(self.begins, spatial, self.reach, strict=True)
        )

    def taps(self) -> Iterator[tuple[int, ...]]:
        """The positions inside the kernel, last axis fastest."""
        return itertools.product(*(range(size) for size in self.kernel))

    def tap_slice(self, axis: int, tap: int) -> slice:
        """Where position `tap` of the kernel reads the padded axis `axis`, for all outputs."""
        start, stride = tap * self.dilations[axis], self.strides[axis]
        return slice(
            start,
            start + (self.output[axis] - 1) * stride + 1 if self.output[axis] > 0 else start,
            stride,
        )

    def tap_index(self, tap: Sequence[int]) -> Index:
        """Where kernel position `tap` reads a padded tensor, over all outputs."""
        return (..., *(self.tap_slice(axis, position) for axis, position in enumerate(tap)))


def make_window(op: str, attrs: Attrs, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window by ONNX's attributes `strides`, `dilations`, `pads`, `auto_pad` and, of pools,
    `ceil_mode`.
    """
    rank, ceil_mode = len(spatial), bool(get_int(attrs, "ceil_mode", 0))
    auto_pad = get_str(attrs, "auto_pad", "NOTSET")
    strides, dilations, pads = _steps(op, attrs, rank, kernel)
    begins, ends, output = [], [], []
    for axis, size in enumerate(spatial):
        begin, end, stride = pads[axis], pads[rank + axis], strides[axis]
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
            out = -(-size // stride)
            # Windows are so far apart that the last reaches over the end by what is missing: a
            # number, also where the size is an expression.
            last = int(size % stride) or stride
            begin, end = split_padding(max(extent - last, 0), extra_at_end=auto_pad == "SAME_UPPER")
        else:
            if auto_pad == "VALID":
                begin = end = 0
            elif auto_pad not in {"NOTSET", ""}:
                raise ModelError(f"{op}: unknown auto_pad {auto_pad!r}")
            room = size + begin + end - extent
            out = (-(-room // stride) if ceil_mode else room // stride) + 1
            # A window that would start in the padding after the data is left out.
            if ceil_mode and (out - 1) * stride >= size + begin:
                out -= 1
        # Asked of expressions in this way, since whoever comes next asks whether there is an
        # element.
        if not out > 0 and out < 0:
            raise ModelError(
                f"{op}: a kernel of {list(kernel)} is larger than the padded input {list(spatial)}"
            )
        begins.append(begin)
        ends.append(end)
        output.append(out)
    return Window(tuple(kernel), strides, dilations, tuple(begins), tuple(ends), tuple(output))


class _Steps(NamedTuple):
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


def _steps(op: str, attrs: Attrs, rank: int, kernel: Sequence[int]) -> _Steps:
    """What attributes say of the steps of a kernel, which fits so many spatial axes."""
    strides = get_ints(attrs, "strides", (1,) * rank)
    dilations = get_ints(attrs, "dilations", (1,) * rank)
    pads = get_ints(attrs, "pads", (0,) * (2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ModelError(
            f"{op}: kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)} and"
            f" pads {list(pads)} do not fit {rank} spatial axes"
        )
    if min((*strides, *dilations, *kernel, 1)) < 1:
        raise ModelError(
            f"{op}: kernel {list(kernel)}, strides {list(strides)} and dilations {list(dilations)}"
            " must be positive"
        )
    if min((*pads, 0)) < 0:
        raise ModelError(f"{op}: pads {list(pads)} must not be negative")
    _check_reach(op, kernel, (*strides, *dilations, *pads))
    return _Steps(strides, dilations, pads)


def _check_reach(op: str, kernel: Sequence[int], steps: Sequence[int]) -> None:
    """Refuse windows of damaged files: too many positions, or beyond every address."""
    if math.prod(kernel) > _MOST or max((*steps, 0)) > _MOST:
        raise ModelError(
            f"{op}: kernel {list(kernel)}, strides, dilations or paddings are beyond {_MOST}"
        )


@dataclass(frozen=True, slots=True)
class Transposition:
    """The geometry of a transposed convolution, one number per spatial axis."""

    window: Window
    """The window of the convolution that this one transposes: its `output` is our input."""
    begins: tuple[int, ...]
    """Elements of the full result that are cut off before the output begins."""
    output: tuple[int, ...]


def make_transposition(
    op: str, attrs: Attrs, spatial: Sequence[int], kernel: Sequence[int]
) -> Transposition:
    """Geometry of a ConvTranspose: padding by `output_shape` or `auto_pad`, else `pads`."""
    rank, auto_pad = len(spatial), get_str(attrs, "auto_pad", "NOTSET")
    strides, dilations, pads = _steps(op, attrs, rank, kernel)
    extra = get_ints(attrs, "output_padding", (0,) * rank)
    wanted = get_ints(attrs, "output_shape")
    if len(extra) != rank or len(wanted) not in {0, rank, rank + 2}:
        raise ModelError(
            f"{op}: output_padding {list(extra)} and output_shape {list(wanted)} do not fit {rank}"
            " spatial axes"
        )
    if min((*extra, *wanted, 0)) < 0:
        raise ModelError(
            f"{op}: output_padding {list(extra)} and output_shape {list(wanted)} must not be"
            " negative"
        )
    _check_reach(op, kernel, extra)
    window = Window(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank, tuple(spatial))
    if not wanted and auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
        wanted = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    begins, output = [], []
    for axis, reach in enumerate(window.reach):
        if wanted:
            size = wanted[axis - rank]
            begins.append(
                split_padding(
                    larger(reach + extra[axis] - size, 0), extra_at_end=auto_pad == "SAME_UPPER"
                )[0]
            )
            output.append(size)
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (pads[axis], pads[rank + axis])
            begins.append(begin)
            output.append(reach + extra[axis] - begin - end)
    if any(size < 0 for size in output):
        raise ModelError(f"{op}: pads {list(pads)} are larger than the result")
    return Transposition(window, tuple(begins), tuple(output))


def split_padding(total: int, extra_at_end: bool) -> tuple[int, int]:
    """Padding of `total` elements for the two sides of an axis."""
    small, large = total // 2, total - total // 2
    return (small, large) if extra_at_end else (large, small)


def spatial_index(begins: Sequence[int], sizes: Sequence[int]) -> Index:
    """The part of the spatial axes that starts at `begins` and is `sizes` long."""
    return (..., *(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)))


def pad_spatial(x: np.ndarray, window: Window, fill: float) -> np.ndarray:
    """`x` with `fill` around its spatial axes, enough for every window; `x` if none is needed."""
    spatial = x.shape[2:]
    lengths = window.padded(spatial)
    if lengths == spatial and not any(window.begins):
        return x
    padded = np.full((*x.shape[:2], *lengths), fill, dtype=x.dtype)
    padded[spatial_index(window.begins, spatial)] = x
    return padded


def patches(padded: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """A read-only view of a padded (N, C, ...) as (N, groups, C / groups, kernel..., output...)."""
    batch, channels = padded.shape[:2]
    per_group = channels // groups
    steps = padded.strides[2:]
    shape = (batch, groups, per_group, *window.kernel, *window.output)
    strides = (
        padded.strides[0],
        padded.strides[1] * per_group,
        padded.strides[1],
        *(step * dilation for step, dilation in zip(steps, window.dilations, strict=True)),
        *(step * stride for step, stride in zip(steps, window.strides, strict=True)),
    )
    return as_strided(padded, shape, strides, writeable=False)
