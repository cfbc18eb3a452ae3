"""Nested graphs that are certain to run exactly once, or never, move into the graph around them.

1. An `If` with a constant condition is the branch it takes. The other branch is dead.
2. A `Loop` with one iteration is its body, each scan output with a leading dimension of 1.
3. A `Loop` with no iteration that collects nothing yields the values it was given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Rewriter
from whence.graph.iterations import captures
from whence.ops.registry import one_of
from whence.passes.base import Pass
from whence.passes.const_values import const_bool, const_ints
from whence.passes.control.inlining import Inlining, inline_all


@dataclass(frozen=True, slots=True)
class InlineBranches(Pass):
    name = "inline_branches"
    summary = "inline branches and loops whose conditions are constant"
    anchors = one_of("If", "Loop")

    folding: Pass | None = None
    """What is folded whenever something was inlined: further courses may be certain then."""

    def run(self, rewriter: Rewriter) -> None:
        plans = {"If": _plan_if, "Loop": _plan_loop}
        while inline_all(rewriter, plans) and self.folding is not None:
            self.folding.run(rewriter)


# If(true, f, g) = f, If(false, f, g) = g
def _plan_if(rewriter: Rewriter, node: Node) -> Inlining | None:
    taken = const_bool(rewriter.graph, node.input(0))
    if taken is None:
        return None
    rule = (
        f"an If that is always {'true' if taken else 'false'} is its {'then' if taken else 'else'}"
        " branch"
    )
    inlining = Inlining(rewriter, node, rule)
    results = inlining.inline(
        node.bodies["then_branch" if taken else "else_branch"], node.inputs[1:]
    )
    return inlining if inlining.connect(results) else None


def _plan_loop(rewriter: Rewriter, node: Node) -> Inlining | None:
    graph = rewriter.graph
    trips = const_ints(graph, node.input(0))
    proceeds = True if node.operand("cond") is None else const_bool(graph, node.operand("cond"))
    formal = len(node.inputs) - captures(node)
    carried = node.inputs[2:formal]
    # Loop(0, c, v, f) = Loop(n, false, v, f) = v
    if proceeds is False or (trips is not None and len(trips) == 1 and trips[0] <= 0):
        inlining = Inlining(rewriter, node, "a Loop of no iterations yields what it was given")
        return inlining if inlining.connect(carried) else None
    # Loop(1, true, v, f) = f(0, true, v)
    if proceeds is True and trips == (1,):
        inlining = Inlining(rewriter, node, "a Loop of one iteration is its body")
        first = [inlining.const(np.array(0, np.int64)), inlining.const(np.array(True))]
        _, *results = inlining.inline(
            node.bodies["body"], [*first, *carried, *node.inputs[formal:]]
        )
        rows = [inlining.row(ref) for ref in results[len(carried) :]]
        return inlining if inlining.connect([*results[: len(carried)], *rows]) else None
    return None
