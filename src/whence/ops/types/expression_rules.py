"""Output types for sizes that are expressions, of operators that are otherwise left to the `onnx`
package, which knows numbers and names only. What a rule here does not know it leaves to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from whence.ops.attributes import get_int
from whence.ops.definition import TypeQuery
from whence.ops.neural.attention import HeadsOfOperand, heads_of_operand
from whence.ops.types.spatial_rules import conv
from whence.ops.types.type_rules import (
    axis_of,
    const_ints,
    is_absent,
    normalise_axes,
    product,
    tensor_type,
)
from whence.types import DType, Shape, TensorType, ValueType

Rule: TypeAlias = Callable[[TypeQuery], ValueType | tuple[ValueType, ...] | None]


def pad(query: TypeQuery) -> TensorType | None:
    data, pads = tensor_type(query, 0), const_ints(query, 1)
    if data.shape is None or pads is None:
        return None
    given = tuple(range(len(data.shape))) if is_absent(query, 3) else const_ints(query, 3)
    if given is None or len(pads) != 2 * len(given):
        return None
    axes = normalise_axes(query.op, given, len(data.shape))
    dims = list(data.shape)
    for at, axis in enumerate(axes):
        dim = dims[axis]
        dims[axis] = dim + pads[at] + pads[at + len(axes)] if isinstance(dim, int) else None
    return TensorType(data.dtype, tuple(dims))


def blocks_of_pixels(query: TypeQuery) -> TensorType | None:
    data, block = tensor_type(query, 0), get_int(query.attrs, "blocksize", 0)
    shape = data.static_shape
    if shape is None or len(shape) != 4 or block < 1:
        return None
    n, c, h, w = shape
    if query.op == "DepthToSpace":
        return TensorType(data.dtype, (n, c // (block * block), h * block, w * block))
    return TensorType(data.dtype, (n, c * block * block, h // block, w // block))


def gather_nd(query: TypeQuery) -> TensorType | None:
    data, indices = tensor_type(query, 0), tensor_type(query, 1)
    batch = get_int(query.attrs, "batch_dims", 0)
    if data.shape is None or not indices.shape:
        return None
    count = indices.shape[-1]
    if not isinstance(count, int) or batch + count > len(data.shape):
        return None
    return TensorType(data.dtype, indices.shape[:-1] + data.shape[batch + int(count) :])


def integer_conv(query: TypeQuery) -> TensorType | None:
    return TensorType(DType.I32, conv(query).shape)


def one_hot(query: TypeQuery) -> TensorType | None:
    indices, depth, values = tensor_type(query, 0), const_ints(query, 1), tensor_type(query, 2)
    if indices.shape is None or depth is None or len(depth) != 1:
        return None
    rank = len(indices.shape) + 1
    axis = axis_of(query, rank, -1)
    shape = (*indices.shape[:axis], depth[0], *indices.shape[axis:])
    return TensorType(values.dtype, shape)


def attention(query: TypeQuery) -> tuple[ValueType, ...] | None:
    """The result, then keys and values after what was there before."""
    q, v = heads_of_operand(query, 0, "q_num_heads"), heads_of_operand(query, 2, "kv_num_heads")
    k = heads_of_operand(query, 1, "kv_num_heads")
    if q is None or k is None or v is None or query.n_outputs > 3:
        return None
    packed = tensor_type(query, 0).rank == 3
    y = (q.batch, q.length, product((q.heads, v.size))) if packed else (*q[:3], v.size)
    shapes = (y, _appended(query, 4, k), _appended(query, 5, v))
    return tuple(TensorType(tensor_type(query, at).dtype, shape) for at, shape in enumerate(shapes))


def _appended(query: TypeQuery, index: int, new: HeadsOfOperand) -> Shape:
    total = new.length
    if not is_absent(query, index):
        past = tensor_type(query, index).shape
        before = past[2] if past is not None and len(past) == 4 else None
        total = before + total if isinstance(before, int) and isinstance(total, int) else None
    return new._replace(length=total)


EXPRESSION_RULES: Mapping[str, Rule] = {
    "Pad": pad,
    "DepthToSpace": blocks_of_pixels,
    "SpaceToDepth": blocks_of_pixels,
    "GatherND": gather_nd,
    "ConvInteger": integer_conv,
    "OneHot": one_hot,
    "Attention": attention,
}
