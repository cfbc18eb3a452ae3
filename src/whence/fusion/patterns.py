"""The pattern that counts for grouping: the operator's own, or opaque where the circumstances leave
no choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from whence.fusion.groups import MissReason
from whence.fusion.operands import is_parameter
from whence.graph import Node
from whence.ops.definition import OpClass, Pattern
from whence.ops.registry import REGISTRY
from whence.types import DType, TensorType, ValueType

PatternOf: TypeAlias = Callable[[Node], Pattern]


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
