"""Output types of the commonest operators, worked out without the `onnx` package so that graphs of
a million nodes build quickly.

Dimensions may be numbers, names or unknown. A rule promises nothing it cannot prove: what it does
not know is `None`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.extent import Relation, decide, described, estimate, is_symbolic
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Call, TypeQuery
from whence.types import (
    UNKNOWN,
    Dim,
    DType,
    Shape,
    TensorType,
    ValueType,
    differ,
    same_dim,
    same_shape,
)

# Axes, shapes and the sizes of parts are short lists; a longer constant is data.
_MAX_LIST = 4096


def tensor_type(query: TypeQuery, index: int) -> TensorType:
    """The type of input `index`, a tensor; `UNKNOWN` when it is absent."""
    found = query.types[index] if index < len(query.types) else None
    if found is None:
        return UNKNOWN
    if not isinstance(found, TensorType):
        raise ModelError(f"input {index} must be a tensor, found {found}")
    return found


def const_ints(query: TypeQuery, index: int) -> tuple[int, ...] | None:
    """The values of input `index` when it is a list of integers (or one integer) of sensible length
    that are known when compiling, as numbers or expressions, else `None`.
    """
    value = query.value(index)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuO" or value.size > _MAX_LIST:
        return None
    items = tuple(value.reshape(-1).tolist())
    # Texts are objects too.
    return items if value.dtype != np.object_ or all(isinstance(it, int) for it in items) else None


def is_absent(query: TypeQuery, index: int) -> bool:
    return index >= len(query.types) or query.types[index] is None


def normalise_axis(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front."""
    if not -rank <= axis < rank:
        raise ModelError(f"{op}: axis {axis} does not exist in a tensor of rank {rank}")
    return axis % rank if rank else 0


def axis_of(operator: TypeQuery | Call, rank: int, default: int = 0) -> int:
    """The attribute `axis` of an operator on a tensor of this rank, counted from the front."""
    return normalise_axis(operator.op, get_int(operator.attrs, "axis", default), rank)


def normalise_axes(op: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, each at most once. One that is made of open sizes is asked for
    its number: which axis it is decides everything.
    """
    found = tuple(int(normalise_axis(op, axis, rank)) for axis in axes)
    if len(set(found)) != len(found):
        raise ModelError(f"{op}: axes {list(found)} name an axis twice")
    return found


def broadcast_dims(op: str, left: Dim, right: Dim) -> Dim:
    """The dimension that two dimensions broadcast to: one equal to 1 gives way, and a number above
    1 decides for an unknown one.
    """
    if same_dim(left, right):
        return left
    # What a plain 1 broadcasts against does not matter.
    if same_dim(left, 1):
        return right
    if same_dim(right, 1):
        return left
    if is_symbolic(left) or is_symbolic(right):
        return _broadcast_extents(op, left, right)
    if isinstance(left, int):
        if isinstance(right, int) and left != right:
            raise ModelError(
                f"{op}: dimensions {described(left)} and {described(right)} do not broadcast"
            )
        return left
    return right if isinstance(right, int) else None


def _broadcast_extents(op: str, left: Dim, right: Dim) -> Dim:
    """As `broadcast_dims`, where neither is a plain 1 and one is an expression."""
    if not isinstance(left, int) or not isinstance(right, int):
        known = left if isinstance(left, int) else right
        # Nothing is asked for the sake of what may be learnt later.
        return known if isinstance(known, int) and decide(known, Relation.NE, 1) else None
    # What is equal in this call is most likely meant to be.
    if estimate(left) == estimate(right) and left == right:
        return left
    if left == 1 or right == 1:
        return right if left == 1 else left
    raise ModelError(f"{op}: dimensions {described(left)} and {described(right)} do not broadcast")


def broadcast_shapes(op: str, left: Shape | None, right: Shape | None) -> Shape | None:
    """The shape that two shapes broadcast to; `None` when either rank is unknown."""
    if left is None or right is None:
        return None
    if same_shape(left, right):
        return left
    missing = len(left) - len(right)
    if missing < 0:
        left = (1,) * -missing + left
    elif missing > 0:
        right = (1,) * missing + right
    return tuple(broadcast_dims(op, a, b) for a, b in zip(left, right, strict=True))


def merge_dims(op: str, left: Dim, right: Dim) -> Dim:
    """What is known of a dimension that two tensors share."""
    if differ(left, right):
        raise ModelError(
            f"{op}: dimensions {described(left)} and {described(right)} should be equal"
        )
    return known_dim(left, right)


def known_dim(first: Dim, second: Dim) -> Dim:
    """What is known of a dimension from two sides: a number before a name, else the first."""
    if isinstance(first, int) or second is None:
        return first
    return second if isinstance(second, int) or first is None else first


def product(dims: Sequence[Dim]) -> Dim:
    """The product of dimensions: a number, or the one name in it when all else is 1, or unknown."""
    number = math.prod(dim for dim in dims if isinstance(dim, int))
    open_dims = [dim for dim in dims if not isinstance(dim, int)]
    if not open_dims or number == 0:
        return number
    return open_dims[0] if len(open_dims) == 1 and number == 1 else None


def common_dtype(op: str, types: Iterable[TensorType]) -> DType:
    """The element type that all of `types` share, of those that are known."""
    found = DType.UNDEFINED
    for item in types:
        if found is DType.UNDEFINED:
            found = item.dtype
        elif item.dtype is not DType.UNDEFINED and item.dtype is not found:
            raise ModelError(f"{op}: inputs have different element types, {found} and {item.dtype}")
    return found


# ---- rules ----


def same_type(query: TypeQuery) -> TensorType:
    """Output 0 is like input 0."""
    return tensor_type(query, 0)


def identity(query: TypeQuery) -> ValueType:
    """Output 0 is input 0, whatever kind of value it is."""
    found = query.types[0] if query.types else None
    return UNKNOWN if found is None else found


def predicate(query: TypeQuery) -> TensorType:
    """One truth value for each element of input 0."""
    return TensorType(DType.BOOL, tensor_type(query, 0).shape)


def broadcast(query: TypeQuery) -> TensorType:
    """All inputs broadcast together, and share their element type."""
    if (
        len(query.types) == 2
        and query.types[0] == query.types[1]
        and isinstance(query.types[0], TensorType)
    ):
        # The commonest case by far, and the cheapest to answer.
        return query.types[0]
    types = [tensor_type(query, index) for index in range(len(query.types))]
    dtype = common_dtype(query.op, types)
    shape = types[0].shape
    for item in types[1:]:
        shape = broadcast_shapes(query.op, shape, item.shape)
    return TensorType(dtype, shape)


def compare(query: TypeQuery) -> TensorType:
    """Two inputs of one element type broadcast to truth values."""
    return TensorType(DType.BOOL, broadcast(query).shape)


def power(query: TypeQuery) -> TensorType:
    """The element type is the base's; the exponent's may differ."""
    base, exponent = tensor_type(query, 0), tensor_type(query, 1)
    return TensorType(base.dtype, broadcast_shapes(query.op, base.shape, exponent.shape))


def where(query: TypeQuery) -> TensorType:
    condition, left, right = (tensor_type(query, index) for index in range(3))
    shape = broadcast_shapes(
        query.op, broadcast_shapes(query.op, condition.shape, left.shape), right.shape
    )
    return TensorType(common_dtype(query.op, (left, right)), shape)


def cast(query: TypeQuery) -> TensorType:
    return TensorType(
        target_dtype(query.op, get_int(query.attrs, "to", 0)), tensor_type(query, 0).shape
    )


def cast_like(query: TypeQuery) -> TensorType:
    return TensorType(tensor_type(query, 1).dtype, tensor_type(query, 0).shape)


def target_dtype(op: str, number: int) -> DType:
    """The element type with ONNX's `number`."""
    try:
        found = DType(number)
    except ValueError:
        raise UnsupportedError(f"{op}: element type number {number} is not supported") from None
    if found is DType.UNDEFINED:
        raise ModelError(f"{op}: the target element type is not given")
    return found


def transpose(query: TypeQuery) -> TensorType:
    data, perm = tensor_type(query, 0), get_ints(query.attrs, "perm", ())
    shape: Shape = (None,) * len(perm) if data.shape is None else data.shape
    if data.shape is None and not perm:
        return TensorType(data.dtype)
    perm = perm or tuple(reversed(range(len(shape))))
    if sorted(perm) != list(range(len(shape))):
        raise ModelError(f"perm {list(perm)} does not order the axes of {data}")
    return TensorType(data.dtype, tuple(shape[axis] for axis in perm))


def concat(query: TypeQuery) -> TensorType:
    types = [tensor_type(query, index) for index in range(len(query.types))]
    dtype = common_dtype(query.op, types)
    shapes = [item.shape for item in types if item.shape is not None]
    if not shapes:
        return TensorType(dtype)
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes):
        raise ModelError(f"inputs have different ranks, {', '.join(str(item) for item in types)}")
    axis = axis_of(query, rank)
    dims = list(shapes[0])
    for shape in shapes[1:]:
        dims = [
            dim if at == axis else merge_dims(query.op, dim, shape[at])
            for at, dim in enumerate(dims)
        ]
    along = [shape[axis] for shape in shapes]
    lengths = [dim for dim in along if isinstance(dim, int)]
    if len(types) > 1:
        dims[axis] = sum(lengths) if len(lengths) == len(types) else None
    return TensorType(dtype, tuple(dims))


def matmul(query: TypeQuery) -> TensorType:
    left, right = tensor_type(query, 0), tensor_type(query, 1)
    dtype = common_dtype(query.op, (left, right))
    if left.shape is None or right.shape is None:
        return TensorType(dtype)
    if not left.shape or not right.shape:
        raise ModelError(f"inputs must have at least one axis, found {left} and {right}")
    a = left.shape if len(left.shape) > 1 else (1, *left.shape)
    b = right.shape if len(right.shape) > 1 else (*right.shape, 1)
    if differ(a[-1], b[-2]):
        raise ModelError(f"inner dimensions differ in {left} and {right}")
    batch = broadcast_shapes(query.op, a[:-2], b[:-2])
    assert batch is not None
    rows = (a[-2],) if len(left.shape) > 1 else ()
    columns = (b[-1],) if len(right.shape) > 1 else ()
    return TensorType(dtype, (*batch, *rows, *columns))


def gather(query: TypeQuery) -> TensorType:
    data, indices = tensor_type(query, 0), tensor_type(query, 1)
    if data.shape is None or indices.shape is None:
        return TensorType(data.dtype)
    axis = axis_of(query, len(data.shape))
    return TensorType(data.dtype, data.shape[:axis] + indices.shape + data.shape[axis + 1 :])


def reduce(query: TypeQuery) -> TensorType:
    """Axes in input 1; without them all, or none with `noop_with_empty_axes`."""
    data, keep = tensor_type(query, 0), bool(get_int(query.attrs, "keepdims", 1))
    axes = () if is_absent(query, 1) else const_ints(query, 1)
    if axes == () and get_int(query.attrs, "noop_with_empty_axes", 0):
        return data
    if data.shape is None:
        return TensorType(data.dtype, () if axes == () and not keep else None)
    rank = len(data.shape)
    if axes is None:
        return TensorType(data.dtype, (None,) * rank if keep else None)
    gone = set(normalise_axes(query.op, axes, rank) or range(rank))
    dims = (
        1 if axis in gone else dim
        for axis, dim in enumerate(data.shape)
        if keep or axis not in gone
    )
    return TensorType(data.dtype, tuple(dims))
