"""Tables that are divided over the files of a folder, one for each family of operators."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any


def tables(package: str, path: Iterable[str], name: str) -> Iterator[Any]:
    """The tables of this name in the files of a package, in the order of the files' names."""
    for module in pkgutil.iter_modules(path, f"{package}."):
        table = getattr(importlib.import_module(module.name), name, None)
        if table is not None:
            yield table


def joined(package: str, path: Iterable[str], name: str) -> Mapping[str, Any]:
    """Those tables as one; an operator that two of them have is a mistake."""
    found: dict[str, Any] = {}
    for table in tables(package, path, name):
        twice = sorted(found.keys() & table.keys())
        if twice:
            raise ValueError(f"{package} has {', '.join(twice)} twice in its tables {name}")
        found.update(table)
    return MappingProxyType(found)
