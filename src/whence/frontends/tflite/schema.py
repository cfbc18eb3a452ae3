"""Checked reading of the flatbuffers that TFLite and Circle files are, through the classes of their
schema packages.

A model file is untrusted. Three things keep a hostile one from doing harm:

1. every table's vtable must lie inside the file, every vector's length must fit in it;
2. all reading together may cost only a fixed multiple of the file's size, so that a thousand
   vectors which are one and the same long vector do not cost a thousand times its length;
3. whatever else goes wrong in the generated classes ends as one `ModelError` (see
   `records.read_records`).
"""

from __future__ import annotations

import functools
import importlib
import re
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from whence.errors import ModelError

Option: TypeAlias = (
    "int | float | bool | str | tuple[int, ...] | tuple[float, ...] | Mapping[str, Any] | None"
)
Options: TypeAlias = Mapping[str, Option]

_SOFFSET = struct.Struct("<i")
_VOFFSET = struct.Struct("<H")
# An honest file pays at most 4 for each of its bytes: a table takes 8 bytes at least, offset and
# vtable link, and costs 16.
_TABLE_COST = 16
_COST_PER_BYTE = 16
_FREE = 1 << 16
FAULTS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    struct.error,
)
"""How the classes of flatbuffers fail where the bytes that they read claim nonsense."""
_NOT_FIELDS = re.compile(r"Init|GetRootAs\w*|\w+BufferHasIdentifier|\w+(AsNumpy|Length|IsNone)")


class SchemaReader:
    """Reads tables of one file. Fields are named as the generated classes name them; absent vectors
    are empty, absent tables `None`.
    """

    def __init__(self, data: bytes, package: str) -> None:
        self._data = data
        self._package = package
        self._left = _COST_PER_BYTE * len(data) + _FREE

    def root(self) -> Any:
        return self._checked(schema_class(self._package, "Model").GetRootAs(self._data, 0))

    def names(self, enum: str) -> Mapping[int, str]:
        """What the schema calls the numbers of an enum."""
        return enum_names(self._package, enum)

    def table(self, owner: Any, field: str) -> Any | None:
        found = getattr(owner, field)()
        return None if found is None else self._checked(found)

    def tables(self, owner: Any, field: str) -> list[Any]:
        count, get = int(getattr(owner, f"{field}Length")()), getattr(owner, field)
        if count * 4 > len(self._data):
            raise ModelError(f"its {field.lower()} claim {count} entries, more than the file holds")
        return [self._checked(get(index)) for index in range(count)]

    def array(self, owner: Any, field: str) -> np.ndarray:
        """A vector of numbers, as a read-only view of the file."""
        found = getattr(owner, f"{field}AsNumpy")()
        if not isinstance(found, np.ndarray):
            return np.empty(0, np.uint8)
        self._spend(found.nbytes)
        return found

    def stored(self, owner: Any, field: str, offset: int, size: int, what: str) -> np.ndarray:
        """A vector of bytes. In files beyond 2 GB it stands after the flatbuffer, from `offset` on;
        0 and 1 mean that it does not.
        """
        if offset <= 1 or size <= 1:
            return self.array(owner, field)
        if offset + size > len(self._data):
            raise ModelError(
                f"{what} said to be bytes {offset} to {offset + size} of {len(self._data)}"
            )
        return np.frombuffer(self._data, np.uint8, size, offset)

    def copy(self, array: np.ndarray) -> bytes:
        """The bytes of an array that many may share."""
        self._spend(array.nbytes)
        return array.tobytes()

    def ints(self, owner: Any, field: str) -> tuple[int, ...]:
        return tuple(self.array(owner, field).tolist())

    def text(self, owner: Any, field: str) -> str:
        """A string; bytes that are not UTF-8 stand as `\\xff`, so that it can be printed."""
        found = getattr(owner, field)()
        if not found:
            return ""
        self._spend(len(found))
        return str(found.decode("utf-8", "backslashreplace"))

    def union(self, owner: Any, field: str, enum: str) -> Any | None:
        """The table that a union field holds."""
        kind = getattr(owner, f"{field}Type")()
        if kind == 0:
            return None
        name = self.names(enum).get(kind)
        if name is None:
            raise ModelError(f"its {field} of kind {kind} are not in the schema")
        found = getattr(owner, field)()
        if found is None:
            return None
        table = schema_class(self._package, name)()
        table.Init(found.Bytes, found.Pos)
        return self._checked(table)

    def members(self, table: Any) -> Options:
        """Every field of a table, by its name in the schema."""
        cls: Any = type(table)
        return MappingProxyType(
            {snake: self._field(table, field, repeated) for field, snake, repeated in _fields(cls)}
        )

    def _field(self, table: Any, field: str, repeated: bool) -> Option:
        if repeated and hasattr(table, f"{field}AsNumpy"):
            return self.ints(table, field)
        if repeated:
            return None
        value = getattr(table, field)()
        if isinstance(value, bytes):
            return self.text(table, field)
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.members(self._checked(value)) if hasattr(type(value), "Init") else None

    def _checked(self, table: Any) -> Any:
        """The table, once its vtable is known to be inside the file."""
        self._spend(_TABLE_COST)
        data, position = self._data, table._tab.Pos
        if not 0 <= position <= len(data) - 4:
            raise ModelError(f"a table is said to be at byte {position} of {len(data)}")
        vtable = position - _SOFFSET.unpack_from(data, position)[0]
        if not 0 <= vtable <= len(data) - 4 or vtable + _VOFFSET.unpack_from(data, vtable)[0] > len(
            data
        ):
            raise ModelError(
                f"the table at byte {position} is described at byte {vtable}, outside the file"
            )
        return table

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise ModelError(
                "its tables refer to each other so often that reading it would not end in"
                " reasonable time"
            )


def schema_class(package: str, name: str) -> Any:
    """A class of the schema package, by its name in the schema."""
    return getattr(importlib.import_module(f"{package}.{name}"), name)


@functools.cache
def enum_names(package: str, enum: str) -> Mapping[int, str]:
    members = vars(schema_class(package, enum))
    return MappingProxyType(
        {
            number: name
            for name, number in members.items()
            if isinstance(number, int) and not name.startswith("_")
        }
    )


def activation_names() -> Mapping[int, str]:
    """What both schemas call the activations that operators may hold."""
    return enum_names("tflite", "ActivationFunctionType")


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, str, bool], ...]:
    """A table's fields: the accessor, the name in the schema, and whether it is a vector."""
    accessors = [
        name for name, value in vars(cls).items() if callable(value) and not name.startswith("_")
    ]
    return tuple(
        (name, _snake(name), f"{name}Length" in accessors)
        for name in accessors
        if not _NOT_FIELDS.fullmatch(name)
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
