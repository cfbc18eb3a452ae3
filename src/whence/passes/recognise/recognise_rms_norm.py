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
from whence.passes.pattern import without_casts
from whence.passes.recognise.norm_pattern import (
    ROOTS,
    become_one,
    inverse_root,
    scaled_root,
    settle_type,
    take_in_scale,
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
        found = scaled_root(graph, root, root.squared, ())
        if found is None:
            return
        norm, product, top = found
        if without_casts(graph, top)[0] != without_casts(graph, root.squared)[0]:
            return
        norm.take(product)
        norm.x = top
        if not settle_type(graph, norm):
            return
        take_in_scale(graph, norm)
        rule = "x/√(mean(x²) + ε)·scale = RMSNormalization(x, scale)"
        read = (root.squared, top)
        become_one(rewriter, norm, root.epsilon, read, "RMSNormalization", rule)
