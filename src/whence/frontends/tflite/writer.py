"""Writing a graph as a TFLite or Circle file that carries its origins.

| in the metadata          | what                                                                                     |
|--------------------------|------------------------------------------------------------------------------------------|
| `ONE_source_table`       | the operators of the first file, by luci's ids                                           |
| `ONE_op_table`           | for each operator of this file, counted through all subgraphs, those it came from        |
| `whence.sources` etc.    | their types, what became of those that are gone, and which of those an operator came     |
|                          | from are only in its constants; the tables have no place for that                        |

The tables come first and in this order, as luci writes them. An operator whose work is in constants
only, or that this format needs no operator for, is in the source table alone; a tombstone says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whence.errors import ModelError
from whence.frontends.files import writing
from whence.frontends.origin_metadata import (
    FOLDED,
    HISTORY,
    SOURCES,
    TOMBSTONES,
    write_folded,
    write_history,
    write_sources,
    write_tombstones,
)
from whence.frontends.tflite.export.graph_writer import GraphWriter
from whence.frontends.tflite.export.writing import Buffers, WrittenOperator
from whence.frontends.tflite.records import CIRCLE, TFLITE, VERSIONS, ModelRecord, SubgraphRecord
from whence.frontends.tflite.serialise import serialise
from whence.frontends.tflite.sources import SOURCE_IDS, SOURCE_NAMES
from whence.graph.graph import Graph
from whence.provenance import Reason, Tombstone, union_of
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE

_DESCRIPTION = "whence"
_PASS = "convert"
_Each = TypeVar("_Each")


def write_tflite(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write as TFLite; `UnsupportedError` names an operator that TFLite cannot express."""
    _write(graph, Path(path), TFLITE)


def write_circle(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write as Circle; `UnsupportedError` names an operator that Circle cannot express."""
    _write(graph, Path(path), CIRCLE)


def _write(graph: Graph, target: Path, form: str) -> None:
    data = serialise(to_records(graph, form))
    with writing(target):
        target.write_bytes(data)


def to_records(graph: Graph, form: str) -> ModelRecord:
    """The graph as the records of a file. The graph is left as it is."""
    # Loops are written by way of graphs of their own, which would be counted in the ledger.
    graph = graph.copy()
    buffers = Buffers()
    folded = graph.ledger.folded_origins()
    subgraphs: list[SubgraphRecord | None] = [None]
    written: list[list[WrittenOperator]] = [[]]

    def write(inner: Graph, name: str, number: int) -> None:
        writer = GraphWriter(inner, buffers, form, nested, folded)
        subgraphs[number] = writer.write(name, is_main=number == 0)
        written[number] = writer.subgraph.operators

    def nested(inner: Graph, name: str) -> int:
        number = len(subgraphs)
        subgraphs.append(None)
        written.append([])
        write(inner, name, number)
        return number

    write(graph, graph.name or "main", 0)
    return ModelRecord(
        format=form,
        version=VERSIONS[form],
        description=graph.metadata.get(f"{form}.description") or _DESCRIPTION,
        subgraphs=tuple(each for each in subgraphs if each is not None),
        buffers=tuple(buffers.arrays),
        metadata=_metadata(graph, [operator for each in written for operator in each]),
        signatures=(),
    )


def _metadata(graph: Graph, written: Sequence[WrittenOperator]) -> tuple[tuple[str, bytes], ...]:
    ledger = graph.ledger
    ids = _luci_ids(graph)
    names = dict(zip(ids, _luci_names(graph), strict=True))
    origins = {
        position: operator.origins
        for position, operator in enumerate(written)
        if operator.origins.origin
    }
    source_ids = {
        position: frozenset(ids[source - 1] for source in each.origin)
        for position, each in origins.items()
    }
    stones = [*ledger.tombstones, *_unwritten(graph, written)]
    entries = [
        (SOURCE_TABLE.name, SOURCE_TABLE.encode(names)),
        (OP_TABLE.name, OP_TABLE.encode(source_ids)),
    ]
    texts = [
        (SOURCES, write_sources(ledger.sources)),
        (TOMBSTONES, write_tombstones(stones)),
        (HISTORY, write_history(ledger.edges, ledger.n_sources)),
        (FOLDED, write_folded({position: each.folded for position, each in origins.items()})),
    ]
    return (*entries, *((key, text.encode("utf-8", "surrogatepass")) for key, text in texts))


def _luci_ids(graph: Graph) -> list[int]:
    """The id that luci's tables have for each source operator: its position, or the one that the
    file it was read from had for it.
    """
    count = graph.ledger.n_sources
    known = _listed(graph, SOURCE_IDS, int, "numbers")
    if known is None:
        return list(range(count))
    # Operators that the tables left out were numbered after those in them.
    following = max(known, default=-1) + 1
    return [*known[:count], *range(following, following + count - len(known))]


def _luci_names(graph: Graph) -> list[str]:
    """The name of each source operator, byte for byte as in the tables it was read from."""
    names = [source.name for source in graph.ledger.sources]
    known = _listed(graph, SOURCE_NAMES, str, "names") or []
    return [*known, *names[len(known) :]]


def _listed(graph: Graph, key: str, kind: Callable[[Any], _Each], what: str) -> list[_Each] | None:
    """A list that the graph's metadata hold as text."""
    text = graph.metadata.get(key)
    if text is None:
        return None
    try:
        return [kind(each) for each in json.loads(text)]
    except (TypeError, ValueError):
        raise ModelError(f"metadata '{key}' is not a list of {what}") from None


def _unwritten(graph: Graph, written: Sequence[WrittenOperator]) -> list[Tombstone]:
    """Stones for source operators that are in the graph but in no operator of the file."""
    ledger = graph.ledger
    present = union_of(operator.origins.origin for operator in written)
    explained = union_of(stone.origin for stone in ledger.tombstones)
    folded, plain = set[int](), set[int]()
    for inner in graph.nested():
        for node in inner:
            (folded if node.is_const else plain).update(node.origin)
    copies = frozenset(plain) - present - explained
    constants = frozenset(folded) - present - explained - copies
    found = (
        Tombstone(0, constants, Reason.FOLDED, _PASS, "its work is in constants of the file"),
        Tombstone(0, copies, Reason.IDENTITY, _PASS, "the format needs no operator for it"),
    )
    return [stone for stone in found if stone.origin]
