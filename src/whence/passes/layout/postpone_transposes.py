"""Transposes go behind what works element by element, so that a convolution meets its activation
and its quantisation.

1. f(transpose(x, p)) = transpose(f(x), p) for f on each element by itself, x transposed for f alone

Unlike `sink_transposes` this does not ask whether there are fewer transposes afterwards: there are
as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Node, Rewriter
from whence.graph.search import is_single_consumer, producer_of
from whence.ops.definition import OpClass, Pattern
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import perm_of
from whence.passes.pattern import is_number_or_absent
from whence.types import TensorType

_ELEMENTWISE = operators(Trait.CODES) | {
    name
    for name, known in REGISTRY.items()
    if known.pattern is Pattern.ELEMWISE and OpClass.ACTIVATION in known.classes
}


@dataclass(frozen=True, slots=True)
class PostponeTransposes(RulePass):
    name = "postpone_transposes"
    summary = "move transposes behind activations and quantisation"
    classes = OpClass.MOVEMENT
    anchors = _ELEMENTWISE

    # f(transpose(x, p)) = transpose(f(x), p)
    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph, made = rewriter.graph, node.type
        transpose = producer_of(graph, node.inputs[0], "Transpose")
        if transpose is None or not is_single_consumer(graph, transpose, node):
            return
        perm, kind = perm_of(graph, transpose), graph.tensor_type(transpose.inputs[0])
        if perm is None or kind is None or not isinstance(made, TensorType):
            return
        if not all(is_number_or_absent(graph, node.input(index)) for index in (1, 2)):
            return
        edit = rewriter.edit(transpose, node, rule="f(transpose(x)) = transpose(f(x))")
        inner = edit.node(
            node.op,
            [transpose.inputs[0], *node.inputs[1:]],
            node.attrs,
            TensorType(made.dtype, kind.shape),
            of=[node],
        )
        outer = edit.node("Transpose", [inner.ref()], {"perm": perm}, node.outputs, of=[transpose])
        edit.finish(node, outer)
