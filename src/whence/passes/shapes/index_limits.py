"""Which inputs of a model are indices, and how far they reach.

Made-up inputs must not lead outside: an index that does ends the run. An input is an index when an
operator that looks something up reads it through operators that leave its numbers as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.graph import Graph, Node, Ref
from whence.types import TensorType

_UNCHANGED = frozenset(
    {
        "Cast", "CastLike", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze",
        "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


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
    if node.op not in _AXES or len(node.inputs) < 2:
        return
    data, indices = node.inputs[0], node.inputs[1]
    if node.op == "RotaryEmbedding":
        data, indices = node.inputs[1], node.input(3)
    kind = None if data is None else graph.type_of(data)
    if indices is None or not isinstance(kind, TensorType) or not kind.shape:
        return
    axes = _AXES[node.op]
    if axes == "axis":
        axis = node.attrs.get("axis", 0)
        dims = kind.shape[axis : axis + 1 or None] if isinstance(axis, int) else ()
    else:
        # Each part of a tuple leads into another axis; the shortest holds for all.
        dims = kind.shape if axes == "all" else kind.shape[:1]
    known = [dim for dim in dims if isinstance(dim, int) and dim > 0]
    if known:
        yield indices, min(known)


_AXES = {
    "Gather": "axis",
    "GatherElements": "axis",
    "ScatterElements": "axis",
    "GatherND": "all",
    "ScatterND": "all",
    "RotaryEmbedding": "first",
}


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
        elif node.op in _UNCHANGED:
            # What comes after the first input says how, not what.
            read = node.inputs if node.op == "Concat" else node.inputs[:1]
            stack.extend(each.node for each in read if each is not None)
