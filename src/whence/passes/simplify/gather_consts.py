"""Constants go to the front of the list.

1. A constant reads nothing, so it may stand before everything. All of them do afterwards, in the
   order they had.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Check, Rewriter
from whence.passes.base import Pass


@dataclass(frozen=True, slots=True)
class GatherConsts(Pass):
    name = "gather_consts"
    summary = "move constants to the front of the list"
    ensures = Check.NONCONST

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        consts, late, others = [], 0, False
        for node in graph:
            if not node.is_const:
                others = True
                continue
            consts.append(node)
            late += others
        if not late:
            return
        # Last to first, each to the front: the order stays, and no order number has to be found
        # between two others.
        for node in reversed(consts):
            graph.move_to_front(node)
        rewriter.rules["a constant may stand before everything"] += late
