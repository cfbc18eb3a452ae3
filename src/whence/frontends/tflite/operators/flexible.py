"""Options of custom operators, which are a FlexBuffer: names to numbers and lists of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flatbuffers import flexbuffers

from whence.frontends.tflite.mapping import OperatorCall
from whence.frontends.tflite.schema import FAULTS

_MOST_BYTES = 1 << 16
_NUMBERS = (flexbuffers.Type.INT, flexbuffers.Type.UINT, flexbuffers.Type.FLOAT)


class FlexibleOptions:
    """What a custom operator's options say. A wrong kind of value is the file's fault."""

    def __init__(self, call: OperatorCall) -> None:
        self._call = call
        data = call.record.custom_options
        if not 3 <= len(data) <= _MOST_BYTES:
            call.fail(f"its options have {len(data)} bytes")
        with self._readable():
            root = flexbuffers.GetRoot(data)
            self._entries = root.AsMap if root.IsMap else {}

    def number(self, name: str, absent: float) -> float:
        value = self._value(name, absent)
        if not isinstance(value, int | float):
            self._call.fail(f"its option {name} is not a number")
        return float(value)

    def integer(self, name: str, absent: int) -> int:
        value = self._value(name, absent)
        if not isinstance(value, int):
            self._call.fail(f"its option {name} is not a whole number")
        return int(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            self._call.fail(f"its option {name} is not a list of whole numbers")
        return tuple(int(item) for item in value)

    def _value(self, name: str, absent: object) -> object:
        with self._readable():
            try:
                found = self._entries[name]
            except KeyError:
                return absent
            return _plain(found)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        # The package reads what the bytes claim, and fails in many ways when they claim nonsense.
        except (*FAULTS, RecursionError, MemoryError) as error:
            self._call.fail(f"its options are not to be read: {' '.join(str(error).split())[:160]}")


def _plain(found: flexbuffers.Ref) -> object:
    """A number, or a list of numbers. `None` stands for everything else, unread: lists of lists may
    hold one list so often that a few bytes are more than any memory.
    """
    if found.IsBool or found.IsNumeric:
        return found.Value
    if found.IsVector:
        return [each.Value if each.IsNumeric else None for each in found.AsVector]
    typed = (
        found.AsTypedVector
        if found.IsTypedVector
        else found.AsFixedTypedVector
        if found.IsFixedTypedVector
        else None
    )
    return typed.Value if typed is not None and typed.ElementType in _NUMBERS else None
