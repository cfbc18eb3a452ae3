"""What of an operator counts for grouping: its pattern, which is its own, or opaque where the
circumstances leave no choice; and which constants are part of the code, and which are data.

ONNX passes much as inputs that is fixed when a model is compiled: axes, shapes, pads, a scalar to
add. Such a constant belongs to every group that reads it, as often as it is read; it takes no part
in grouping, as if it were an attribute. Every other constant (weights, tables) is stored once and
is an external input of the groups that read it. Numbers that only the dimensions of a call decide
(`DimensionValue`) are expressions in the code in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from whence.fusion.groups import MissReason
from whence.graph import Graph, Node
from whence.ops.definition import OpClass, Pattern
from whence.ops.operand import OperandKind
from whence.ops.registry import REGISTRY
from whence.types import DType, TensorType, ValueType

PatternOf: TypeAlias = Callable[[Node], Pattern]
_DATA_ONLY = frozenset({Pattern.OUT_ELEMWISE_FUSABLE, Pattern.OPAQUE})


def operator_pattern(node: Node) -> Pattern:
    """The registered pattern, `OPAQUE` for operators that are not registered or are opaque here."""
    return Pattern.OPAQUE if opaque_here(node) is not None else registered_pattern(node)


def registered_pattern(node: Node) -> Pattern:
    definition = REGISTRY.get(node.op)
    return Pattern.OPAQUE if definition is None else definition.pattern


def loop_pattern(node: Node) -> Pattern:
    """`operator_pattern` with refinements for grouping by post-dominators.

    1. `Where` reads every input at the output's own index, so it broadcasts like `Add` does.
    2. `BatchNormalization` with given statistics is a scale and a shift for each channel, so it
       broadcasts too.
    3. Only a moving operator may have several outputs; any other then stands alone.
    """
    pattern = operator_pattern(node)
    if pattern is Pattern.INJECTIVE:
        return Pattern.BROADCAST if OpClass.ELEMENTWISE in REGISTRY[node.op].classes else pattern
    if len(node.outputs) > 1:
        return Pattern.OPAQUE
    if (
        node.op == "BatchNormalization"
        and not node.attrs.get("training_mode", 0)
        and opaque_here(node) is None
    ):
        return Pattern.BROADCAST
    return pattern


def opaque_here(node: Node) -> MissReason | None:
    """What about this application forbids generating code for it together with others; `None` when
    nothing does.
    """
    graph = node.graph
    kinds: list[ValueType] = list(node.outputs)
    if graph is not None:
        kinds += [graph.type_of(ref) for ref in node.inputs if ref is not None]
    tensors = [kind for kind in kinds if isinstance(kind, TensorType)]
    if len(tensors) < len(kinds) or any(kind.dtype is DType.STRING for kind in tensors):
        return MissReason.NOT_NUMBERS
    # A dimension that has a name is as good as a number: two of one name are equal.
    if any(
        kind.shape is None or None in kind.shape or kind.dtype is DType.UNDEFINED
        for kind in tensors
    ):
        return MissReason.NOT_STATIC
    if graph is not None and registered_pattern(node) is not Pattern.OPAQUE:
        for index, ref in enumerate(node.inputs):
            if ref is not None and is_parameter(node, index) and graph.known_value(ref) is None:
                return MissReason.NOT_STATIC
    return None


# ---- constants ----


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
    return value.size == 1 and registered_pattern(node) not in _DATA_ONLY


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
