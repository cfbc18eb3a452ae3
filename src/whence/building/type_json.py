"""The types of values in JSON and back."""

from __future__ import annotations

from typing import Any

from whence.types import DType, MapType, OptionalType, SequenceType, TensorType, ValueType


def encode_type(kind: ValueType) -> list[Any]:
    """As lists, strings and numbers."""
    match kind:
        case TensorType(dtype, shape):
            return ["tensor", int(dtype), None if shape is None else list(shape)]
        case SequenceType(element):
            return ["sequence", encode_type(element)]
        case OptionalType(element):
            return ["optional", encode_type(element)]
        case MapType(key, value):
            return ["map", int(key), encode_type(value)]


def decode_type(row: list[Any]) -> ValueType:
    """What was encoded. Raises `ValueError` for anything else."""
    match row:
        case ["tensor", int(dtype), None]:
            return TensorType(DType(dtype))
        case ["tensor", int(dtype), list(shape)] if all(
            dim is None or isinstance(dim, int | str) for dim in shape
        ):
            return TensorType(DType(dtype), tuple(shape))
        case ["sequence", list(element)]:
            return SequenceType(decode_type(element))
        case ["optional", list(element)]:
            return OptionalType(decode_type(element))
        case ["map", int(key), list(value)]:
            return MapType(DType(key), decode_type(value))
    raise ValueError(f"{row!r} is no type")
