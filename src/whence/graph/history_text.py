"""The ledger of a graph as lines of its exact text, after the nodes.

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
from collections.abc import Iterator
from dataclasses import fields

from whence.graph.graph import Graph
from whence.graph.literals import word
from whence.provenance import Edge, SourceOp, Tombstone

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
    for _, edges in itertools.groupby(ledger.edges, _entry):
        yield _edge(list(edges))
    for stone in ledger.tombstones:
        yield _gone(stone)


def _field(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ",".join(map(repr, value)) + "]"
    return repr(value)


def _entry(edge: Edge) -> tuple[object, ...]:
    return edge.step, edge.child, edge.pass_name, edge.rule


def _edge(edges: list[Edge]) -> str:
    first = edges[0]
    parents = ", ".join(f"%{edge.parent} {edge.kind}" for edge in edges)
    how = f"by {word(first.pass_name)} {first.rule!r}"
    return f"edge {first.step} %{first.child} <- {parents} {how}"


def _gone(stone: Tombstone) -> str:
    origin = ",".join(map(str, sorted(stone.origin)))
    into = "" if stone.into is None else f" into %{stone.into}"
    how = f"by {word(stone.pass_name)} {stone.rule!r}"
    return f"gone %{stone.node} from[{origin}] {stone.reason}{into} {how}"
