"""Typed reading of an operator's attributes. A wrong kind of value is an error of the model."""

from __future__ import annotations

from whence.errors import ModelError
from whence.extent import is_symbolic
from whence.ops.definition import Attrs


def get_int(attrs: Attrs, name: str, default: int) -> int:
    """The integer attribute `name`, or `default` when it is absent."""
    value = attrs.get(name, default)
    if not isinstance(value, int):
        raise ModelError(f"attribute {name} must be an integer, found {value!r}")
    return value


def get_float(attrs: Attrs, name: str, default: float) -> float:
    """The number `name`, or `default` when it is absent."""
    value = attrs.get(name, default)
    if not isinstance(value, (int, float)):
        raise ModelError(f"attribute {name} must be a number, found {value!r}")
    return float(value)


def get_str(attrs: Attrs, name: str, default: str) -> str:
    """The text attribute `name`, which ONNX stores as bytes, or `default` when it is absent."""
    return _text(name, attrs.get(name, default))


def get_ints(attrs: Attrs, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The list of integers `name`, or `default` when it is absent or empty."""
    value = attrs.get(name, default)
    if not isinstance(value, (tuple, list)) or not all(isinstance(item, int) for item in value):
        raise ModelError(f"attribute {name} must be a list of integers, found {value!r}")
    # Sizes that are expressions stay what they are.
    return (
        tuple(item if is_symbolic(item) else int(item) for item in value if isinstance(item, int))
        or default
    )


def get_floats(attrs: Attrs, name: str) -> tuple[float, ...]:
    """The list of numbers `name`, empty when it is absent."""
    value = attrs.get(name, ())
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(item, (int, float)) for item in value
    ):
        raise ModelError(f"attribute {name} must be a list of numbers, found {value!r}")
    return tuple(float(item) for item in value)


def get_strs(attrs: Attrs, name: str) -> tuple[str, ...]:
    """The list of texts `name`, empty when it is absent."""
    value = attrs.get(name, ())
    if not isinstance(value, (tuple, list)):
        raise ModelError(f"attribute {name} must be a list of texts, found {value!r}")
    return tuple(_text(name, item) for item in value)


def _text(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise ModelError(f"attribute {name} must be a text, found {value!r}")
    return value
