"""RMS norm written out.

1. x / √(mean(x²) + ε) · scale = RMSNormalization(x, scale, ε)

The mean is over the last axes. The root may be a Sqrt or a Pow and divide or multiply; the scale
may already be in the factor or be missing; x may be cast to a wider type first and the result cast
back.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Node, Rewriter
from whence.ops.definition import OpClass
from whence.passes.base import RulePass
from whence.passes.operands import other_operand
from whence.passes.pattern import is_closed, only_user, without_casts
from whence.passes.recognise.norm_pattern import (
    ROOTS,
    Norm,
    inverse_root,
    parameter,
    settle_type,
    take_in_scale,
    with_casts_in_front,
)


@dataclass(frozen=True, slots=True)
class RecogniseRmsNorm(RulePass):
    """Find RMS norm over the last axes."""

    name = "recognise_rms_norm"
    summary = "x/√(mean(x²) + ε)·scale becomes RMSNormalization"
    classes = OpClass.REDUCE | OpClass.POOL
    anchors = ROOTS

    # 1. x / √(mean(x²) + ε) · scale = RMSNormalization(x, scale, ε)
    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        root = inverse_root(graph, node)
        if root is None:
            return
        norm = Norm(root.squared, root.last, root.axes, [*root.nodes])
        if root.inverted:
            take_in_scale(graph, norm)
        factor = norm.out.ref()
        product = only_user(graph, norm.out, "Mul" if root.inverted else "Div")
        top = None if product is None else other_operand(product, factor)
        if (
            product is None
            or top is None
            or (product.op == "Div" and product.operand("B") != factor)
        ):
            return
        if without_casts(graph, top)[0] != without_casts(graph, root.squared)[0]:
            return
        norm.take(product)
        norm.x = top
        if not settle_type(graph, norm):
            return
        take_in_scale(graph, norm)
        nodes = with_casts_in_front(graph, norm.nodes, (root.squared, top), norm.x)
        if not is_closed(nodes, norm.out):
            return
        edit = rewriter.edit(*nodes, rule="x/√(mean(x²) + ε)·scale = RMSNormalization(x, scale)")
        scale = parameter(edit, norm.scale, norm.x, norm.axes)
        if scale is not None:
            attrs = {"axis": -len(norm.axes), "epsilon": root.epsilon, "stash_type": 1}
            edit.finish(norm.out, edit.node("RMSNormalization", [norm.x, scale], attrs))
