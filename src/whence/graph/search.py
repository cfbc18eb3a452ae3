"""Finding nodes by who makes a value and who consumes it: what a pass looks at before it edits."""

from __future__ import annotations

from collections.abc import Collection

from whence.graph.graph import Graph
from whence.graph.node import Node, Ref

Ops = str | Collection[str]


def unique_consumer(
    graph: Graph, producer: Node | None, ops: Ops | None = None, *, check_inputs: bool = True
) -> Node | None:
    """The only node that reads any output of `producer`, else `None`.

    With `check_inputs` (the default) it must moreover read nothing but `producer` and constants.
    `ops` restricts its operator to one name or to a collection of names.
    """
    if producer is None or len(producer._uses) != 1:
        return None
    (consumer_id,) = producer._uses
    consumer = graph[consumer_id]
    if not _is_among(consumer, ops):
        return None
    if check_inputs:
        for ref in consumer.inputs:
            if ref is not None and ref.node != producer.id and not graph[ref.node].is_const:
                return None
    return consumer


def is_single_consumer(graph: Graph, producer: Node, consumer: Node) -> bool:
    """Does `consumer` read `producer`, on any output, and nobody else does?"""
    return len(producer._uses) == 1 and consumer.id in producer._uses and consumer.graph is graph


def producer_of(graph: Graph, ref: Ref | None, ops: Ops | None = None) -> Node | None:
    """The node behind `ref` when its operator is among `ops`, else `None`."""
    if ref is None:
        return None
    node = graph[ref.node]
    return node if _is_among(node, ops) else None


def _is_among(node: Node, ops: Ops | None) -> bool:
    return ops is None or (node.op == ops if isinstance(ops, str) else node.op in ops)
