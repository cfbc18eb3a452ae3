"""Independent copies of a graph: as it is, and with numbers in place of expressions for sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from whence.extent import dimensions_of, evaluate
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr
from whence.types import TensorType, ValueType, map_dims

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


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A copy of the graph for a call in which the dimensions have these sizes."""
    copy = copy_graph(graph)
    for nested in copy.nested():
        for node in nested:
            nested.set_types(node, [type_with_sizes(kind, sizes) for kind in node.outputs])
            nested.set_attrs(
                node, {name: _attr_with_sizes(value, sizes) for name, value in node.attrs.items()}
            )
    return copy


def at_hand(graph: Graph) -> Graph:
    """The graph for the call that it is compiled for; the graph itself if it is for no other."""
    shapes = (node.type.shape for node in graph.inputs if isinstance(node.type, TensorType))
    dimensions = dimensions_of(dim for shape in shapes for dim in shape or ())
    return graph if dimensions is None else with_sizes(graph, dimensions.sizes)


def type_with_sizes(kind: ValueType, sizes: Mapping[str, int]) -> ValueType:
    return map_dims(kind, lambda dim: evaluate(dim, sizes) if isinstance(dim, int) else dim)


def _attr_with_sizes(value: Attr, sizes: Mapping[str, int]) -> Attr:
    if isinstance(value, int):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(evaluate(item, sizes) if isinstance(item, int) else item for item in value)  # type: ignore[return-value]  # kinds stay as they are
    return value
