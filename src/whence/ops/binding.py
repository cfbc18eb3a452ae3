"""What a caller gives against what a model declares. Knows types and values but no graph, so that a
compiled model can be called without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.errors import InputError
from whence.types import Dim, DType, OptionalType, SequenceType, TensorType, ValueType

if TYPE_CHECKING:
    from whence.ops.definition import Value


class Port(NamedTuple):
    """An input or output of a model."""

    name: str
    type: ValueType


class Binder:
    """What a model declares, prepared so that checking the inputs of a call is cheap."""

    def __init__(
        self, ports: Sequence[Port], adopt: Callable[[Port, Value], Value] | None = None
    ) -> None:
        """`adopt` checks what is no array of the host, and returns what stands for it in a run, or
        `None` for what it does not know.
        """
        self._ports = tuple(ports)
        self._adopt = adopt
        self._names = tuple(port.name for port in ports)
        kinds = [port.type if isinstance(port.type, TensorType) else None for port in ports]
        # The dtype and the shape that nothing more needs to be asked of; an open dimension is equal
        # to none.
        self._easy = tuple(
            (
                (None, None)
                if kind is None or kind.dtype is DType.UNDEFINED
                else (kind.dtype.numpy, kind.shape)
            )
            for kind in kinds
        )

        # A model whose first input is itself a dictionary gets what it is given.
        self._takes_no_mapping = not kinds or kinds[0] is not None

    def bind(self, inputs: Mapping[str, Value] | Value) -> list[Value]:
        """The inputs, given by name or in order, as a list in the order of the ports, checked. A
        single array is the only input.
        """
        if isinstance(inputs, Mapping):
            return self._by_name(inputs)
        return self._in_order([inputs] if is_single_array(inputs) else inputs)

    def _by_name(self, inputs: Mapping[str, Value]) -> list[Value]:
        unknown = [name for name in inputs if name not in self._names]
        missing = [name for name in self._names if name not in inputs]
        if unknown or missing:
            problem = (
                f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            )
            raise InputError(f"{problem}; the model takes {', '.join(self._names) or 'no inputs'}")
        return self._in_order([inputs[name] for name in self._names])

    def _in_order(self, inputs: Sequence[Value]) -> list[Value]:
        if len(inputs) != len(self._names):
            raise self._wrong_number(inputs)
        return [
            (
                value
                if type(value) is np.ndarray and value.shape == shape and value.dtype == dtype
                else self._other(port, value)
            )
            for port, value, (dtype, shape) in zip(self._ports, inputs, self._easy, strict=True)
        ]

    def _wrong_number(self, inputs: Sequence[Value]) -> InputError:
        names = self._names
        return InputError(
            f"{len(inputs)} inputs given; the model takes {len(names)}: {', '.join(names)}"
        )

    def _other(self, port: Port, value: Value) -> Value:
        adopted = None if self._adopt is None else self._adopt(port, value)
        return _checked(port, value) if adopted is None else adopted

    def call(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value]:
        """As `bind`, of the arguments of a call: some in order, the rest by name; or a dictionary
        of all of them, as other runtimes take it.
        """
        if not kwargs:
            if len(args) == 1 and isinstance(args[0], Mapping) and self._takes_no_mapping:
                return self._by_name(args[0])
            return self._in_order(args)
        if not args and len(kwargs) == len(self._names):
            try:
                return self._in_order([kwargs[name] for name in self._names])
            except KeyError:
                return self._by_name(kwargs)
        if len(args) > len(self._names):
            raise self._wrong_number(args)
        given = dict(zip(self._names, args, strict=False))
        twice = [name for name in kwargs if name in given]
        if twice:
            raise InputError(f"input '{twice[0]}' is given twice")
        return self._by_name({**given, **kwargs})


def is_single_array(inputs: Value) -> bool:
    """Is it one array or tensor, and no sequence of inputs, though it has a length?"""
    return hasattr(inputs, "__dlpack__") or hasattr(inputs, "__array__")


def bind_values(ports: Sequence[Port], inputs: Mapping[str, Value] | Value) -> list[Value]:
    """The inputs, given by name or in order, as a list in the order of `ports`, checked."""
    return Binder(ports).bind(inputs)


def warn_of_disagreement(ports: Sequence[Port], shapes: Sequence[Sequence[int] | None]) -> None:
    """Warn where given shapes contradict what the inputs declare in ways that other engines let
    pass: a scalar that is none, a dimension's name that means two sizes.
    """
    for port, shape in zip(ports, shapes, strict=True):
        if isinstance(port.type, TensorType) and port.type.shape == () and shape:
            _warn(f"input '{port.name}' is declared as a scalar and given with shape {list(shape)}")
    for wrong in _disagreements(ports, shapes):
        _warn(wrong)


def disagreement(ports: Sequence[Port], shapes: Sequence[Sequence[int] | None]) -> str | None:
    """Which dimension is given with two sizes, in words; `None` where each has one."""
    return next(_disagreements(ports, shapes), None)


def _disagreements(ports: Sequence[Port], shapes: Sequence[Sequence[int] | None]) -> Iterator[str]:
    sizes: dict[str, tuple[int, str]] = {}
    for port, shape in zip(ports, shapes, strict=True):
        if shape is None or not isinstance(port.type, TensorType) or port.type.shape is None:
            continue
        for dim, size in zip(port.type.shape, shape, strict=False):
            if isinstance(dim, str):
                first, name = sizes.setdefault(dim, (size, port.name))
                if first != size:
                    yield (
                        f"dimension '{dim}' is given as {first} for input '{name}' and as {size}"
                        f" for input '{port.name}'"
                    )


def _warn(what: str) -> None:
    import warnings

    warnings.warn(f"{what}: the shapes that the file states are not believed", stacklevel=2)


def _checked(port: Port, value: Value) -> Value:
    expected = port.type
    if isinstance(expected, OptionalType):
        return None if value is None else _checked(Port(port.name, expected.element), value)
    if isinstance(expected, SequenceType):
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input {port.name!r} is no list, the model takes {expected}")
        return [_checked(Port(port.name, expected.element), item) for item in value]
    if not isinstance(expected, TensorType) or value is None:
        return value
    try:
        array = _as_array(value)
    except (TypeError, ValueError, BufferError, RuntimeError, MemoryError) as error:
        raise InputError(
            f"input {port.name!r} is no array, the model takes {expected}: {error}"
        ) from None
    # Exporters declare inputs of unknown rank as scalars, and ONNX Runtime takes what it is given.
    fits = not expected.shape or _fits(expected.shape, array.shape)
    if fits and expected.dtype is not DType.UNDEFINED and array.dtype == expected.dtype.numpy:
        return array
    try:
        given = DType.of(array)
    except KeyError:  # dates, records, the other byte order
        raise InputError(
            f"input {port.name!r} is {array.dtype}, the model takes {expected}"
        ) from None
    wrong = []
    if expected.dtype is not DType.UNDEFINED and given is not expected.dtype:
        wrong = [f"is {given}"]
    wrong += [] if fits else [f"has shape {list(array.shape)}"]
    if wrong:
        raise InputError(f"input {port.name!r} {' and '.join(wrong)}, the model takes {expected}")
    return array


def _as_array(value: Value) -> np.ndarray:
    """The value as an array; in its own memory where it offers that by DLPack."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    # A parameter of PyTorch is handed out only without its gradient.
    return np.from_dlpack(value.detach() if hasattr(value, "detach") else value)


def _fits(dims: Sequence[Dim], shape: Sequence[int]) -> bool:
    return len(dims) == len(shape) and all(
        not isinstance(dim, int) or dim == got for dim, got in zip(dims, shape, strict=True)
    )
