"""A graph that is compiled for all sizes, as it is for some: numbers in place of expressions."""

from __future__ import annotations

from collections.abc import Mapping

from whence.extent import dimensions_of, evaluate
from whence.graph.copying import copy_graph
from whence.graph.graph import Graph
from whence.ops.definition import Attr
from whence.types import TensorType, ValueType, map_dims


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
