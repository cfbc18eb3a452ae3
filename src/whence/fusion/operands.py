"""Which constants are part of the code, and which are data.

ONNX passes much as inputs that is fixed when a model is compiled: axes, shapes, pads, a scalar to
add. Such a constant belongs to every group that reads it, as often as it is read; it takes no part
in grouping, as if it were an attribute. Every other constant (weights, tables) is stored once and
is an external input of the groups that read it. Numbers that only the dimensions of a call decide
(`DimensionValue`) are expressions in the code in the same way.
"""

from __future__ import annotations

from whence.graph import Graph, Node
from whence.ops.definition import Pattern
from whence.ops.operand import OperandKind
from whence.ops.registry import REGISTRY

_DATA_ONLY = frozenset({Pattern.OUT_ELEMWISE_FUSABLE, Pattern.OPAQUE})


def is_parameter(node: Node, index: int) -> bool:
    """Does input `index` say what the operator does, rather than what it does it to?"""
    definition = REGISTRY.get(node.op)
    return definition is not None and definition.operands.kind(index) is OperandKind.PARAMETER


def is_inlined(graph: Graph, node: Node, index: int) -> bool:
    """Is input `index` a constant that becomes part of the code: a parameter, or one element that
    is read wherever it is needed?

    A single element that a convolution, product or opaque operator reads is a weight like any
    other.
    """
    ref = node.inputs[index]
    if ref is None:
        return False
    value = graph.known_value(ref)
    if value is None:
        return False
    if is_parameter(node, index):
        return True
    definition = REGISTRY.get(node.op)
    return value.size == 1 and definition is not None and definition.pattern not in _DATA_ONLY


def is_always_inlined(node: Node) -> bool:
    """Is it a value of the dimensions that is part of the code wherever it is read? Then nothing
    has to make it.
    """
    graph = node.graph
    return (
        graph is not None
        and node.op == "DimensionValue"
        and all(
            is_inlined(graph, user, index)
            for user in graph.consumers(node)
            for index, ref in enumerate(user.inputs)
            if ref is not None and ref.node == node.id
        )
    )
