"""An operator that a file has as one, and that other operators compute, becomes those operators.

1. Call(f)(x) = f(x)

A graph that is written to the kind of file it came from keeps its calls, and with them the
operators as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Node, Rewriter
from whence.passes.base import Pass
from whence.passes.control.inlining import Inlining, inline_all


@dataclass(frozen=True, slots=True)
class InlineCalls(Pass):
    name = "inline_calls"
    summary = "inline operators that hold the graph that computes them"
    anchors = frozenset({"Call"})

    def run(self, rewriter: Rewriter) -> None:
        inline_all(rewriter, {"Call": _plan})


# Call(f)(x) = f(x)
def _plan(rewriter: Rewriter, node: Node) -> Inlining | None:
    inlining = Inlining(rewriter, node, "a call is the operators that compute it")
    return inlining if inlining.connect(inlining.inline(node.bodies["body"], node.inputs)) else None
