"""Values that nested graphs take from outside: the last inputs of the node that holds them, and of
each of its graphs.
"""

from __future__ import annotations

from collections.abc import Collection

from whence.graph import Node
from whence.graph.graph import Graph
from whence.graph.iterations import captures as captures_of


def capture_input(body: Graph, captures: int, position: int) -> Node:
    """The `Input` of `body` through which capture `position` of `captures` comes in."""
    inputs = body.inputs
    return inputs[len(inputs) - captures + position]


def unused_captures(node: Node) -> list[int]:
    """The positions of captures that none of the node's graphs reads."""
    captures = captures_of(node)
    inputs = {name: body.inputs for name, body in node.bodies.items()}
    return [
        at
        for at in range(captures)
        if not any(given[len(given) - captures + at]._uses for given in inputs.values())
    ]


def drop_captures(node: Node, positions: Collection[int]) -> None:
    """Take captures that none of the node's graphs reads out of the graphs and out of the node's
    inputs.
    """
    graph, captures = node.graph, captures_of(node)
    assert graph is not None
    gone = set(positions)
    for body in node.bodies.values():
        given = body.inputs[len(body.inputs) - captures :]
        for at in gone:
            body.remove(given[at])
    formal = len(node.inputs) - captures
    graph.set_inputs(node, [ref for at, ref in enumerate(node.inputs) if at - formal not in gone])
    graph.set_attrs(node, {**node.attrs, "captures": captures - len(gone)})
