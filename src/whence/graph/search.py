"""Finding nodes: by id, by type, and by who consumes them. For phase [A] of a rewrite; nothing here
changes the graph.
"""

from __future__ import annotations

from collections.abc import Collection

from whence.graph.graph import Graph
from whence.graph.node import Node, Ref

Ops = str | Collection[str]


def find_node(graph: Graph, node_id: int) -> Node | None:
    """The node with this id, or `None`."""
    return graph.get(node_id)


def find_node_of(graph: Graph, node_id: int, op: str) -> Node | None:
    """The node with this id when its operator is `op`, else `None`."""
    node = graph.get(node_id)
    return node if node is not None and node.op == op else None


def find_const(graph: Graph, node_id: int) -> Node | None:
    """The constant with this id, else `None`."""
    return find_node_of(graph, node_id, "Const")


def find_const_from_ref(graph: Graph, ref: Ref | None) -> Node | None:
    """The constant `ref` points at. Only output 0 of a constant exists, any other index finds
    nothing.
    """
    return find_const(graph, ref.node) if ref is not None and ref.index == 0 else None


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
    if ops is not None and (consumer.op != ops if isinstance(ops, str) else consumer.op not in ops):
        return None
    if check_inputs:
        for ref in consumer.inputs:
            if ref is not None and ref.node != producer.id and not graph[ref.node].is_const:
                return None
    return consumer


def is_single_consumer(graph: Graph, producer: Node, consumer: Node) -> bool:
    """Does `consumer` read `producer`, on any output, and nobody else does?"""
    return len(producer._uses) == 1 and consumer.id in producer._uses and consumer.graph is graph


def first_consumer(graph: Graph, ref: Ref) -> Node | None:
    """The earliest node that reads exactly this output."""
    uses = graph.uses(ref)
    return uses[0][0] if uses else None


def last_consumer(graph: Graph, ref: Ref) -> Node | None:
    """The latest node that reads exactly this output."""
    uses = graph.uses(ref)
    return uses[-1][0] if uses else None


def producer_of(graph: Graph, ref: Ref | None, ops: Ops | None = None) -> Node | None:
    """The node behind `ref` when its operator is among `ops`, else `None`."""
    if ref is None:
        return None
    node = graph[ref.node]
    if ops is None or (node.op == ops if isinstance(ops, str) else node.op in ops):
        return node
    return None
