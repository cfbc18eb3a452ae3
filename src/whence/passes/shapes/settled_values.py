"""Values that follow from the dimensions of a call alone, but not as expressions that we follow: a
root of a size, a size scaled by 0.3. What says how an operator works (a shape, scales) must be
known when compiling, so it is computed for the sizes that are compiled for, which become guards.
"""

from __future__ import annotations

import numpy as np

from whence.errors import WhenceError
from whence.extent import estimate
from whence.graph import Graph, Node, Ref
from whence.ops.definition import Call, OpClass, Value
from whence.ops.registry import classes_of, evaluate

# Shapes are computed by few operators.
_MAX_NODES = 64


def settled_value(graph: Graph, ref: Ref) -> np.ndarray | None:
    """The value at the sizes that are compiled for, with a guard for each that it was computed
    from; `None` if it depends on anything else.
    """
    nodes = _nodes_behind(graph, ref)
    if nodes is None or not any(node.op == "DimensionValue" for node in nodes):
        return None
    values: dict[Ref, Value] = {}
    for node in nodes:
        if node.is_const:
            values[node.ref()] = node.value
            continue
        attrs = dict(node.attrs)
        if node.op == "DimensionValue":
            given = attrs["value"]
            assert isinstance(given, tuple)
            attrs["value"] = tuple(estimate(item) for item in given)  # type: ignore[arg-type]  # sizes
        inputs = tuple(None if each is None else values[each] for each in node.inputs)
        try:
            found = evaluate(Call(node.op, attrs, inputs, len(node.outputs)))
        except (WhenceError, RuntimeError, AttributeError):
            return None
        values.update({node.ref(index): value for index, value in enumerate(found)})
    value = values[ref]
    if not isinstance(value, np.ndarray):
        return None
    for node in nodes:
        if node.op == "DimensionValue":
            for item in node.attrs["value"]:  # type: ignore[union-attr]
                int(item)
    return value


def _nodes_behind(graph: Graph, ref: Ref) -> list[Node] | None:
    """The nodes that a value is computed from, producers first; `None` if an input is among
    them.
    """
    found: dict[int, Node] = {}
    stack = [ref.node]
    while stack:
        node = graph[stack.pop()]
        if node.id in found:
            continue
        random = bool((OpClass.RANDOM | OpClass.CONTROL | OpClass.STATE) & classes_of(node.op))
        if node.op == "Input" or node.bodies or random or len(found) == _MAX_NODES:
            return None
        if node.is_const and node.value is None:
            return None
        found[node.id] = node
        stack.extend(each.node for each in node.inputs if each is not None)
    return sorted(found.values(), key=lambda node: node._order)
