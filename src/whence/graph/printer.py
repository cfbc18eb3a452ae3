r"""The printed graph: stable, greppable, one node a line, provenance included.

    %7 f32[1,64,56,56] = FusedConv(%3, %4) strides=[1,1] from[12,13,14] by
    fold_batch_norm,fuse_activations  # layer1.0.conv1

Text that comes from a model is escaped or quoted, so that a line is always one line.
`whence.graph.parse` reads the text. Printed with `exact`, a graph comes back as it was, its history
included; without, large constants and the history are left out. The ledger stands after the nodes:

    history next 12 step 4
    source 2 BatchNormalization bn1 module='layer1.0.bn1'
    edge 3 %9 <- %1 fuse, %2 fold by fold_batch_norm "BN(conv(x)) = conv'(x)"
    gone %4 from[4] identity into %9 by remove_no_ops 'Identity returns its input'

`next` is the first id that no node ever had, `step` the number of the next rewrite, and an edge
begins with the number of its own. A source operator that is a node of the graph still, by itself,
has no line: the node tells its name and operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from whence.graph.escaping import escape
from whence.graph.graph import Graph
from whence.graph.literals import array_text, float_text, type_text, word
from whence.graph.node import Node, NodeFlag
from whence.ops.definition import Attr
from whence.provenance import Edge, SourceOp, Tombstone
from whence.types import DType, TensorType

DTYPE_ATTRS = frozenset(
    {
        "to",
        "dtype",
        "output_dtype",
        "output_datatype",
        "precision",
        "softmax_precision",
        "stash_type",
    }
)
"""Attributes whose number is an element type, written by its name."""


@dataclass(frozen=True, slots=True)
class _Style:
    consts: bool = True
    exact: bool = False
    spelled: Mapping[str, str] = field(default_factory=dict)
    made_by: Mapping[int, list[str]] = field(default_factory=dict)


def print_graph(
    graph: Graph,
    *,
    consts: bool = True,
    exact: bool = False,
    spelled: Mapping[str, str] | None = None,
) -> str:
    """The whole graph as text, nested graphs indented under their node.

    With `exact`, everything that `parse_graph` needs to make an equal graph. Large constants are
    given by their digest, or by what `spelled` has for it (see `whence.graph.literals`).
    """
    style = _Style(consts, exact, spelled or {}, _passes_by_node(graph))
    lines = list(_lines(graph, style, ""))
    if exact:
        lines += history_lines(graph)
    return "\n".join(lines) + "\n"


def print_node(node: Node) -> str:
    """One node as it stands in the printed graph. Reads the whole ledger to say which passes made
    it: not for use in a loop.
    """
    made_by = _passes_by_node(node.graph) if node.graph is not None else {}
    return _line(node, _Style(made_by=made_by))


def print_attrs(node: Node) -> list[str]:
    """Its attributes, each as it stands in the printed graph."""
    return _attrs(node, _Style())


def _lines(graph: Graph, style: _Style, indent: str) -> Iterator[str]:
    if style.exact:
        yield indent + _header(graph)
        yield from (f"{indent}{line}" for line in _about(graph))
    for node in graph:
        if node.is_const and not style.consts:
            continue
        yield indent + _line(node, style)
        for name, body in node.bodies.items():
            yield f"{indent}  {word(name)}:"
            yield from _lines(body, style, indent + "    ")


def _header(graph: Graph) -> str:
    """The signature: its order is not that of the list when an input was put in or moved later."""
    text = f"graph {word(graph.name)} ({_ids(graph.inputs)}) -> ({_ids(graph.outputs)})"
    if graph.variables or graph.assigns:
        text += f" state ({_ids(graph.variables)}) -> ({_ids(graph.assigns)})"
    return text


def _ids(nodes: list[Node]) -> str:
    return ", ".join(f"%{node.id}" for node in nodes)


def _about(graph: Graph) -> Iterator[str]:
    for key, value in graph.metadata.items():
        yield f"metadata {key!r} {value!r}"
    for name, kind in graph.listed_inputs:
        yield f"listed {name!r} {type_text(kind)}"
    for node, kinds in graph.claims.items():
        claimed = ", ".join("-" if kind is None else type_text(kind) for kind in kinds)
        yield f"claim %{node} {claimed}"


def _line(node: Node, style: _Style) -> str:
    types = ", ".join(type_text(kind) for kind in node.outputs)
    inputs = ", ".join("-" if ref is None else str(ref) for ref in node.inputs)
    parts = [
        f"%{node.id} {types} =" if node.outputs else f"%{node.id} =",
        f"{word(node.op)}({inputs})",
    ]
    if node.value is not None:
        parts.append(array_text(node.value, exact=style.exact, spelled=style.spelled))
    parts.extend(_attrs(node, style))
    implied = NodeFlag.NONE if node.outputs else NodeFlag.RETAIN
    parts.extend(f"!{(flag.name or '').lower()}" for flag in node.flags & ~implied)
    if node.origin:
        parts.append(f"from[{','.join(str(source) for source in sorted(node.origin))}]")
    passes = style.made_by.get(node.id)
    if passes:
        parts.append("by " + ",".join(map(word, passes)))
    if node.name:
        parts.append(f" # {_name(node.name)}")
    return " ".join(parts)


def _name(name: str) -> str:
    """A name to the end of the line. Blanks at its ends are written out: editors remove them."""
    text = escape(name)
    body = text.strip(" ")
    if not body:
        return "\\x20" * len(text)
    before, after = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "\\x20" * before + body + "\\x20" * after


def _attrs(node: Node, style: _Style) -> list[str]:
    return [f"{word(key)}={_attr(key, value, style)}" for key, value in sorted(node.attrs.items())]


def _attr(key: str, value: Attr, style: _Style) -> str:
    if isinstance(value, tuple):
        return "[" + ",".join(_attr("", item, style) for item in value) + "]"
    if isinstance(value, np.ndarray):
        kind = type_text(TensorType.of(value))
        return kind + array_text(value, exact=style.exact, spelled=style.spelled)
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, str):
        # Where a bare word means an element type, text that reads like one is quoted.
        return repr(value) if key in DTYPE_ATTRS else word(value)
    if isinstance(value, float):
        return float_text(value)
    if key in DTYPE_ATTRS and not isinstance(value, bool) and value in DType._value2member_map_:
        return str(DType(value))
    return str(value)


def _passes_by_node(graph: Graph) -> dict[int, list[str]]:
    made_by: dict[int, list[str]] = {}
    for edge in graph.ledger.edges:
        names = made_by.setdefault(edge.child, [])
        if edge.pass_name not in names:
            names.append(edge.pass_name)
    return made_by


# ---- the history ----

PLAIN = ("id", "name", "op")
"""What a source operator has in any case, and its node tells."""


def history_lines(graph: Graph) -> Iterator[str]:
    ledger = graph.ledger
    yield f"history next {ledger.next_id} step {ledger.next_step}"
    told = {
        node.id: SourceOp(node.id, node.name, node.op)
        for nested in graph.nested()
        for node in nested
        if node.origin == {node.id}
    }
    for source in ledger.sources:
        extra = [
            f" {each.name}={_field(getattr(source, each.name))}"
            for each in fields(source)
            if each.name not in PLAIN and getattr(source, each.name) != each.default
        ]
        if extra or told.get(source.id) != source:
            yield f"source {source.id} {word(source.op)} {word(source.name)}{''.join(extra)}"
    for _, edges in itertools.groupby(ledger.edges, _rewrite):
        yield _edge_line(list(edges))
    for stone in ledger.tombstones:
        yield _gone_line(stone)


def _field(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ",".join(map(repr, value)) + "]"
    return repr(value)


def _rewrite(edge: Edge) -> tuple[object, ...]:
    return edge.step, edge.child, edge.pass_name, edge.rule


def _edge_line(edges: list[Edge]) -> str:
    first = edges[0]
    parents = ", ".join(f"%{edge.parent} {edge.kind}" for edge in edges)
    how = f"by {word(first.pass_name)} {first.rule!r}"
    return f"edge {first.step} %{first.child} <- {parents} {how}"


def _gone_line(stone: Tombstone) -> str:
    origin = ",".join(map(str, sorted(stone.origin)))
    into = "" if stone.into is None else f" into %{stone.into}"
    how = f"by {word(stone.pass_name)} {stone.rule!r}"
    return f"gone %{stone.node} from[{origin}] {stone.reason}{into} {how}"
