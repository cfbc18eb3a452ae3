"""Reshapes that follow each other.

Reshape, Flatten, Squeeze and Unsqueeze all give the same elements in the same order another shape.

1. reshape(reshape(x)) = x when the shapes are equal
2. squeeze(unsqueeze(x, axes), axes) = x and unsqueeze(squeeze(x, axes), axes) = x, whatever the
   shapes
3. reshape(reshape(x)) = reshape(x), when the last shape can be given in numbers
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Graph, Node, Rewriter
from whence.graph.search import producer_of
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.const_values import const_ints
from whence.passes.layout.axes import reshape_target
from whence.passes.parameters import axes_from_front
from whence.passes.pattern import same_but_one, shape_of
from whence.provenance import Reason

_RESHAPES = operators(Trait.RESHAPE)


@dataclass(frozen=True, slots=True)
class CancelReshapes(RulePass):
    """Merge reshapes and drop those that lead back."""

    name = "cancel_reshapes"
    summary = "merge reshapes, squeezes and flattens that follow each other"
    anchors = _RESHAPES

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        before = producer_of(graph, node.inputs[0], _RESHAPES)
        if before is None:
            return
        x, rule = before.first_input, ""
        first, last = shape_of(graph, x), shape_of(graph, node.ref())
        # 1. reshape(reshape(x)) = x when the shapes are equal
        if same_but_one(first, last):
            rule = "reshape(reshape(x)) = x"
        # 2. squeeze(unsqueeze(x, axes), axes) = x, and the other way round
        elif _are_opposite(graph, before, node):
            rule = "squeeze(unsqueeze(x)) = x"
        if rule:
            rewriter.bypass(node, x, reason=Reason.CANCELLED, rule=rule, undone=[before])
        # 3. reshape(reshape(x)) = reshape(x)
        elif first is not None and last is not None:
            target = reshape_target(first, last)
            if target is not None:
                edit = rewriter.edit(before, node, rule="reshape(reshape(x)) = reshape(x)")
                made = edit.node("Reshape", [x, edit.sizes(target)], types=node.outputs)
                edit.finish(node, made)


def _are_opposite(graph: Graph, before: Node, node: Node) -> bool:
    if {before.op, node.op} != one_of("Squeeze", "Unsqueeze"):
        return False
    first, second = (
        const_ints(graph, before.operand("axes")),
        const_ints(graph, node.operand("axes")),
    )
    if first is None or second is None:
        return False
    # Both count axes in the longer of the two shapes.
    longer = shape_of(graph, before.inputs[0] if before.op == "Squeeze" else before.ref())
    if longer is not None:
        first, second = (axes_from_front(axes, len(longer)) for axes in (first, second))
    return first is not None and second is not None and sorted(first) == sorted(second)
