"""Dead nodes leave: what no output needs, directly or through others.

1. A node whose results nobody reads is removed, and in the same sweep whatever only it read: whole
   dead chains, constants included.
2. A value that a nested graph captures but does not use is no longer passed in.

Inputs stay, as they are the model's signature; so do retained nodes. An output of a node with
several may stay unread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from whence.graph import Check, Node, Ref, Rewriter
from whence.graph.change import Change
from whence.graph.state import GIVEN
from whence.passes.base import Pass
from whence.passes.control.captures import drop_captures, unused_captures
from whence.provenance import Reason


@dataclass(frozen=True, slots=True)
class RemoveDeadNodes(Pass):
    name = "remove_dead_nodes"
    summary = "remove nodes that no output uses"
    ensures = Check.DEADNODES

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        dead: dict[int, Node] = {}
        for node in reversed(graph):
            # Nearly every node has a living reader, and then this is all there is to do.
            for user in node._uses:
                if user not in dead:
                    break
            else:
                if node.outputs and not node.retained and node.op not in GIVEN:
                    dead[node.id] = node
                    continue
            if node.bodies:
                self._clean_bodies(node, rewriter)
        if dead:
            _take_out(rewriter, list(dead.values()), Reason.DEAD, "nothing reads it", None)

    def _clean_bodies(self, node: Node, rewriter: Rewriter) -> None:
        for body in node.bodies.values():
            inner = Rewriter(body, rewriter.pass_name)
            self.run(inner)
            rewriter.rules.update(inner.rules)
            rewriter.removed += inner.removed
        # f(x, y) = f'(x) when f does not look at y
        unused = unused_captures(node)
        if unused:
            drop_captures(node, unused)
            rewriter.rules["an unused capture is not passed in"] += len(unused)


def remove_unread(
    rewriter: Rewriter,
    refs: Iterable[Ref | None],
    *,
    reason: Reason,
    rule: str,
    into: int | None,
    last: Collection[str] = (),
) -> None:
    """Take out those of the nodes behind `refs` that nobody reads any more, and whatever only they
    read.

    A rule calls this after it made its own inputs superfluous, so that the ledger tells the true
    reason: what a constant replaced was folded, and is not merely dead. Operators in `last` leave,
    but what they read stays for the pass above to judge.
    """
    graph = rewriter.graph
    waiting = [ref.node for ref in refs if ref is not None]
    while waiting:
        node = graph.get(waiting.pop())
        if node is None or node._uses or node.retained or node.op in GIVEN:
            continue
        if node.op not in last:
            waiting.extend(ref.node for ref in node.inputs if ref is not None)
        _take_out(rewriter, [node], reason, rule, into, count=False)


def _take_out(
    rewriter: Rewriter,
    nodes: list[Node],
    reason: Reason,
    rule: str,
    into: int | None,
    *,
    count: bool = True,
) -> None:
    graph = rewriter.graph
    Change(
        graph,
        rewriter.pass_name,
        rule,
        removed=nodes,
        tombstones={node.id: (reason, into) for node in nodes},
    ).apply()
    rewriter.removed += len(nodes)
    if count:
        rewriter.rules[rule] += len(nodes)
