"""The history of a graph, read from its text (`whence.graph.printer`) into a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from whence.errors import WhenceError
from whence.graph.parse_nodes import NodeText, read_id, read_origin
from whence.graph.printer import PLAIN
from whence.graph.state import NOT_FROM_A_FILE
from whence.graph.tokens import TextLine, literal
from whence.provenance import Edge, EdgeKind, Ledger, Reason, SourceOp, Tombstone

_FIELDS = tuple(each.name for each in fields(SourceOp) if each.name not in PLAIN)
_PASS, _RULE = "text", "as written"


@dataclass(slots=True)
class HistoryText:
    """What the text says of a graph's past."""

    header: TextLine | None = None
    next_id: int = 0
    next_step: int = 1
    sources: dict[int, SourceOp] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)


def read_history_line(line: TextLine, history: HistoryText) -> None:
    opening = line.take()
    match opening.text:
        case "history":
            history.header = line
            line.expect("next")
            history.next_id = line.integer("an id")
            line.expect("step")
            history.next_step = line.integer("a number")
        case "source":
            source = _read_source(line)
            if source.id in history.sources:
                raise line.error(f"source operator {source.id} is given twice", opening)
            history.sources[source.id] = source
        case "edge":
            history.edges += _read_edges(line)
        case _:
            history.tombstones.append(_read_tombstone(line))
    line.finish()


def enter_history(
    history: HistoryText, entries: Sequence[NodeText], ids: Mapping[int | str, int]
) -> Ledger:
    """A ledger with this history, for nodes that are yet to be made."""
    ledger = Ledger()
    origins = {ids[entry.id]: (entry, _origin(entry, ids)) for entry in entries}
    own = {number: entry for number, (entry, origin) in origins.items() if origin == {number}}
    last = max([0, *history.sources, *(s for _, origin in origins.values() for s in origin)])
    for number in range(1, last + 1):
        source = history.sources.get(number)
        if source is None and number not in own:
            raise _missing(number, origins)
        if source is None:
            entry = own[number]
            name = entry.name or (entry.id if isinstance(entry.id, str) else "")
            source = SourceOp(number, name, entry.op)
        ledger.add_source(source)
    edges, next_id, next_step = history.edges, history.next_id, history.next_step
    first_free = max([last, *origins]) + 1
    if history.header is None:
        edges, next_id = _as_written(origins), first_free
        next_step = 2 if edges else 1
    elif next_id < first_free:
        raise history.header.error(f"id {first_free - 1} is taken; next is {first_free} or more")
    ledger.resume(edges, history.tombstones, next_id, next_step)
    return ledger


def _origin(entry: NodeText, ids: Mapping[int | str, int]) -> frozenset[int]:
    if isinstance(entry.id, str):
        named = entry.op not in NOT_FROM_A_FILE
        return frozenset((ids[entry.id],)) if named else frozenset()
    return entry.origin or frozenset()


def _missing(number: int, origins: Mapping[int, tuple[NodeText, frozenset[int]]]) -> WhenceError:
    for entry, origin in origins.values():
        if number in origin:
            return entry.error(
                f"source operator {number} is neither a node with from[{number}] nor in a line"
                f" 'source {number} OPERATOR NAME'"
            )
    return next(iter(origins.values()))[0].error(
        f"source operators are numbered without gaps, and there is none with number {number}"
    )


def _as_written(origins: Mapping[int, tuple[NodeText, frozenset[int]]]) -> list[Edge]:
    """One rewrite that gives every node the origins that the text claims."""
    found = []
    for number, (_, origin) in origins.items():
        kind = EdgeKind.COPY if len(origin) == 1 else EdgeKind.FUSE
        found += [
            Edge(number, source, kind, _PASS, _RULE, 1)
            for source in sorted(origin)
            if source != number
        ]
    return found


def _read_source(line: TextLine) -> SourceOp:
    number = line.integer("the number of a source operator")
    op, name = line.word("an operator"), line.word("a name")
    given: dict[str, Any] = {}
    while line.next.kind != "end":
        token = line.next
        key = line.word("a field of a source operator")
        if key not in _FIELDS:
            raise line.error(f"no field '{key}'; there are {', '.join(_FIELDS)}", token)
        line.expect("=")
        given[key] = _read_field(line)
    return SourceOp(number, name, op, **given)


def _read_field(line: TextLine) -> Any:
    if line.at("["):
        return tuple(line.listed("[]", lambda: _read_field(line)))
    if line.next.kind == "number":
        return line.integer("a number")
    return literal(line, line.taken("string", "text, a number or a list"))


def _read_edges(line: TextLine) -> list[Edge]:
    step = line.integer("the number of a rewrite")
    child = _number(line)
    line.expect("<-")
    parents: list[tuple[int, EdgeKind]] = []
    while not parents or line.skip(","):
        parent = _number(line)
        parents.append((parent, _choice(line, EdgeKind, "how it came from it")))
    pass_name, rule = _read_how(line)
    return [Edge(child, parent, kind, pass_name, rule, step) for parent, kind in parents]


def _read_tombstone(line: TextLine) -> Tombstone:
    node = _number(line)
    line.expect("from")
    origin = read_origin(line)
    reason = _choice(line, Reason, "the reason")
    into = _number(line) if line.skip("into") else None
    pass_name, rule = _read_how(line)
    return Tombstone(node, origin, reason, pass_name, rule, into)


def _read_how(line: TextLine) -> tuple[str, str]:
    line.expect("by")
    return line.word("a pass"), line.string("the rule, quoted")


def _number(line: TextLine) -> int:
    token = line.next
    name, _ = read_id(line)
    if not isinstance(name, int):
        raise line.error("a history has nodes by number", token)
    return name


def _choice(line: TextLine, kind: Any, wanted: str) -> Any:
    token = line.next
    text = line.word(wanted)
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(each) for each in kind)
        raise line.error(f"'{text}' is none of {known}", token) from None
