"""Kernels as functions of C that stand by themselves, and the objects that hold them.

An object is found by the text of any function in it, whichever model it was compiled for: a second
model of a family compiles only what the first did not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from whence.codegen.cache import Cache

# A compiler that is started has a header to read first, which takes as long as so many lines do.
_LINES_WORTH_A_START = 300
# Batches for each of the compilers that run at a time: one that was estimated wrongly is then not
# waited for alone.
_BATCHES_PER_JOB = 2
_COMMENTS = re.compile(r"\A(?:/\*[^\n]*\*/\n)+")


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """One kernel as text, of C or of another language. Functions with one symbol have one body,
    whichever models they come from.
    """

    symbol: str
    text: str
    calls: tuple[KernelFunction, ...] = ()
    """Further functions that it needs, which other kernels may share."""

    @property
    def whole_text(self) -> str:
        """The functions that it calls, and itself."""
        return "\n".join(each.text for each in (*self.calls, self))

    @property
    def code(self) -> str:
        """The text without the comments it opens with, which name the layers it serves."""
        return _COMMENTS.sub("", self.text)


@dataclass(frozen=True, slots=True)
class FoundObjects:
    """What was compiled before, and what was not."""

    objects: tuple[Path, ...]
    missing: tuple[KernelFunction, ...]


class _ObjectRecord(NamedTuple):
    """An object in the cache: the symbols of its functions, and of those in other objects that they
    call.
    """

    key: str
    has: frozenset[str]
    calls: frozenset[str]


class FunctionObjects:
    """Objects in a cache by the functions in them. `key_of` gives the key of a function's text."""

    def __init__(self, cache: Cache, key_of: Callable[[str], str]) -> None:
        self._cache, self._key_of = cache, key_of

    def key(self, function: KernelFunction) -> str:
        return self._key_of(function.code)

    def find(self, functions: Iterable[KernelFunction]) -> FoundObjects:
        """Objects that together have as many of the functions as can be had without having one of
        them twice, and without calling any that is not among them: the linker would refuse that.
        """
        asked = {function.symbol: function for function in functions}
        objects: dict[str, Path] = {}
        missing: list[KernelFunction] = []
        taken: set[str] = set()
        for function in asked.values():
            if function.symbol in taken:
                continue
            found = self._entry(function)
            if found is not None and not taken & found.has and found.calls <= asked.keys():
                path = self._cache.get(found.key)
                if path is not None:
                    objects[found.key] = path
                    taken |= found.has
                    continue
            missing.append(function)
            taken.add(function.symbol)
        return FoundObjects(tuple(objects.values()), tuple(missing))

    def note(self, object_key: str, functions: Sequence[KernelFunction]) -> None:
        """The object under this key has exactly these functions."""
        has = [each.symbol for each in functions]
        calls = {call.symbol for each in functions for call in each.calls}.difference(has)
        record = json.dumps([object_key, has, sorted(calls)]).encode()
        for each in functions:
            self._cache.put(self.key(each), record)

    def _entry(self, function: KernelFunction) -> _ObjectRecord | None:
        path = self._cache.get(self.key(function))
        try:
            key, has, calls = json.loads(path.read_bytes()) if path is not None else ("", [], [])
        except (OSError, ValueError, TypeError):
            return None  # pruned just now, or not ours
        if function.symbol not in has:
            return None
        return _ObjectRecord(str(key), frozenset(has), frozenset(calls))


def batches(
    functions: Sequence[KernelFunction], jobs: int, *, per_job: int = _BATCHES_PER_JOB
) -> list[list[KernelFunction]]:
    """The functions in as many parts as are worth starting a compiler for, about as long as each
    other, and not more than so many for each of the compilers that run at a time.
    """
    lines: Mapping[str, int] = {each.symbol: each.text.count("\n") for each in functions}
    worth = -(-sum(lines.values()) // _LINES_WORTH_A_START)
    parts: list[list[KernelFunction]] = [[] for _ in range(min(worth, jobs * per_job))]
    lengths = [0] * len(parts)
    for each in sorted(functions, key=lambda each: -lines[each.symbol]):
        shortest = lengths.index(min(lengths))
        parts[shortest].append(each)
        lengths[shortest] += lines[each.symbol]
    return [part for part in parts if part]
