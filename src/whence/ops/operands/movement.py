"""Operators that move elements, make them from nothing, or read and write them at given places."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    along,
    axis_in,
    by_types,
    const_length,
    count_of,
    demand,
    demand_elements,
    demand_lengths,
    demand_list,
    demand_one,
    demand_rank,
    demand_same_elements,
    divided,
    exceeds,
    shape_of,
)
from whence.ops.types.type_rules import const_ints, is_absent
from whence.types import DType, differ

_INDICES = (DType.I32, DType.I64)


# ---- shapes ----


def _slice(query: TypeQuery) -> None:
    names = ("starts", "ends", "axes", "steps")
    lengths = {}
    for index, name in enumerate(names, 1):
        demand_list(query, index, None, name)
        found = const_length(query, index)
        if found is not None:
            lengths[name] = found
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise ModelError(f"there are {counts}, and should be equally many")
    x = shape_of(query, 0)
    if x is not None and lengths.get("starts", 0) > len(x):
        raise ModelError(f"{lengths['starts']} starts are too many for {query.types[0]}")


def _pad(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    demand_one(query, 2, "the constant")
    demand_same_elements(query, 2, 0)
    demand_list(query, 1, None, "pads")
    axes = const_ints(query, 3)
    for axis in axes or ():
        axis_in(axis, x)
    count = None if x is None else len(x)
    if not is_absent(query, 3):
        demand_list(query, 3, None, "axes")
        count = const_length(query, 3)
    if count is not None:
        demand_list(query, 1, 2 * count, "pads")
    if axes is not None and x is not None and len({axis % len(x) for axis in axes}) < len(axes):
        raise ModelError(f"axes {list(axes)} name an axis twice")


def _tile(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    demand_list(query, 1, None if x is None else len(x), "repeats")


def _image(query: TypeQuery) -> None:
    """Blocks of pixels that become channels, or the other way round."""
    x, block = shape_of(query, 0), get_int(query.attrs, "blocksize", 0)
    demand_rank(query, 0, 4, 4)
    if x is None:
        return
    if query.op == "DepthToSpace":
        divided(x[1], block * block if block > 0 else 0, "channels")
    else:
        for size in x[2:]:
            divided(size, block, "rows or columns")


def _triangle(query: TypeQuery) -> None:
    demand_rank(query, 0, 2)
    demand_one(query, 1, "k")


def _constant_of_shape(query: TypeQuery) -> None:
    demand_list(query, 0, None, "the shape")
    value = query.attrs.get("value")
    if isinstance(value, np.ndarray) and value.size != 1:
        raise ModelError(f"value has {value.size} elements, and should have one")


def _range(query: TypeQuery) -> None:
    for index, name in enumerate(("start", "limit", "delta")):
        demand_one(query, index, name)
    delta = query.value(2)
    if isinstance(delta, np.ndarray) and delta.size == 1 and not delta.any():
        raise ModelError("delta is 0, and would never reach the limit")


def _resize(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    for axis in get_ints(query.attrs, "axes", ()):
        axis_in(axis, x)
    if x is None:
        return
    count = len(get_ints(query.attrs, "axes", ())) or len(x)
    crop = get_str(query.attrs, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    for index, name, length in ((1, "roi", 2 * count), (2, "scales", count), (3, "sizes", count)):
        # An empty list is how older files leave an operand out; a region is read only to crop.
        if count_of(shape_of(query, index)) == 0 or (name == "roi" and not crop):
            continue
        demand_list(query, index, length, name)
    scales, sizes = query.value(2), query.value(3)
    if isinstance(scales, np.ndarray) and not np.all(scales > 0):
        raise ModelError(f"scales {scales.reshape(-1).tolist()} should be above 0")
    if isinstance(sizes, np.ndarray) and np.any(sizes < 0):
        raise ModelError(f"sizes {sizes.reshape(-1).tolist()} should not be negative")


# ---- places ----


def _gather(query: TypeQuery) -> None:
    demand_elements(query, 1, _INDICES, "indices of 32 or 64 bits")
    along(0)(query)


def _elements_along(query: TypeQuery) -> None:
    x, axis = shape_of(query, 0), get_int(query.attrs, "axis", 0)
    demand_elements(query, 1, _INDICES, "indices of 32 or 64 bits")
    axis_in(axis, x)
    indices = shape_of(query, 1)
    if x is None or indices is None:
        return
    others = [place for place in range(len(x)) if place != axis % len(x)]
    longer = len(indices) == len(x) and any(exceeds(indices[place], x[place]) for place in others)
    if len(indices) != len(x) or longer:
        raise ModelError(f"indices {query.types[1]} do not fit {query.types[0]}")
    if query.op == "ScatterElements":
        demand(query, 2, indices, "the updates")
        demand_same_elements(query, 2, 0)


def _by_tuples(query: TypeQuery) -> None:
    x = shape_of(query, 0)
    indices = shape_of(query, 1)
    batch = get_int(query.attrs, "batch_dims", 0)
    demand_elements(query, 1, _INDICES, "indices of 32 or 64 bits")
    demand_rank(query, 0, 1)
    demand_rank(query, 1, 1)
    if query.op == "ScatterND":
        demand_same_elements(query, 2, 0)
    if x is None or indices is None or not isinstance(indices[-1], int):
        return
    depth = indices[-1]
    if (
        batch < 0
        or batch + depth > len(x)
        or batch >= len(indices)
        or any(map(differ, x[:batch], indices[:batch]))
    ):
        raise ModelError(f"indices {query.types[1]} do not fit {query.types[0]}")
    if query.op == "ScatterND":
        demand(query, 2, (*indices[:-1], *x[depth:]), "the updates")


def _tensor_scatter(query: TypeQuery) -> None:
    """The update has fewer steps than the cache; each batch item is written from one place."""
    x, update = shape_of(query, 0), shape_of(query, 1)
    axis = get_int(query.attrs, "axis", -2)
    axis_in(axis, x)
    demand_same_elements(query, 1, 0)
    demand_elements(query, 2, _INDICES, "indices of 32 or 64 bits")
    if x is None:
        return
    axis %= len(x)
    if axis == 0:
        raise ModelError("axis is 0, which is that of the batch")
    if update is not None:
        steps = update[axis] if axis < len(update) else None
        demand(query, 1, (*x[:axis], steps, *x[axis + 1 :]), "the update")
        if exceeds(steps, x[axis]):
            raise ModelError(f"{steps} steps do not fit a cache of {x[axis]}")
    demand(query, 2, (x[0],), "write_indices")


def _one_hot(query: TypeQuery) -> None:
    axis_in(get_int(query.attrs, "axis", -1), shape_of(query, 0), one_more=True)
    demand_one(query, 1, "the depth")
    demand_list(query, 2, 2, "values")
    value = query.value(1)
    if isinstance(value, np.ndarray) and value.size == 1 and value.reshape(-1)[0] < 0:
        raise ModelError(f"the depth is {value.reshape(-1)[0]}")


def _reverse_sequence(query: TypeQuery) -> None:
    demand_rank(query, 0, 2)
    time, batch = get_int(query.attrs, "time_axis", 0), get_int(query.attrs, "batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise ModelError(f"time_axis {time} and batch_axis {batch} should be 0 and 1, or 1 and 0")
    x = shape_of(query, 0)
    if x is None:
        return
    demand(query, 1, (x[batch],), "sequence_lens")
    demand_lengths(query, 1, x[time])


RULES: Mapping[str, Check] = {
    # Every operand of these has a say in the shape of the result, or none at all.
    **dict.fromkeys(
        ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Concat", "Split"),
        by_types,
    ),
    **dict.fromkeys(("Shape", "Size", "DimensionValue", "Identity"), by_types),
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "DepthToSpace": _image,
    "SpaceToDepth": _image,
    "Trilu": _triangle,
    "EyeLike": lambda query: demand_rank(query, 0, 2, 2),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Resize": _resize,
    "Gather": _gather,
    "GatherElements": _elements_along,
    "ScatterElements": _elements_along,
    "GatherND": _by_tuples,
    "ScatterND": _by_tuples,
    "TensorScatter": _tensor_scatter,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
}
