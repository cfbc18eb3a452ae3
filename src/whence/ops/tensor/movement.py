"""Operators that move elements without computing on them: transpose, reshape, slice, split, concat,
pad, tile and their kin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from whence.errors import ModelError
from whence.extent import is_symbolic
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import (
    Call,
    Facts,
    Infer,
    OpClass,
    OpDef,
    Pattern,
    Reference,
    TypeQuery,
    Value,
)
from whence.ops.operand import INDEX, PARAMETER, named, variadic
from whence.ops.precision import number, tensor
from whence.ops.traits import Trait
from whence.ops.types.shape_rules import (
    expand,
    flatten,
    reshape,
    reshaped,
    slice_type,
    split,
    split_sizes,
    squeeze,
    unsqueeze,
)
from whence.ops.types.type_rules import (
    axis_of,
    concat,
    normalise_axes,
    same_type,
    tensor_type,
    transpose,
)
from whence.types import Dim, TensorType


def ints(call: Call, index: int) -> tuple[int, ...]:
    """Input `index` as a list of integers."""
    return tuple(int(item) for item in tensor(call, index).reshape(-1))


def optional_ints(call: Call, index: int) -> tuple[int, ...] | None:
    """Input `index` as a list of integers, or `None` when it is absent."""
    return None if call.input(index) is None else ints(call, index)


def _transpose(call: Call) -> Value:
    x = tensor(call, 0)
    return np.transpose(x, get_ints(call.attrs, "perm") or None)


def _reshape(call: Call) -> Value:
    x = tensor(call, 0)
    shape = reshaped(call.op, x.shape, ints(call, 1), bool(get_int(call.attrs, "allowzero", 0)))
    # An unknown length is left only where the whole tensor is empty, and then 0 is as good as any.
    return x.reshape(tuple(dim if isinstance(dim, int) else 0 for dim in shape))


def _flatten(call: Call) -> Value:
    x, axis = tensor(call, 0), get_int(call.attrs, "axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise ModelError(f"axis {axis} does not exist in a tensor of rank {x.ndim}")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeeze(call: Call) -> Value:
    x, axes = tensor(call, 0), optional_ints(call, 1)
    return np.squeeze(x, None if axes is None else normalise_axes(call.op, axes, x.ndim))


def _unsqueeze(call: Call) -> Value:
    x, axes = tensor(call, 0), ints(call, 1)
    return np.expand_dims(x, normalise_axes(call.op, axes, x.ndim + len(axes)))


def _slice(call: Call) -> Value:
    x, starts, ends = tensor(call, 0), ints(call, 1), ints(call, 2)
    axes, steps = optional_ints(call, 3), optional_ints(call, 4)
    axes = normalise_axes(call.op, tuple(range(len(starts))) if axes is None else axes, x.ndim)
    steps = (1,) * len(starts) if steps is None else steps
    # ONNX clamps out-of-range bounds exactly as Python does.
    cuts = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    return x[tuple(cuts)]


def _split(call: Call) -> tuple[Value, ...]:
    x, sizes = tensor(call, 0), optional_ints(call, 1)
    axis = axis_of(call, x.ndim)
    if sizes is None:
        sizes = split_sizes(
            call.op, x.shape[axis], get_int(call.attrs, "num_outputs", call.n_outputs)
        )
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise ModelError(f"parts {list(sizes)} do not make up axis {axis} of {list(x.shape)}")
    return tuple(split_at(x, sizes, axis))


def split_at(x: np.ndarray, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    """`x` cut along `axis` into parts of the given sizes."""
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _concat(call: Call) -> Value:
    parts = [tensor(call, index) for index in range(len(call.inputs))]
    return np.concatenate(parts, axis_of(call, parts[0].ndim))


def pad(
    x: np.ndarray,
    before: Sequence[int],
    after: Sequence[int],
    mode: str = "constant",
    fill: Value = 0,
) -> np.ndarray:
    """`x` with elements added to (or, where negative, cut from) both ends of each axis. Cutting
    comes first. With a constant, one end may be cut by more than there is: the rest goes from what
    the other adds.
    """
    sizes = [n + b + a for n, b, a in zip(x.shape, before, after, strict=True)]
    crop = tuple(
        slice(max(-b, 0), max(n - max(-a, 0), 0))
        for b, a, n in zip(before, after, x.shape, strict=True)
    )
    x = x[crop]
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        result = np.full(sizes, fill, x.dtype)
        result[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, widths, strict=True))] = x
        return result
    for axis, (b, a) in enumerate(widths):
        if b or a:
            # Padding the positions instead of the data works for every element type.
            positions = np.pad(np.arange(x.shape[axis]), (b, a), mode=mode)  # type: ignore[call-overload]
            x = np.take(x, positions, axis)
    return x


def _blank(x: np.ndarray) -> Value:
    """What stands where nothing of a tensor does: an empty text, or zero."""
    return "" if x.dtype == np.object_ else np.zeros((), x.dtype)


def _pad(call: Call) -> Value:
    x, pads, mode = tensor(call, 0), ints(call, 1), get_str(call.attrs, "mode", "constant")
    axes = normalise_axes(call.op, optional_ints(call, 3) or range(x.ndim), x.ndim)
    if len(pads) != 2 * len(axes):
        raise ModelError(f"{len(pads)} pads are given for {len(axes)} axes")
    before, after = [0] * x.ndim, [0] * x.ndim
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[at + len(axes)]
    for size, begin, end in zip(x.shape, before, after, strict=True):
        cut = -min(begin, 0) - min(end, 0)
        if size + begin + end < 0 or (mode != "constant" and cut > size):
            raise ModelError(f"pads {begin} and {end} cut more than {size}")
    return pad(x, before, after, mode, number(call, 2, _blank(x)))


def _tile_type(query: TypeQuery) -> TensorType:
    data = tensor_type(query, 0)
    repeats = query.value(1)
    if data.shape is None or not isinstance(repeats, np.ndarray) or repeats.size != len(data.shape):
        return TensorType(data.dtype, None if data.shape is None else (None,) * len(data.shape))
    dims: list[Dim] = []
    for dim, count in zip(data.shape, repeats.reshape(-1), strict=True):
        whole = count if is_symbolic(count) else int(count)
        dims.append(dim * whole if isinstance(dim, int) else dim if whole == 1 else None)
    return TensorType(data.dtype, tuple(dims))


def _expand(call: Call) -> Value:
    x, shape = tensor(call, 0), ints(call, 1)
    return np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, shape)))


def _image(call: Call) -> tuple[np.ndarray, int, str]:
    x = tensor(call, 0)
    block = get_int(call.attrs, "blocksize", 0)
    if x.ndim != 4 or block < 1:
        raise ModelError(f"needs rank 4 and a positive blocksize, found rank {x.ndim}, {block}")
    return x, block, get_str(call.attrs, "mode", "DCR")


def _depth_to_space(call: Call) -> Value:
    x, block, mode = _image(call)
    n, c, h, w = x.shape
    depth = c // (block * block)
    if mode == "DCR":
        moved = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        moved = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return moved.reshape(n, depth, h * block, w * block)


def _space_to_depth(call: Call) -> Value:
    x, block, mode = _image(call)
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // block, block, w // block, block)
    moved = (
        blocks.transpose(0, 3, 5, 1, 2, 4) if mode == "DCR" else blocks.transpose(0, 1, 3, 5, 2, 4)
    )
    return moved.reshape(n, c * block * block, h // block, w // block)


def _trilu(call: Call) -> Value:
    x, diagonal = tensor(call, 0), int(number(call, 1, 0))
    above = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, np.newaxis]
    kept = above >= diagonal if get_int(call.attrs, "upper", 1) else above <= diagonal
    return np.where(kept, x, _blank(x)).astype(x.dtype, copy=False)


def _reverse_sequence(call: Call) -> Value:
    x, lengths = tensor(call, 0), ints(call, 1)
    time_axis = get_int(call.attrs, "time_axis", 0)
    batch_axis = get_int(call.attrs, "batch_axis", 1)
    if {time_axis, batch_axis} != {0, 1} or x.ndim < 2 or len(lengths) != x.shape[batch_axis]:
        raise ModelError(
            f"axes {time_axis} and {batch_axis} with {len(lengths)} lengths do not fit"
            f" {list(x.shape)}"
        )
    steps, batch = np.arange(x.shape[time_axis])[:, np.newaxis], np.arange(x.shape[batch_axis])
    ends = np.asarray(lengths, np.int64)
    if ends.size and not 0 <= ends.min() <= ends.max() <= x.shape[time_axis]:
        raise ModelError(
            f"sequence_lens {lengths} are not lengths of an axis of {x.shape[time_axis]}"
        )
    source = np.where(steps < ends, ends - 1 - steps, steps)
    return x[source, batch] if time_axis == 0 else x[batch[:, np.newaxis], source.T]


def _center_crop_pad(call: Call) -> Value:
    x, target = tensor(call, 0), ints(call, 1)
    axes = normalise_axes(call.op, get_ints(call.attrs, "axes") or range(x.ndim), x.ndim)
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, length in zip(axes, target, strict=True):
        missing = length - x.shape[axis]
        # Both cutting and padding put the odd element at the end.
        before[axis] = missing // 2 if missing >= 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return pad(x, before, after, fill=_blank(x))


def _move(
    name: str,
    reference: Reference,
    infer: Infer | None = None,
    pattern: Pattern = Pattern.INJECTIVE,
    **facts: Unpack[Facts],
) -> OpDef:
    return OpDef(name, pattern, OpClass.MOVEMENT, infer, reference, flops=0, **facts)


_MOVES = Trait.SELECTS | Trait.MOVES
_PERMUTES = Trait.PERMUTES | _MOVES
_RESHAPE = Trait.VIEW | Trait.RESHAPE | Trait.STRIDED | _PERMUTES
_PARTS = Trait.STRIDED | Trait.READS_PART | Trait.CONTIGUOUS_PARTS | _MOVES

OPS: tuple[OpDef, ...] = (
    _move(
        "Transpose", _transpose, transpose, operands=named("data"), traits=Trait.STRIDED | _PERMUTES
    ),
    _move(
        "Reshape",
        _reshape,
        reshape,
        operands=named("data", shape=PARAMETER),
        traits=_RESHAPE | Trait.TAKES_SIZES,
    ),
    _move("Flatten", _flatten, flatten, operands=named("input"), traits=_RESHAPE),
    _move("Squeeze", _squeeze, squeeze, operands=named("data", axes=PARAMETER), traits=_RESHAPE),
    _move(
        "Unsqueeze",
        _unsqueeze,
        unsqueeze,
        Pattern.BROADCAST,
        operands=named("data", axes=PARAMETER),
        traits=_RESHAPE,
    ),
    _move(
        "Slice",
        _slice,
        slice_type,
        operands=named("data", starts=PARAMETER, ends=PARAMETER, axes=PARAMETER, steps=PARAMETER),
        traits=_PARTS | Trait.TAKES_SIZES,
    ),
    _move("Split", _split, split, operands=named("input", split=PARAMETER), traits=_PARTS),
    _move(
        "Concat",
        _concat,
        concat,
        operands=variadic("inputs"),
        traits=Trait.SELECTS | Trait.CONTIGUOUS_PARTS,
    ),
    _move(
        "Pad",
        _pad,
        operands=named("data", pads=PARAMETER, constant_value=PARAMETER, axes=PARAMETER),
        traits=Trait.SELECTS | Trait.GROWS,
    ),
    _move(
        "Tile",
        lambda call: np.tile(tensor(call, 0), ints(call, 1)),
        _tile_type,
        operands=named("input", repeats=PARAMETER),
        traits=_MOVES | Trait.REPEATS | Trait.GROWS,
    ),
    _move(
        "Expand",
        _expand,
        expand,
        Pattern.BROADCAST,
        operands=named("input", shape=PARAMETER),
        traits=Trait.STRIDED | _MOVES | Trait.GROWS | Trait.TAKES_SIZES,
    ),
    _move("DepthToSpace", _depth_to_space, operands=named("input"), traits=_PERMUTES),
    _move("SpaceToDepth", _space_to_depth, operands=named("input"), traits=_PERMUTES),
    _move("Trilu", _trilu, same_type, operands=named("input", k=PARAMETER)),
    _move(
        "ReverseSequence",
        _reverse_sequence,
        same_type,
        operands=named("input", sequence_lens=INDEX),
        traits=_PERMUTES | Trait.CHECKS_INDICES,
    ),
    _move(
        "CenterCropPad",
        _center_crop_pad,
        operands=named("input_data", shape=PARAMETER),
        traits=Trait.GROWS,
    ),
)
