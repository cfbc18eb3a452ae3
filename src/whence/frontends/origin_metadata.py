"""Origins inside files: what whence writes into a model's metadata, and how it is read back.

The model carries the operators of the first file and the tombstones; each node carries the numbers
of the operators it came from. Formats whose nodes have no metadata have lists of it by position
instead. So a chain of optimise, save, quantise, save, profile still answers in terms of the file it
began with.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.provenance import Edge, EdgeKind, Origin, Reason, SourceOp, Tombstone, union_of

_Entry = TypeVar("_Entry")

SOURCES = "whence.sources"
TOMBSTONES = "whence.tombstones"
ORIGIN = "whence.origin"
FOLDED = "whence.folded"
HISTORY = "whence.history"
LOAD = "load"
"""What readers sign the ledger with."""
EARLIER_TOOL = "an earlier tool"
"""Who removed what a file lists as its source and has no operator for."""


class OriginMetadata(NamedTuple):
    """What a node of a file says about where it came from."""

    origin: Origin
    folded: Origin
    """The part of the origin that left no run-time work in the node."""


def read_origin_metadata(
    metadata: Mapping[str, str], n_sources: int, owner: str
) -> OriginMetadata | None:
    """What a node carries, or `None` when it was not written by whence."""
    if ORIGIN not in metadata:
        return None
    origin = _ids(metadata[ORIGIN], ORIGIN, n_sources, owner)
    folded = _ids(metadata[FOLDED], FOLDED, n_sources, owner) if FOLDED in metadata else frozenset()
    return OriginMetadata(origin, folded & origin)


def write_origin_metadata(origin: Origin, folded: Origin) -> dict[str, str]:
    entries = {ORIGIN: _json(sorted(origin))}
    if folded:
        entries[FOLDED] = _json(sorted(folded))
    return entries


def merged_origins(parts: Iterable[OriginMetadata]) -> OriginMetadata:
    """What carries all of them: what leaves work in one of them leaves work in the whole."""
    parts = list(parts)
    origin = union_of(part.origin for part in parts)
    return OriginMetadata(origin, origin - union_of(part.origin - part.folded for part in parts))


def read_folded(text: str, n_operators: int, n_sources: int) -> dict[int, Origin]:
    """By position of an operator: the source operators that left no run-time work in it."""

    def entry(row: Any) -> tuple[int, Origin]:
        position, ids = row
        if type(position) is not int or not 0 <= position < n_operators:
            raise ValueError
        return position, _checked(ids, n_sources)

    return dict(read_entries(text, FOLDED, entry))


def write_folded(folded: Mapping[int, Origin]) -> str:
    rows = [[position, sorted(origin)] for position, origin in sorted(folded.items()) if origin]
    return _json(rows)


class HistoryEntry(NamedTuple):
    """How a source operator first became part of something else: what a later reader of the file
    would otherwise not know.
    """

    kind: EdgeKind
    pass_name: str
    rule: str


def read_history(text: str, n_sources: int) -> dict[int, HistoryEntry]:
    def entry(row: Any) -> tuple[int, HistoryEntry]:
        source, kind, pass_name, rule = row
        _checked([source], n_sources)
        return source, HistoryEntry(EdgeKind(kind), _text(pass_name), _text(rule))

    return dict(read_entries(text, HISTORY, entry))


def write_history(edges: Iterable[Edge], n_sources: int) -> str:
    first: dict[int, Edge] = {}
    for edge in edges:
        if (
            edge.parent <= n_sources
            and edge.child != edge.parent
            and edge.kind is not EdgeKind.INSERT
        ):
            known = first.setdefault(edge.parent, edge)
            # That a reader restated an operator is no news for the next one, which does the same.
            if known.pass_name == LOAD and edge.pass_name != LOAD:
                first[edge.parent] = edge
    rows = [
        [source, str(edge.kind), edge.pass_name, edge.rule]
        for source, edge in sorted(first.items())
    ]
    return _json(rows)


def read_sources(text: str) -> list[SourceOp]:
    numbers = itertools.count(1)

    def entry(row: Any) -> SourceOp:
        stated, *texts, outputs = row
        number = next(numbers)
        if stated != number or not isinstance(outputs, list):
            raise ValueError
        name, op, scope, module, line, stack = map(_text, texts)
        return SourceOp(number, name, op, scope, module, line, stack, tuple(map(_text, outputs)))

    return read_entries(text, SOURCES, entry)


def write_sources(sources: Iterable[SourceOp]) -> str:
    rows = [
        [s.id, s.name, s.op, s.scope, s.module, s.line, s.stack, list(s.outputs)] for s in sources
    ]
    return _json(rows)


def read_tombstones(text: str, n_sources: int) -> list[Tombstone]:
    def entry(row: Any) -> Tombstone:
        origin, reason, pass_name, rule = row
        ids = _checked(origin, n_sources)
        return Tombstone(0, ids, Reason(reason), _text(pass_name), _text(rule), None)

    return read_entries(text, TOMBSTONES, entry)


def write_tombstones(stones: Iterable[Tombstone]) -> str:
    rows = [
        [sorted(stone.origin), str(stone.reason), stone.pass_name, stone.rule]
        for stone in stones
        if stone.origin
    ]
    return _json(rows)


def read_entries(text: str, key: str, entry: Callable[[Any], _Entry]) -> list[_Entry]:
    """What `entry` makes of each entry of a list in a file's metadata; it raises a `TypeError` or
    `ValueError` for one that is malformed.
    """
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(f"metadata '{key}' is not JSON") from None
    if not isinstance(rows, list):
        raise ModelError(f"metadata '{key}' should be a list")
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(entry(row))
        except (TypeError, ValueError):
            raise ModelError(f"metadata '{key}' is malformed at entry {number}") from None
    return found


def _text(value: object) -> str:
    """A text that can be printed: JSON has lone surrogates, which no encoding takes."""
    if not isinstance(value, str):
        raise TypeError
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _json(rows: list[Any]) -> str:
    return json.dumps(rows, separators=(",", ":"))


def _ids(text: str, key: str, n_sources: int, owner: str) -> Origin:
    try:
        return _checked(json.loads(text), n_sources)
    except (TypeError, ValueError, RecursionError):
        raise ModelError(
            f"operator {quoted(owner)}: metadata '{key}' should be a list of numbers from 1 to"
            f" {n_sources}"
        ) from None


def _checked(ids: object, n_sources: int) -> Origin:
    if not isinstance(ids, list) or not all(
        type(number) is int and 1 <= number <= n_sources for number in ids
    ):
        raise ValueError
    return frozenset(ids)
