"""The lines of nodes, headers and nested graphs, read from text into records."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from whence.errors import TextError
from whence.graph.node import NodeFlag
from whence.graph.parse_values import Values
from whence.graph.tokens import TextLine
from whence.ops.definition import Attr
from whence.provenance import Origin
from whence.types import ValueType

_STEP = 2
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt\\])")
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_FLAGS = {(flag.name or "").lower(): flag for flag in NodeFlag}


@dataclass(slots=True)
class NodeText:
    """A node as the text has it."""

    id: int | str
    line: TextLine
    op: str = ""
    column: int = 1
    types: tuple[ValueType, ...] = ()
    inputs: tuple[tuple[int | str | None, int], ...] = ()
    value: np.ndarray | None = None
    attrs: dict[str, Attr] = field(default_factory=dict)
    flags: NodeFlag = NodeFlag.NONE
    origin: Origin | None = None
    name: str = ""
    bodies: dict[str, GraphText] = field(default_factory=dict)

    def error(self, message: str) -> TextError:
        return TextError(f"line {self.line.number}, column {self.column}: {message}")


@dataclass(slots=True)
class GraphText:
    """A graph as the text has it."""

    name: str = ""
    header: TextLine | None = None
    signature: dict[str, list[int | str]] = field(default_factory=dict)
    """The nodes that the header lists, by operator."""
    metadata: dict[str, str] = field(default_factory=dict)
    listed: list[tuple[str, ValueType]] = field(default_factory=list)
    claims: dict[int, tuple[ValueType | None, ...]] = field(default_factory=dict)
    entries: list[NodeText] = field(default_factory=list)


def read_block(lines: list[TextLine], values: Values, indent: int) -> GraphText:
    """The graph whose lines begin after so many blanks. `lines` are last first, and those that
    belong to it are taken off.
    """
    block = GraphText()
    seen: dict[int | str, TextLine] = {}
    while lines and lines[-1].indent == indent:
        line = lines.pop()
        match line.tokens[0].text:
            case "graph":
                _read_header(line, block)
            case "metadata":
                line.take()
                key = line.string("a quoted key")
                block.metadata[key] = line.string("a quoted value")
            case "listed":
                line.take()
                name = line.string("a quoted name")
                block.listed.append((name, values.type(line)))
            case "claim":
                line.take()
                number = read_id(line)[0]
                block.claims[int(number)] = _read_claim(line, values)
            case _:
                entry = _read_node(line, values)
                if entry.id in seen:
                    raise line.error(
                        f"%{entry.id} stands in line {seen[entry.id].number} already",
                        line.tokens[0],
                    )
                seen[entry.id] = line
                block.entries.append(entry)
                _read_bodies(lines, values, indent, entry)
        line.finish()
    return block


def read_id(line: TextLine) -> tuple[int | str, int]:
    """A node's number or name, and which of its outputs."""
    token = line.taken("node", "a node (%7)")
    name, _, index = token.text[1:].partition(".")
    return int(name) if name.isdigit() else name, int(index or 0)


def read_origin(line: TextLine) -> Origin:
    """The numbers in `[1,2,3]`."""
    return frozenset(line.listed("[]", lambda: line.integer("the number of a source operator")))


def _read_header(line: TextLine, block: GraphText) -> None:
    if block.header is not None or block.entries:
        raise line.error("a graph has one header, before its nodes", line.tokens[0])
    line.expect("graph")
    block.header = line
    block.name = line.word("the graph's name")
    _read_signature(line, block, "Input", "Output")
    if line.skip("state"):
        _read_signature(line, block, "Variable", "Assign")


def _read_signature(line: TextLine, block: GraphText, given: str, made: str) -> None:
    block.signature[given] = line.listed("()", lambda: read_id(line)[0])
    line.expect("->")
    block.signature[made] = line.listed("()", lambda: read_id(line)[0])


def _read_claim(line: TextLine, values: Values) -> tuple[ValueType | None, ...]:
    found: list[ValueType | None] = []
    while not found or line.skip(","):
        found.append(None if line.skip("-") else values.type(line))
    return tuple(found)


def _read_node(line: TextLine, values: Values) -> NodeText:
    entry = NodeText(read_id(line)[0], line)
    types: list[ValueType] = []
    while not line.skip("="):
        if types:
            line.expect(",")
        types.append(values.type(line))
    entry.types = tuple(types)
    entry.column = line.next.column
    entry.op = line.word("an operator")
    entry.inputs = tuple(line.listed("()", lambda: (None, 0) if line.skip("-") else read_id(line)))
    if line.at("{"):
        if len(types) != 1:
            raise line.error("an array has one type, before the '='")
        entry.value = values.array(line, types[0])
    while line.next.kind not in ("end", "name"):
        _read_detail(line, values, entry)
    if line.next.kind == "name":
        entry.name = _unescape(line.take().text.removeprefix("#").strip(" "))
    return entry


def _read_detail(line: TextLine, values: Values, entry: NodeText) -> None:
    """An attribute, a flag, `from[...]` or `by ...`."""
    if line.skip("!"):
        token = line.next
        name = line.word("a flag")
        if name not in _FLAGS:
            raise line.error(f"no flag '{name}'; there are {', '.join(_FLAGS)}", token)
        entry.flags |= _FLAGS[name]
        return
    token = line.next
    key = line.word("an attribute, '!', 'from' or 'by'")
    if line.skip("="):
        if key in entry.attrs:
            raise line.error(f"attribute '{key}' is given twice", token)
        entry.attrs[key] = values.attribute(line, key)
    elif token.text == "from":
        entry.origin = read_origin(line)
    elif token.text == "by":
        # A summary of the history, which tells it in full.
        line.word("a pass")
        while line.skip(","):
            line.word("a pass")
    else:
        line.wanted("'='")


def _read_bodies(lines: list[TextLine], values: Values, indent: int, entry: NodeText) -> None:
    while lines and lines[-1].indent == indent + _STEP:
        label = lines.pop()
        name = label.word("the name of a nested graph")
        label.expect(":")
        label.finish()
        if name in entry.bodies:
            raise label.error(f"nested graph '{name}' is given twice", label.tokens[0])
        entry.bodies[name] = read_block(lines, values, indent + 2 * _STEP)


def _unescape(text: str) -> str:
    """The name that was escaped."""
    return _ESCAPE.sub(
        lambda found: _SHORT[found[1]] if found[1] in _SHORT else chr(int(found[1][1:], 16)), text
    )
