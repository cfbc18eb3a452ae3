"""Options of custom operators, which are a FlexBuffer: names to numbers and lists of numbers."""

from __future__ import annotations

import struct

from flatbuffers import flexbuffers

from whence.frontends.tflite.mapping import OperatorCall

_MOST_BYTES = 1 << 16
_FAULTS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    struct.error,
    RecursionError,
    MemoryError,
)


class FlexibleOptions:
    """What a custom operator's options say. A wrong kind of value is the file's fault."""

    def __init__(self, call: OperatorCall) -> None:
        self._call = call
        data = call.record.custom_options
        if not 3 <= len(data) <= _MOST_BYTES:
            call.fail(f"its options have {len(data)} bytes")
        try:
            root = flexbuffers.GetRoot(data)
            self._entries = dict(root.AsMap.Value) if root.IsMap else {}
        # The package reads what the bytes claim, and fails in many ways when they claim nonsense.
        except _FAULTS as error:
            call.fail(f"its options are not to be read: {' '.join(str(error).split())[:160]}")

    def number(self, name: str, absent: float) -> float:
        value = self._entries.get(name, absent)
        if not isinstance(value, int | float):
            self._call.fail(f"its option {name} is not a number")
        return float(value)

    def integer(self, name: str, absent: int) -> int:
        value = self._entries.get(name, absent)
        if not isinstance(value, int):
            self._call.fail(f"its option {name} is not a whole number")
        return int(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._entries.get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(item, int) for item in value):
            self._call.fail(f"its option {name} is not a list of whole numbers")
        return tuple(int(item) for item in value)
