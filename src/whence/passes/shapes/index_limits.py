"""Which inputs of a model are indices, and how far they reach.

Made-up inputs must not lead outside: an index that does ends the run. An input is an index when an
operator that looks something up reads it through operators that leave its numbers as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.graph import Graph, Node, Ref
from whence.ops.definition import IndexedAxes
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.passes.pattern import shape_of

_UNCHANGED = operators(Trait.MOVES) | operators(Trait.CASTS)


def index_limits(graph: Graph) -> dict[int, int]:
    """By node id of an input: the length of the shortest axis that its numbers lead into, where
    lengths are known.
    """
    limits: dict[int, int] = {}
    for node in graph:
        for ref, extent in _lookups(graph, node):
            for source in _sources(graph, ref):
                limits[source] = min(extent, limits.get(source, extent))
    return limits


def _lookups(graph: Graph, node: Node) -> Iterator[tuple[Ref, int]]:
    """The operands of an operator that are indices, and the length of the axis they lead into."""
    known = REGISTRY.get(node.op)
    if known is None or known.indexing is None:
        return
    data, indices = node.operand(known.indexing.data), node.operand(known.indexing.indices)
    shape = shape_of(graph, data)
    if indices is None or not shape:
        return
    axes = known.indexing.axes
    if axes is IndexedAxes.ATTRIBUTE:
        axis = node.attrs.get("axis", 0)
        dims = shape[axis : axis + 1 or None] if isinstance(axis, int) else ()
    else:
        # Each part of a tuple leads into another axis; the shortest holds for all.
        dims = shape if axes is IndexedAxes.TUPLE else shape[:1]
    sizes = [dim for dim in dims if isinstance(dim, int) and dim > 0]
    if sizes:
        yield indices, min(sizes)


def _sources(graph: Graph, ref: Ref) -> Iterator[int]:
    """The inputs of the model whose numbers the value has."""
    stack, seen = [ref.node], set[int]()
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        node = graph[number]
        if node.op == "Input":
            yield number
        elif node.op == "Concat":
            stack.extend(each.node for each in node.inputs if each is not None)
        elif node.op in _UNCHANGED and node.inputs[0] is not None:
            # What comes after the first input says how, not what.
            stack.append(node.inputs[0].node)
