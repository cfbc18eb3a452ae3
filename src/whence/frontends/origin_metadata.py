"""Origins inside files: what whence writes into a model's metadata, and how it is read back.

The model carries the operators of the first file and the tombstones; each node carries the numbers
of the operators it came from. Formats whose nodes have no metadata have lists of it by position
instead. So a chain of optimise, save, quantise, save, profile still answers in terms of the file it
began with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.provenance import Edge, EdgeKind, Origin, Reason, SourceOp, Tombstone, union_of

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
    entries = {ORIGIN: json.dumps(sorted(origin), separators=(",", ":"))}
    if folded:
        entries[FOLDED] = json.dumps(sorted(folded), separators=(",", ":"))
    return entries


def merged_origins(parts: Iterable[OriginMetadata]) -> OriginMetadata:
    """What carries all of them: what leaves work in one of them leaves work in the whole."""
    parts = list(parts)
    origin = union_of(part.origin for part in parts)
    return OriginMetadata(origin, origin - union_of(part.origin - part.folded for part in parts))


def read_folded(text: str, n_operators: int, n_sources: int) -> dict[int, Origin]:
    """By position of an operator: the source operators that left no run-time work in it."""
    folded: dict[int, Origin] = {}
    for number, row in enumerate(_parse(text, FOLDED), 1):
        try:
            position, ids = row
            if type(position) is not int or not 0 <= position < n_operators:
                raise ValueError
            folded[position] = _checked(ids, n_sources)
        except (TypeError, ValueError):
            raise ModelError(f"metadata '{FOLDED}' is malformed at entry {number}") from None
    return folded


def write_folded(folded: Mapping[int, Origin]) -> str:
    rows = [[position, sorted(origin)] for position, origin in sorted(folded.items()) if origin]
    return json.dumps(rows, separators=(",", ":"))


class Passage(NamedTuple):
    """How a source operator first became part of something else: what a later reader of the file
    would otherwise not know.
    """

    kind: EdgeKind
    pass_name: str
    rule: str


def read_history(text: str, n_sources: int) -> dict[int, Passage]:
    history: dict[int, Passage] = {}
    for number, row in enumerate(_parse(text, HISTORY), 1):
        try:
            source, kind, pass_name, rule = row
            history.update(
                (each, Passage(EdgeKind(kind), str(pass_name), str(rule)))
                for each in _checked([source], n_sources)
            )
        except (TypeError, ValueError):
            raise ModelError(f"metadata '{HISTORY}' is malformed at entry {number}") from None
    return history


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
    return json.dumps(rows, separators=(",", ":"))


def read_sources(text: str) -> list[SourceOp]:
    rows = _parse(text, SOURCES)
    sources: list[SourceOp] = []
    for number, row in enumerate(rows, 1):
        if not (
            isinstance(row, list)
            and len(row) == 8
            and row[0] == number
            and all(isinstance(part, str) for part in row[1:7])
        ):
            raise ModelError(f"metadata '{SOURCES}' is malformed at entry {number}")
        outputs = row[7]
        if not (isinstance(outputs, list) and all(isinstance(name, str) for name in outputs)):
            raise ModelError(f"metadata '{SOURCES}' is malformed at entry {number}")
        name, op, scope, module, line, stack = row[1:7]
        sources.append(SourceOp(number, name, op, scope, module, line, stack, tuple(outputs)))
    return sources


def write_sources(sources: Iterable[SourceOp]) -> str:
    rows = [
        [s.id, s.name, s.op, s.scope, s.module, s.line, s.stack, list(s.outputs)] for s in sources
    ]
    return json.dumps(rows, separators=(",", ":"))


def read_tombstones(text: str, n_sources: int) -> list[Tombstone]:
    stones: list[Tombstone] = []
    for number, row in enumerate(_parse(text, TOMBSTONES), 1):
        try:
            origin, reason, pass_name, rule = row
            stones.append(
                Tombstone(
                    0, _checked(origin, n_sources), Reason(reason), str(pass_name), str(rule), None
                )
            )
        except (TypeError, ValueError):
            raise ModelError(f"metadata '{TOMBSTONES}' is malformed at entry {number}") from None
    return stones


def write_tombstones(stones: Iterable[Tombstone]) -> str:
    rows = [
        [sorted(stone.origin), str(stone.reason), stone.pass_name, stone.rule]
        for stone in stones
        if stone.origin
    ]
    return json.dumps(rows, separators=(",", ":"))


def _parse(text: str, key: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(f"metadata '{key}' is not JSON") from None
    if not isinstance(rows, list):
        raise ModelError(f"metadata '{key}' should be a list")
    return rows


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
