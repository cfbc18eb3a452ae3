"""An operator that cannot work is an error only where it runs.

1. f(x) = Fail(x) where f is certain to fail on what it is given, and stands on a side of a choice
   that a run may not take

What every run needs is left as it is: that such a model cannot run is said when it is compiled.
`FlattenBranches` keeps branches that must fail apart, but of some operators only what passes find
out later tells it: the size of an axis, the value of an index.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Rewriter
from whence.graph.guards import guards_of_nodes
from whence.graph.operands import why_it_fails
from whence.passes.base import Pass

_RULE = "what cannot work says so when it is needed"


@dataclass(frozen=True, slots=True)
class PostponeFailures(Pass):
    name = "postpone_failures"
    summary = "let operators that cannot work fail only in runs that need them"
    anchors = frozenset({"Choose"})

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        for number in guards_of_nodes(graph):
            node = graph[number]
            why = why_it_fails(graph, node)
            if why:
                edit = rewriter.edit(node, rule=_RULE)
                edit.finish(node, edit.node("Fail", node.inputs, {"why": why}, node.outputs))
