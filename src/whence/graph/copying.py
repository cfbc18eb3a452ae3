"""An independent copy of a graph, with its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whence.graph.node import Node, Ref

if TYPE_CHECKING:
    from whence.graph.graph import Graph
    from whence.provenance import Ledger


def copy_graph(graph: Graph, ledger: Ledger | None = None) -> Graph:
    """The same nodes with the same ids, nested graphs included, and a ledger of its own. Constant
    data is shared, not copied.
    """
    own = ledger if ledger is not None else graph.ledger.copy()
    twin = type(graph)(graph.name, own, graph.inference)
    twin.metadata = dict(graph.metadata)
    twin.dimensions = dict(graph.dimensions)
    twin.claims = dict(graph.claims)
    for node in graph:
        bodies = {name: copy_graph(body, own) for name, body in node.bodies.items()}
        made = copy_node(node, node.id, node.inputs)
        made.bodies = bodies
        twin._adopt(made)
    # The order of the signature is not that of the list when an input was put in or moved later.
    twin._signature = {op: dict(listed) for op, listed in graph._signature.items()}
    return twin


def copy_node(node: Node, node_id: int, inputs: Sequence[Ref | None]) -> Node:
    """A node that is in no graph yet, like `node` but for its id and what it reads. Data and nested
    graphs are those of `node`, not copies.
    """
    return Node(
        node_id,
        node.op,
        inputs,
        node.outputs,
        node.attrs,
        name=node.name,
        origin=node.origin,
        value=node.value,
        bodies=node.bodies,
        flags=node.flags,
    )
