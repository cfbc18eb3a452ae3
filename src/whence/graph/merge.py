"""Putting together what is known of one value from two sides."""

from __future__ import annotations

from collections.abc import Mapping

from whence.ops.types.type_rules import known_dim
from whence.types import (
    DType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    ValueType,
    map_dims,
    map_tensors,
)


def merge(found: ValueType, declared: ValueType | None) -> ValueType:
    """What was found, with gaps filled from what is known otherwise. Where the two contradict, what
    was found holds.
    """
    if declared is None:
        return found
    if isinstance(found, TensorType):
        if found.dtype is DType.UNDEFINED and found.shape is None:
            return declared
        if not isinstance(declared, TensorType):
            return found
        dtype = declared.dtype if found.dtype is DType.UNDEFINED else found.dtype
        shape = _merge_shape(found.shape, declared.shape)
        return found if dtype is found.dtype and shape is found.shape else TensorType(dtype, shape)
    if isinstance(found, SequenceType) and isinstance(declared, SequenceType):
        return SequenceType(merge(found.element, declared.element))
    if isinstance(found, OptionalType) and isinstance(declared, OptionalType):
        return OptionalType(merge(found.element, declared.element))
    return found


def with_declared_elements(found: ValueType, declared: ValueType | None) -> ValueType:
    """What was found, with an element type that is not known taken from the declaration; nothing
    that it says of shapes, which only the inputs decide.
    """
    if declared is None:
        return found
    if isinstance(found, TensorType):
        if found.dtype is not DType.UNDEFINED:
            return found
        if isinstance(declared, TensorType):
            return TensorType(declared.dtype, found.shape)
        return found if found.shape is not None else without_shapes(declared)
    if isinstance(found, SequenceType) and isinstance(declared, SequenceType):
        return SequenceType(with_declared_elements(found.element, declared.element))
    if isinstance(found, OptionalType) and isinstance(declared, OptionalType):
        return OptionalType(with_declared_elements(found.element, declared.element))
    return found


def without_shapes(known: ValueType) -> ValueType:
    """The type with nothing known of any shape."""
    return map_tensors(known, lambda tensor: TensorType(tensor.dtype))


def _merge_shape(found: Shape | None, declared: Shape | None) -> Shape | None:
    if found is None or declared is None:
        return declared if found is None else found
    if found == declared or len(found) != len(declared):
        return found
    return tuple(map(known_dim, found, declared))


def common(first: ValueType, second: ValueType) -> ValueType:
    """What holds for a value that is of either type."""
    if first == second:
        return first
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        dtype = first.dtype if first.dtype is second.dtype else DType.UNDEFINED
        if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
            return TensorType(dtype)
        return TensorType(
            dtype,
            tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True)),
        )
    if isinstance(first, SequenceType) and isinstance(second, SequenceType):
        return SequenceType(common(first.element, second.element))
    if isinstance(first, OptionalType) and isinstance(second, OptionalType):
        return OptionalType(common(first.element, second.element))
    return TensorType(DType.UNDEFINED)


def substitute(known: ValueType, symbols: Mapping[str, int]) -> ValueType:
    """The type with named dimensions replaced by the numbers given for them."""
    if not symbols:
        return known
    return map_dims(known, lambda dim: symbols.get(dim, dim) if isinstance(dim, str) else dim)


def without_dims(known: ValueType) -> ValueType:
    """The type with no dimension known, only how many there are."""
    if isinstance(known, TensorType) and known.shape is not None:
        return TensorType(known.dtype, (None,) * len(known.shape))
    return known


def without_shape(known: ValueType) -> ValueType:
    """The type with not even the number of its dimensions known."""
    return TensorType(known.dtype) if isinstance(known, TensorType) else known
