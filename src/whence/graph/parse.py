"""Graphs from text: what `whence.graph.printer` prints, and what people write by hand.

Printed with `exact`, a graph is read as it was. Text without a history gets one: operators that
carry their own id are the source operators, and a node with other origins came from those in one
rewrite, called `text`.

By hand, nodes may have names instead of numbers, and types that follow from operands may be left
out:

    %x f32[1,3,8,8] = Input()
    %w f32[4,3,3,3] = Const() {seed 1}
    %conv = Conv(%x, %w) pads=[1,1,1,1]
    %y = Output(%conv)

Operators are then numbered 1, 2, ... in the order written, and constants, inputs and outputs after
them; constants and inputs come first in the list, wherever they are written; a node is called as it
is written unless `# name` says otherwise. Lines that begin with `#` are comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whence.errors import TextError, WhenceError
from whence.graph.builder import infer_types
from whence.graph.graph import Graph
from whence.graph.literals import digest
from whence.graph.node import Node, Ref
from whence.graph.parse_history import HistoryText, enter_history, read_history_line
from whence.graph.parse_nodes import GraphText, NodeText, read_block
from whence.graph.parse_values import Values
from whence.graph.state import BOUNDARY, NOT_FROM_A_FILE, list_order
from whence.graph.tokens import read_lines
from whence.ops.types.inference import Inference
from whence.provenance import NO_ORIGIN, Ledger

_HISTORY = ("history", "source", "edge", "gone")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A graph, and how its text put things."""

    graph: Graph
    spelled: Mapping[str, str]
    """The notation of arrays by digest, for `print_graph`."""
    names: Mapping[int, str]
    """What nodes that are not numbered are called, by id."""


def parse_graph(text: str, arrays: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that a text describes. `arrays` holds, by digest, those that the text has no more
    of (`arrays_of` has all of a graph). Raises `TextError`.
    """
    return parse_text(text, arrays).graph


def parse_text(text: str, arrays: Mapping[str, np.ndarray] | None = None) -> Parsed:
    """As `parse_graph`, with the notation of arrays."""
    values = Values(arrays or {})
    lines = read_lines(text)
    history = HistoryText()
    rest = []
    for line in lines:
        if line.tokens[0].text in _HISTORY and not line.indent:
            read_history_line(line, history)
        else:
            rest.append(line)
    rest.reverse()
    block = read_block(rest, values, 0)
    if rest:
        raise rest[-1].error(f"{rest[-1].indent} blanks at the beginning fit no line above")
    ids = _numbers(block)
    ledger = enter_history(history, [*_entries(block)], ids)
    names = {number: name for name, number in ids.items() if isinstance(name, str)}
    return Parsed(_build(block, ids, ledger, Inference()), values.spelled, names)


def arrays_of(graph: Graph) -> dict[str, np.ndarray]:
    """All arrays of a graph, nested ones included, by digest."""
    nodes = [node for nested in graph.nested() for node in nested]
    values = [node.value for node in nodes if node.value is not None]
    values += [
        attr for node in nodes for attr in node.attrs.values() if isinstance(attr, np.ndarray)
    ]
    return {digest(value): value for value in values}


def _entries(block: GraphText) -> list[NodeText]:
    found = []
    for entry in block.entries:
        found.append(entry)
        for body in entry.bodies.values():
            found += _entries(body)
    return found


def _numbers(block: GraphText) -> dict[int | str, int]:
    """The id of each node, by what the text calls it."""
    entries = _entries(block)
    named = [entry for entry in entries if isinstance(entry.id, str)]
    if not named:
        return {entry.id: entry.id for entry in entries if isinstance(entry.id, int)}
    for entry in entries:
        if not isinstance(entry.id, str):
            raise entry.error("nodes have names or numbers, not some the ones and some the others")
    operators = [entry.id for entry in entries if entry.op not in NOT_FROM_A_FILE]
    edges = [entry for entry in entries if entry.op in NOT_FROM_A_FILE]
    others = [entry.id for entry in sorted(edges, key=lambda entry: list_order(entry.op))]
    return {name: number for number, name in enumerate([*operators, *others], 1)}


def _build(
    block: GraphText, ids: Mapping[int | str, int], ledger: Ledger, inference: Inference
) -> Graph:
    graph = Graph(block.name, ledger, inference)
    for entry in _in_order(block):
        bodies = {name: _build(body, ids, ledger, inference) for name, body in entry.bodies.items()}
        try:
            graph.append(_node(graph, entry, ids, bodies))
        except TextError:
            raise  # with its line and column
        except WhenceError as error:
            raise entry.error(str(error)) from error
    graph.metadata = dict(block.metadata)
    graph.listed_inputs = tuple(block.listed)
    graph.claims = dict(block.claims)
    _order_signature(graph, block, ids)
    return graph


def _in_order(block: GraphText) -> list[NodeText]:
    """The nodes as they stand in the list: what was written by hand has its constants first."""
    if not any(isinstance(entry.id, str) for entry in block.entries):
        return block.entries
    return sorted(block.entries, key=lambda entry: min(list_order(entry.op), list_order("Add")))


def _node(
    graph: Graph, entry: NodeText, ids: Mapping[int | str, int], bodies: Mapping[str, Graph]
) -> Node:
    refs = [None if name is None else _ref(entry, name, index, ids) for name, index in entry.inputs]
    own = ids[entry.id]
    by_name = isinstance(entry.id, str)
    types = entry.types
    if by_name and not types and entry.op not in BOUNDARY:
        types = infer_types(graph, entry.op, refs, entry.attrs, 1)
    origin = entry.origin
    if by_name and entry.op not in NOT_FROM_A_FILE:
        origin = frozenset((own,))
    name = str(entry.id) if by_name and not entry.name else entry.name
    return Node(
        own,
        entry.op,
        refs,
        types,
        entry.attrs,
        name=name,
        origin=origin or NO_ORIGIN,
        value=entry.value,
        bodies=bodies,
        flags=entry.flags,
    )


def _ref(entry: NodeText, name: int | str, index: int, ids: Mapping[int | str, int]) -> Ref:
    if name not in ids:
        raise entry.error(f"%{name} is no node of this text")
    return Ref(ids[name], index)


def _order_signature(graph: Graph, block: GraphText, ids: Mapping[int | str, int]) -> None:
    """Inputs and outputs as the header lists them."""
    for op, names in block.signature.items():
        order, own = [ids.get(name, 0) for name in names], graph._signature[op]
        if sorted(order) != sorted(own):
            listed, there = (
                ", ".join(f"%{number}" for number in each) or "none" for each in (order, own)
            )
            assert block.header is not None
            raise block.header.error(
                f"the graph is said to have {listed}, and its nodes are {there}",
                block.header.tokens[0],
            )
        graph._signature[op] = dict.fromkeys(order)
