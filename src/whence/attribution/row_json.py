"""The rows of a profile as they stand in `profile.json`, and back.

A row's fields are written under their names; fields of an older whence that are missing have their
defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from whence.attribution.rows import Band, Distribution, KernelRow, Part, SourceRow

_Row = TypeVar("_Row", SourceRow, KernelRow)
_KEYS = {"band": "band_ns", "distribution": "distribution_ns", "blocks": "blocks_ns"}
"""Times whose keys say so, where their names do not."""
_DERIVED = ("gflops", "gbytes", "of_peak")
"""What a kernel's fields tell, for those who read the file without whence."""


def encode_source(row: SourceRow) -> dict[str, Any]:
    return _fields(row)


def encode_kernel(row: KernelRow) -> dict[str, Any]:
    origin = [part._asdict() for part in row.origin]
    return {
        **_fields(row),
        "origin": origin,
        **{name: getattr(row, name) for name in _DERIVED},
    }


def decode_source(content: Mapping[str, Any]) -> SourceRow:
    return _decoded(SourceRow, content)


def decode_kernel(content: Mapping[str, Any]) -> KernelRow:
    return _decoded(KernelRow, content)


def _fields(row: SourceRow | KernelRow) -> dict[str, Any]:
    values = ((each.name, getattr(row, each.name)) for each in dataclasses.fields(row))
    return {
        _KEYS.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in values
    }


def _decoded(kind: type[_Row], content: Mapping[str, Any]) -> _Row:
    found = {}
    for each in dataclasses.fields(kind):
        key = _KEYS.get(each.name, each.name)
        if key in content or each.default is dataclasses.MISSING:
            found[each.name] = _READERS[str(each.type)](content[key])
    return kind(**found)


def _part(content: Mapping[str, Any]) -> Part:
    return Part(
        int(content["id"]),
        float(content["weight"]),
        int(content.get("time_ns", 0)),
        int(content.get("inserted_ns", 0)),
    )


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "int | None": lambda value: None if value is None else int(value),
    "tuple[int, ...]": lambda value: tuple(map(int, value)),
    "tuple[int, ...] | None": lambda value: None if value is None else tuple(map(int, value)),
    "tuple[str, ...]": lambda value: tuple(map(str, value)),
    "tuple[Part, ...]": lambda value: tuple(map(_part, value)),
    "Band": lambda value: Band(*map(int, value)),
    "Distribution": lambda value: Distribution(*map(int, value)),
}
"""By the type of a field: a file may be damaged."""
