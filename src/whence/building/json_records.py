"""Records (dataclasses and named tuples) as JSON has them, and back.

A dataclass is an object with the names of its fields, or with the key that `in_json` gives one; a
named tuple is a list. Both forms are read for either. Fields that do not count in comparisons are
not part of it, and those that an older whence did not write have their defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

_Record = TypeVar("_Record")
_KEY = "key in JSON"
_PLAIN = (int, float, str)
MISREAD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What content raises that is no such record."""


def in_json(key: str) -> dict[str, str]:
    """The metadata of a field that has another name in JSON."""
    return {_KEY: key}


def encoded(value: Any) -> Any:
    """A record, or anything made of records, in objects and lists."""
    if dataclasses.is_dataclass(value):
        return {
            each.metadata.get(_KEY, each.name): encoded(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.compare
        }
    if isinstance(value, Mapping):
        return {key: encoded(each) for key, each in value.items()}
    if isinstance(value, tuple):
        # Rows of a large profile have long lists of numbers.
        return [*value] if value and type(value[0]) in _PLAIN else [encoded(e) for e in value]
    return value


def decoded(kind: type[_Record], content: Any) -> _Record:
    """The record in content that may be damaged: raises one of `MISREAD` where it is none."""
    hint: Any = kind
    found: _Record = _reader(hint)(content)
    return found


class _Field(NamedTuple):
    name: str
    key: str
    read: Callable[[Any], Any]
    is_required: bool


@functools.cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What reads a value of this type."""
    args = get_args(hint)
    if get_origin(hint) is types.UnionType:
        inner = _reader(args[0])
        return lambda content: None if content is None else inner(content)
    if get_origin(hint) is tuple:
        readers = [_reader(each) for each in args if each is not ...]
        if ... in args:
            return lambda content: tuple(map(readers[0], content))
        return lambda content: tuple(
            read(each) for read, each in zip(readers, content, strict=True)
        )
    if get_origin(hint) is not None:
        key, value = map(_reader, args)
        return lambda content: {key(name): value(each) for name, each in content.items()}
    if not dataclasses.is_dataclass(hint) and not hasattr(hint, "_fields"):
        scalar: Callable[[Any], Any] = hint
        return scalar
    fields = _fields(hint)

    def record(content: Any) -> Any:
        if not isinstance(content, Mapping):
            content = dict(zip((field.key for field in fields), content, strict=False))
        return hint(
            **{
                field.name: field.read(content[field.key])
                for field in fields
                if field.is_required or field.key in content
            }
        )

    return record


def _fields(kind: Any) -> list[_Field]:
    hints = get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        optional = kind._field_defaults
        return [_Field(name, name, _reader(hints[name]), name not in optional) for name in hints]
    return [
        _Field(
            each.name,
            each.metadata.get(_KEY, each.name),
            _reader(hints[each.name]),
            each.default is each.default_factory is dataclasses.MISSING,
        )
        for each in dataclasses.fields(kind)
        if each.compare
    ]
