"""What a caller gives against what a model declares. Knows types and values but no graph, so that a compiled model can be called without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.errors import InputError
from whence.ops.definition import Value
from whence.types import DType, TensorType, ValueType


class Port(NamedTuple):
    """An input or output of a model."""

    name: str
    type: ValueType


def bind_values(ports: Sequence[Port], inputs: Mapping[str, Value] | Sequence[Value]) -> list[Value]:
    """The inputs, given by name or in order, in the order of `ports`, checked against what those declare."""
    names = [port.name for port in ports]
    if isinstance(inputs, Mapping):
        unknown = [name for name in inputs if name not in names]
        missing = [name for name in names if name not in inputs]
        if unknown or missing:
            problem = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise InputError(f"{problem}; the model takes {', '.join(names) or 'no inputs'}")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise InputError(f"{len(inputs)} inputs given; the model takes {len(names)}: {', '.join(names)}")
    return [_checked(port, value) for port, value in zip(ports, inputs, strict=True)]


def _checked(port: Port, value: Value) -> Value:
    expected = port.type
    if not isinstance(expected, TensorType) or value is None:
        return value
    array = np.asarray(value)
    try:
        given = DType.of(array)
    except KeyError:  # dates, records, the other byte order
        raise InputError(f"input {port.name!r} is {array.dtype}, the model takes {expected}") from None
    wrong = [f"is {given}"] if expected.dtype is not DType.UNDEFINED and given is not expected.dtype else []
    if expected.shape is not None:
        fits = len(expected.shape) == array.ndim and all(
            not isinstance(dim, int) or dim == got for dim, got in zip(expected.shape, array.shape, strict=True)
        )
        wrong += [] if fits else [f"has shape {list(array.shape)}"]
    if wrong:
        raise InputError(f"input {port.name!r} {' and '.join(wrong)}, the model takes {expected}")
    return array
