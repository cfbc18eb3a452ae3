"""Which source operators a file has and which of them each of its operators stems from.

Without tables the file is the first one: its operators are the source operators, numbered in file
order through all subgraphs, so that numbers of different subgraphs are different. An operator is
named after its first output, `(noname)` where the file gives that no name. In terms of luci-profile
an operator of subgraph 0 has the source id it has there, its position; ours is one more.

With luci's tables (`ONE_source_table` and `ONE_op_table`, both with entries) the source operators
are those of the source table, in ascending order of their ids, under the names it has, the second
of a name as `name#2`; `graph.metadata[SOURCE_IDS]` keeps the ids. Their types are not in the
tables: they are those of operators that stem from one source alone. Keys of the op table are
positions of operators, those of later subgraphs counted on from the ones before. An operator that
the op table leaves out becomes a source operator of its own with a new number: luci gives it its
position, which may be the id of another.

A file that whence wrote also says what kind each source operator was, what became of those that are
gone, and which of those that an operator stems from are only in its constants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from whence.errors import ModelError
from whence.frontends.importer import OperatorOrigin
from whence.frontends.naming import UniqueNames
from whence.frontends.origin_metadata import (
    EARLIER_TOOL,
    FOLDED,
    HISTORY,
    SOURCES,
    TOMBSTONES,
    HistoryEntry,
    read_folded,
    read_history,
    read_sources,
    read_tombstones,
)
from whence.frontends.tflite.records import ModelRecord, OperatorRecord, SubgraphRecord
from whence.provenance import NO_ORIGIN, Reason, SourceOp, Tombstone
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE, LuciTables, origins, read_tables

NO_NAME = "(noname)"
UNKNOWN = "?"
"""The type of a source operator of which only the name is known."""
SOURCE_IDS = "luci.source_ids"
SOURCE_NAMES = "luci.source_names"


@dataclass(frozen=True, slots=True)
class TfliteSources:
    """The source operators of a file, and the places of its operators by subgraph and position."""

    operators: Sequence[SourceOp]
    places: Sequence[Sequence[OperatorOrigin]]
    tombstones: Sequence[Tombstone]
    luci_ids: Sequence[int] | None
    """The ids that luci's tables have for the first of the operators; `None` without tables."""
    notes: tuple[str, ...]
    luci_names: Sequence[str] = ()
    """The names in tables beside those ids, where one is not text or is there twice."""
    history: Mapping[int, HistoryEntry] = field(default_factory=dict)
    """How operators of the first file became part of others, where the file says so."""


def find_sources(model: ModelRecord) -> TfliteSources:
    tables = read_tables(model.metadata)
    by_operator = origins(tables.sources, tables.ops)
    # Without tables, the file is the first one.
    ids = sorted(tables.sources) if by_operator else []
    own = dict(model.metadata) if by_operator else {}
    number_of = {luci: number for number, luci in enumerate(ids, 1)}
    names = UniqueNames()
    operators = _named(tables, ids, names, own.get(SOURCES))
    n_first = len(operators)
    stones = (
        read_tombstones(_text(own[TOMBSTONES], TOMBSTONES), n_first) if TOMBSTONES in own else []
    )
    history = read_history(_text(own[HISTORY], HISTORY), n_first) if HISTORY in own else {}
    n_operators = sum(len(subgraph.operators) for subgraph in model.subgraphs)
    folded = read_folded(_text(own[FOLDED], FOLDED), n_operators, n_first) if FOLDED in own else {}
    places: list[list[OperatorOrigin]] = []
    stemming: dict[int, list[_Stemming]] = {}
    position = 0
    for index, subgraph in enumerate(model.subgraphs):
        places.append([])
        for operator in subgraph.operators:
            name = node_name(subgraph, operator)
            listed = by_operator.get(position)
            if listed is None:
                number, name = len(operators) + 1, names.take(name)
                operators.append(_source(number, name, index, subgraph, operator, len(places[-1])))
                places[-1].append(OperatorOrigin(name, number, frozenset((number,))))
            else:
                origin = frozenset(number_of[luci] for luci in listed)
                found = _Stemming(operator.name, name, len(places[-1]), len(origin) == 1)
                for source in origin:
                    stemming.setdefault(source, []).append(found)
                places[-1].append(
                    OperatorOrigin(name, 0, origin, origin & folded.get(position, NO_ORIGIN))
                )
            position += 1
    operators[:n_first] = [
        replace(
            source,
            op=_type_of(source, stemming.get(source.id, ())),
            positions=tuple(each.position for each in stemming.get(source.id, ())),
            table_id=luci,
        )
        for source, luci in zip(operators, ids, strict=False)
    ]
    if any(key >= n_operators for key in by_operator):
        raise ModelError(
            f"{OP_TABLE.name} lists operator {max(by_operator)}, the file has {n_operators}"
        )
    written = [tables.sources[luci] for luci in ids]
    as_they_are = (
        ()
        if all(source.name == name for source, name in zip(operators, written, strict=False))
        else written
    )
    return TfliteSources(
        operators,
        places,
        [*stones, *_dropped(n_first, places, stones)],
        ids or None,
        tables.notes,
        as_they_are,
        history,
    )


def metadata_of(sources: TfliteSources) -> dict[str, str]:
    """What the graph keeps of the tables, for the writer."""
    found = {}
    if sources.luci_ids is not None:
        found[SOURCE_IDS] = json.dumps(list(sources.luci_ids), separators=(",", ":"))
    if sources.luci_names:
        found[SOURCE_NAMES] = json.dumps(list(sources.luci_names))
    return found


def node_name(subgraph: SubgraphRecord, operator: OperatorRecord) -> str:
    """The name of an operator: that of its first output."""
    outputs = [index for index in operator.outputs if index >= 0]
    return (subgraph.tensors[outputs[0]].name if outputs else "") or NO_NAME


def _named(
    tables: LuciTables, ids: Sequence[int], names: UniqueNames, kinds: bytes | None
) -> list[SourceOp]:
    """The source operators of the tables, with what whence wrote of them beside the tables when it
    did. In the tables two may have one name.
    """
    known = read_sources(_text(kinds, SOURCES)) if kinds is not None else []
    written = [_printable(tables.sources[luci]) for luci in ids]
    unique = [names.take(name) for name in written]
    if len(known) == len(ids) and all(
        source.name in (first, second)
        for source, first, second in zip(known, unique, written, strict=True)
    ):
        return [replace(source, name=name) for source, name in zip(known, unique, strict=True)]
    return [SourceOp(number, name, UNKNOWN) for number, name in enumerate(unique, 1)]


class _Stemming(NamedTuple):
    """An operator of the file that stems from a source operator."""

    op: str
    name: str
    position: int
    alone: bool
    """Does it stem from no other?"""


def _type_of(source: SourceOp, stemming: Sequence[_Stemming]) -> str:
    """The tables have no types. What an operator that stems from this source alone is, the source
    was: if there are several, the one that still has its name.
    """
    if source.op != UNKNOWN:
        return source.op
    types = {each.op for each in stemming if each.alone}
    if len(types) > 1:
        types = {each.op for each in stemming if each.alone and each.name == source.name}
    return types.pop() if len(types) == 1 else UNKNOWN


def _dropped(
    n_first: int, places: Sequence[Sequence[OperatorOrigin]], stones: Sequence[Tombstone]
) -> list[Tombstone]:
    """A stone for source operators that no operator of the file stems from and nothing explains:
    the tool that wrote the file had removed them.
    """
    present = {number for row in places for place in row for number in place.origin}
    explained = {number for stone in stones for number in stone.origin}
    missing = frozenset(range(1, n_first + 1)) - present - explained
    rule = f"in {SOURCE_TABLE.name}, but no operator of this file stems from it"
    return [Tombstone(0, missing, Reason.EARLIER, EARLIER_TOOL, rule)] if missing else []


def _source(
    number: int,
    name: str,
    index: int,
    subgraph: SubgraphRecord,
    operator: OperatorRecord,
    position: int,
) -> SourceOp:
    outputs = tuple(subgraph.tensors[tensor].name for tensor in operator.outputs if tensor >= 0)
    scope = "" if index == 0 else subgraph.name or f"subgraph_{index}"
    return SourceOp(
        number, name, operator.name, scope=scope, outputs=outputs, positions=(position,)
    )


def _printable(name: str) -> str:
    """A name of the tables without the lone surrogates that stand for bytes which are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(payload: bytes, key: str) -> str:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"metadata '{key}' is not UTF-8 text") from None
