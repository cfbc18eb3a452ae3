"""Output types of operators that take their output shape, or a part of it, from a constant input:
reshape, slice, split and their kin.
"""

from __future__ import annotations

import math

import numpy as np

from whence.errors import ModelError
from whence.extent import is_symbolic
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Attrs, TypeQuery
from whence.ops.limits import MAX_PARTS
from whence.ops.types.type_rules import (
    axis_of,
    broadcast_shapes,
    const_ints,
    is_absent,
    normalise_axes,
    product,
    tensor_type,
)
from whence.types import MAX_RANK, Dim, DType, Shape, TensorType, ValueType, same_dim, shape_text


def reshape(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    target = const_ints(query, 1)
    if target is None:
        return TensorType(data.dtype, _rank_from_length(tensor_type(query, 1)))
    return TensorType(
        data.dtype,
        reshaped(query.op, data.shape, target, bool(get_int(query.attrs, "allowzero", 0))),
    )


def reshaped(
    op: str, shape: Shape | None, target: tuple[int, ...], allow_zero: bool = False
) -> Shape:
    """The shape that `Reshape` makes of `shape`.

    In `target`, 0 copies the dimension at its place (unless `allow_zero`) and one -1 takes what is
    left. What stands on both sides cancels, names included: [b,4,8] to [-1,32] is [b,32].
    """
    if (
        any(dim < -1 for dim in target)
        or target.count(-1) > 1
        or (allow_zero and 0 in target and -1 in target)
    ):
        raise ModelError(f"{op}: {list(target)} is not a shape to reshape to")
    copied = set() if allow_zero else {at for at, dim in enumerate(target) if dim == 0}
    if shape is None:
        return tuple(None if dim == -1 or at in copied else dim for at, dim in enumerate(target))
    if copied and max(copied) >= len(shape):
        raise ModelError(
            f"{op}: {list(target)} copies a dimension that {shape_text(shape)} does not have"
        )
    given = [dim for at, dim in enumerate(shape) if at not in copied]
    wanted = [dim for at, dim in enumerate(target) if at not in copied and dim != -1]
    _cancel(given, wanted)
    asked = math.prod(wanted)
    number = math.prod(dim for dim in given if isinstance(dim, int))
    open_dims = [dim for dim in given if not isinstance(dim, int)]
    rest: Dim = None
    if not open_dims:
        # A copied dimension of 0 makes every count equal.
        empty = any(shape[at] == 0 for at in copied)
        if (
            -1 not in target
            and number != asked
            and not empty
            and all(isinstance(shape[at], int) for at in copied)
        ):
            raise ModelError(
                f"{op}: {shape_text(shape)} has {product(shape)} elements and does not fit {list(target)}"
            )
        if -1 in target and asked and number % asked and not empty:
            raise ModelError(
                f"{op}: {shape_text(shape)} has {product(shape)} elements, which {list(target)} does not"
                " divide"
            )
        rest = number // asked if asked else None
    elif len(open_dims) == 1 and number == asked != 0:
        rest = open_dims[0]
    return tuple(
        rest if dim == -1 else shape[at] if at in copied else dim for at, dim in enumerate(target)
    )


def _cancel(given: list[Dim], wanted: list[int]) -> None:
    """Take out expressions that stand on both sides, so that no quotient of sums is to be found."""
    for dim in [dim for dim in wanted if is_symbolic(dim)]:
        twin = next((at for at, other in enumerate(given) if same_dim(dim, other)), None)
        if twin is not None:
            del given[twin]
            del wanted[next(at for at, other in enumerate(wanted) if other is dim)]


def flatten(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    if data.shape is None:
        return TensorType(data.dtype, (None, None))
    axis, rank = get_int(query.attrs, "axis", 1), len(data.shape)
    if not -rank <= axis <= rank:
        raise ModelError(f"axis {axis} does not exist in {data}")
    axis = axis + rank if axis < 0 else axis
    return TensorType(data.dtype, (product(data.shape[:axis]), product(data.shape[axis:])))


def squeeze(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    axes = const_ints(query, 1)
    if data.shape is None or (axes is None and not is_absent(query, 1)):
        return TensorType(data.dtype)
    if axes is None:
        # Without axes every 1 goes; an unknown dimension may turn out to be one.
        known = all(isinstance(dim, int) for dim in data.shape)
        return TensorType(
            data.dtype, tuple(dim for dim in data.shape if dim != 1) if known else None
        )
    gone = normalise_axes(query.op, axes, len(data.shape))
    for axis in gone:
        if isinstance(data.shape[axis], int) and data.shape[axis] != 1:
            raise ModelError(f"axis {axis} of {data} is not 1")
    return TensorType(
        data.dtype, tuple(dim for axis, dim in enumerate(data.shape) if axis not in gone)
    )


def unsqueeze(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    axes = const_ints(query, 1)
    if data.shape is None or axes is None:
        return TensorType(data.dtype)
    rank = len(data.shape) + len(axes)
    new = set(normalise_axes(query.op, axes, rank))
    old = iter(data.shape)
    return TensorType(data.dtype, tuple(1 if axis in new else next(old) for axis in range(rank)))


def expand(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    target = const_ints(query, 1)
    if target is not None:
        return TensorType(data.dtype, broadcast_shapes(query.op, data.shape, target))
    asked = _rank_from_length(tensor_type(query, 1))
    if data.shape is None or asked is None:
        return TensorType(data.dtype)
    return TensorType(data.dtype, (None,) * max(len(data.shape), len(asked)))


def slice_type(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    if data.shape is None:
        return TensorType(data.dtype)
    starts, ends = const_ints(query, 1), const_ints(query, 2)
    axes = tuple(range(len(starts or ()))) if is_absent(query, 3) else const_ints(query, 3)
    steps = (1,) * len(starts or ()) if is_absent(query, 4) else const_ints(query, 4)
    if axes is None or (starts is None and is_absent(query, 3)):
        return TensorType(data.dtype, (None,) * len(data.shape))
    dims = list(data.shape)
    for at, axis in enumerate(normalise_axes(query.op, axes, len(dims))):
        if starts is None or ends is None or steps is None:
            dims[axis] = None
        else:
            dims[axis] = sliced(query.op, dims[axis], starts[at], ends[at], steps[at])
    return TensorType(data.dtype, tuple(dims))


def sliced(op: str, dim: Dim, start: int, end: int, step: int) -> Dim:
    """The length of an axis of length `dim` after slicing; a name stays if all is taken."""
    if step == 0:
        raise ModelError(f"{op}: step must not be 0")
    if isinstance(dim, int):
        first, last = slice_bounds(dim, start, end, step)
        if step > 0:
            return 0 if last <= first else (last - first + step - 1) // step
        return 0 if first <= last else (first - last - step - 1) // -step
    if any(map(is_symbolic, (start, end))):
        return None
    # Exporters write "to the end" as the largest 32- or 64-bit number.
    return dim if start == 0 and step == 1 and end >= 2**31 - 1 else None


def slice_bounds(dim: int, start: int, end: int, step: int) -> tuple[int, int]:
    """A slice's first place and the one it ends before, as `slice.indices`; also expressions."""
    low, high = (0, dim) if step > 0 else (-1, dim - 1)

    def clamp(place: int) -> int:
        place = place + dim if place < 0 else place
        return low if place < low else high if place > high else place

    return clamp(start), clamp(end)


def split(query: TypeQuery) -> tuple[ValueType, ...]:
    data = tensor_type(query, 0)
    if data.shape is None:
        return (TensorType(data.dtype),) * query.n_outputs
    axis = axis_of(query, len(data.shape))
    dim = data.shape[axis]
    sizes: tuple[Dim, ...] = (None,) * query.n_outputs
    given = const_ints(query, 1)
    if given is not None:
        if len(given) != query.n_outputs or (isinstance(dim, int) and sum(given) != dim):
            raise ModelError(
                f"parts {list(given)} do not make up {query.n_outputs} outputs of axis"
                f" {axis} of {data}"
            )
        sizes = given
    elif is_absent(query, 1) and isinstance(dim, int):
        sizes = split_sizes(query.op, dim, get_int(query.attrs, "num_outputs", query.n_outputs))[
            : query.n_outputs
        ]
    return tuple(
        TensorType(data.dtype, (*data.shape[:axis], size, *data.shape[axis + 1 :]))
        for size in sizes
    )


def split_sizes(op: str, dim: int, parts: int) -> tuple[int, ...]:
    """`dim` in `parts` equal parts; the last is smaller when it does not divide."""
    # More than there are elements are for small numbers only: they are listed.
    if parts < 1 or (parts > MAX_PARTS and parts > dim + 1):
        raise ModelError(f"{op}: cannot split an axis of {dim} into {parts} parts")
    size = -(-dim // parts)
    last = dim - size * (parts - 1)
    if last < 0:
        raise ModelError(f"{op}: an axis of {dim} cannot be split into {parts} parts")
    return (size,) * (parts - 1) + (last,)


def shape_of(query: TypeQuery) -> TensorType:
    rank = tensor_type(query, 0).rank
    if rank is None:
        return TensorType(DType.I64, (None,))
    start, end = clamp_range(query.attrs, rank)
    return TensorType(DType.I64, (max(end - start, 0),))


def clamp_range(attrs: Attrs, rank: int) -> tuple[int, int]:
    """First and last-plus-one axis that a `Shape` operator reads, clamped to the axes there are."""
    start, end = get_int(attrs, "start", 0), get_int(attrs, "end", rank)
    start, end = (value + rank if value < 0 else value for value in (start, end))
    return min(max(start, 0), rank), min(max(end, 0), rank)


def size_of(query: TypeQuery) -> TensorType:
    tensor_type(query, 0)
    return TensorType(DType.I64, ())


def resize(query: TypeQuery) -> TensorType:
    """Known where `sizes` or `scales` is constant, without aspect ratio or region."""
    data = tensor_type(query, 0)
    if data.shape is None:
        return TensorType(data.dtype)
    axes = normalise_axes(
        query.op, get_ints(query.attrs, "axes") or range(len(data.shape)), len(data.shape)
    )
    sizes, scales = const_ints(query, 3), query.value(2)
    stretched = get_str(query.attrs, "keep_aspect_ratio_policy", "stretch") == "stretch"
    cropped = get_str(query.attrs, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    dims = list(data.shape)
    for at, axis in enumerate(axes):
        dim, dims[axis] = dims[axis], None
        if sizes and len(sizes) == len(axes) and stretched:
            dims[axis] = sizes[at]
        elif not (sizes or cropped) and isinstance(scales, np.ndarray) and scales.size == len(axes):
            dims[axis] = scaled_size(dim, np.float32(scales.reshape(-1)[at]))
    return TensorType(data.dtype, tuple(dims))


def scaled_size(dim: Dim, scale: np.float32) -> Dim:
    """The length of an axis after resizing by `scale`."""
    if scale == 1 or dim is None or isinstance(dim, str):
        return dim if scale == 1 else None
    over, under = float(scale).as_integer_ratio()
    if is_symbolic(dim) and over < 1 << 12 and under < 1 << 12:
        # Few enough digits that no product is rounded before it is rounded down.
        return dim * over // under
    return int(np.floor(np.float32(dim) * scale))


def _rank_from_length(shape_input: TensorType) -> Shape | None:
    """All that the type of a shape input says about the output: its rank."""
    length = None
    if shape_input.shape is not None and len(shape_input.shape) == 1:
        length = shape_input.shape[0]
    return (None,) * length if isinstance(length, int) and length <= MAX_RANK else None
