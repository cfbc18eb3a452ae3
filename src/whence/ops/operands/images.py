"""Operators on images, boxes, signals and losses that have no kernels: their references read what
they are given, and a file is refused even where nobody needs their result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    axis_in,
    const_length,
    demand,
    demand_elements,
    demand_list,
    demand_one,
    demand_rank,
    shape_of,
)
from whence.ops.types.type_rules import const_ints
from whence.types import Dim, DType, differ, shape_text


def _affine_grid(query: TypeQuery) -> None:
    demand_rank(query, 0, 3, 3)
    demand_list(query, 1, None, "size")
    length, sizes = const_length(query, 1), const_ints(query, 1)
    if length is None:
        return
    if length not in (4, 5):
        raise ModelError(f"size has {length} numbers, and should have 4 or 5")
    demand(query, 0, (sizes[0] if sizes else None, length - 2, length - 1), "theta")
    if sizes and min(sizes) < 0:
        raise ModelError(f"size {list(sizes)} should not be negative")


def _grid_sample(query: TypeQuery) -> None:
    x, grid = shape_of(query, 0), shape_of(query, 1)
    demand_rank(query, 0, 3)
    if x is not None and grid is not None:
        places = grid[1:-1] if len(grid) == len(x) else (None,) * (len(x) - 2)
        demand(query, 1, (x[0], *places, len(x) - 2), "the grid")


def _columns_to_image(query: TypeQuery) -> None:
    """Columns of `block_shape`, as many as there are places for it."""
    x, block, image = shape_of(query, 0), const_ints(query, 2), const_ints(query, 1)
    demand_rank(query, 0, 3, 3)
    demand_list(query, 1, None, "image_shape")
    demand_list(query, 2, const_length(query, 1), "block_shape")
    for name, sizes in (("image_shape", image), ("block_shape", block)):
        if sizes and min(sizes) < 1:
            raise ModelError(f"{name} {list(sizes)} should be above 0")
    if x is None or not block:
        return
    if isinstance(x[1], int) and x[1] % math.prod(block):
        raise ModelError(
            f"{x[1]} rows of {query.types[0]} cannot be divided by a block of {shape_text(block)}"
        )


def _max_unpool(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    demand_rank(query, 0, 3)
    if x is not None:
        demand(query, 1, x, "the places of the maxima")
    demand_list(query, 2, None if x is None else len(x), "output_shape")


def _boxes_of_image(query: TypeQuery) -> None:
    """Regions as rows: (image, x1, y1, x2, y2), or the image as an operand of its own."""
    demand_rank(query, 0, 4, 4)
    rois = shape_of(query, 1)
    count = None if rois is None or len(rois) != 2 else rois[0]
    demand(query, 1, (count, 5 if query.op == "MaxRoiPool" else 4), "rois")
    if query.op == "RoiAlign":
        demand(query, 2, (count,), "batch_indices")
        size = [get_int(query.attrs, f"output_{side}", 1) for side in ("height", "width")]
    else:
        size = list(get_ints(query.attrs, "pooled_shape"))
    if any(extent < 1 for extent in size):
        raise ModelError(f"a region becomes {' x '.join(map(str, size))} elements: at least 1")


def _suppression(query: TypeQuery) -> None:
    demand_rank(query, 0, 3, 3)
    demand_rank(query, 1, 3, 3)
    batch, _, count = shape_of(query, 1) or (None, None, None)
    demand(query, 0, (batch, count, 4), "boxes")
    for index, name in enumerate(
        ("max_output_boxes_per_class", "iou_threshold", "score_threshold"), 2
    ):
        demand_one(query, index, name)


def _determinant(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    demand_rank(query, 0, 2)
    if x is not None and differ(x[-1], x[-2]):
        raise ModelError(f"input 0 is {query.types[0]}, whose matrices are not square")


def _compress(query: TypeQuery) -> None:
    demand_list(query, 1, None, "the condition")
    demand_elements(query, 1, (DType.BOOL,), "truth values")
    if "axis" in query.attrs:
        axis_in(get_int(query.attrs, "axis", 0), shape_of(query, 0))


def _loss(query: TypeQuery) -> None:
    """A score for each class, and the right class, for every place; a weight for each class."""
    x = shape_of(query, 0)
    demand_rank(query, 0, 2)
    demand_elements(query, 1, (DType.I32, DType.I64), "classes as integers of 32 or 64 bits")
    if x is not None:
        demand(query, 1, (x[0], *x[2:]), "the target")
        demand(query, 2, (x[1],), "the weight")


def _transform(query: TypeQuery) -> None:
    """Real numbers or complex ones, by the last axis; a signal of two axes is of real ones."""
    x = shape_of(query, 0)
    demand_rank(query, 0, 2, 64 if query.op == "DFT" else 3)
    has_parts = x is not None and (query.op == "DFT" or len(x) == 3)
    if x is not None and has_parts and isinstance(x[-1], int) and x[-1] not in (1, 2):
        raise ModelError(f"the last axis of {query.types[0]} should be 1, or 2 for complex numbers")
    demand_one(query, 1, "dft_length" if query.op == "DFT" else "frame_step")
    if query.op == "STFT":
        demand_list(query, 2, None, "the window")
        demand_one(query, 3, "frame_length")


def _convolution_of_codes(query: TypeQuery) -> None:
    """ConvInteger and QLinearConv, whose weights are the operand of this number."""
    at = 3 if query.op == "QLinearConv" else 1
    x, w = shape_of(query, 0), shape_of(query, at)
    demand_rank(query, 0, 3)
    demand_rank(query, at, 3)
    groups = get_int(query.attrs, "group", 1)
    if w is None:
        return
    inputs: Dim = w[1] * groups if isinstance(w[1], int) else None
    if x is not None and (len(x) != len(w) or differ(x[1], inputs)):
        raise ModelError(f"weights {query.types[at]} do not fit an input {query.types[0]}")
    for index in (1, 2, 6, 7) if query.op == "QLinearConv" else (2,):
        demand_one(query, index, f"input {index}")
    for index in (4, 5) if query.op == "QLinearConv" else (3,):
        found = shape_of(query, index)
        if found and found != (1,):
            demand(query, index, (w[0],), f"input {index}")
    demand(query, 8, (w[0],), "the bias")


_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow")

RULES: Mapping[str, Check] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "Col2Im": _columns_to_image,
    "MaxUnpool": _max_unpool,
    **dict.fromkeys(("MaxRoiPool", "RoiAlign"), _boxes_of_image),
    "NonMaxSuppression": _suppression,
    "Det": _determinant,
    "Compress": _compress,
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _loss),
    **dict.fromkeys(("DFT", "STFT"), _transform),
    **dict.fromkeys(("ConvInteger", "QLinearConv"), _convolution_of_codes),
    **dict.fromkeys(_WINDOWS, partial(demand_one, index=0, what="size")),
}
