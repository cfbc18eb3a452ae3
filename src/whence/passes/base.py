"""What a pass is.

A pass is a small frozen dataclass in a file of its own; its fields are its options. Most passes are
sets of local rules and derive from `RulePass`: they name the operators they look at, and try their
rules at each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from whence.errors import GraphError
from whence.graph import Check, Graph, Node, Rewriter
from whence.ops.definition import OpClass


@dataclass(frozen=True, slots=True)
class Pass(ABC):
    """One transformation. `run` changes the graph only through the rewriter, which keeps the
    ledger.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `whence passes`."""
    anchors: ClassVar[frozenset[str]] = frozenset()
    """The operators that the pass starts from: it is skipped when the graph holds none of them.
    Empty never skips.
    """
    classes: ClassVar[OpClass] = OpClass.NONE
    """Skip the pass when the graph holds no operator of these classes. `NONE` never skips."""
    ensures: ClassVar[Check] = Check.NONE
    """What the graph is afterwards, beyond the invariants that every pass keeps. Verified like
    them.
    """
    rounds_otherwise: ClassVar[bool] = False
    """The pass gives quantised operators the arithmetic of their runtime: codes may change by a
    quantum, and what follows from them by more.
    """

    def __post_init__(self) -> None:
        missing = [each for each in ("name", "summary") if not hasattr(self, each)]
        if isinstance(self, RulePass) and not self.anchors:
            missing.append("anchors")
        for each in missing:
            raise TypeError(
                f"pass {type(self).__name__} has no '{each}': write `{each} = ...` in its class"
            )

    @abstractmethod
    def run(self, rewriter: Rewriter) -> None:
        """Transform `rewriter.graph`. The manager calls it for the main graph and each nested graph
        in turn.
        """

    def why_skip(self, graph: Graph) -> str:
        """Why there is nothing to do, or the empty string. Decided from what operators are present,
        without looking at nodes.
        """
        if self.anchors and self.anchors.isdisjoint(graph.op_counts):
            few = sorted(self.anchors)[:3]
            return f"no {', '.join(few)}{', ...' if len(self.anchors) > 3 else ''}"
        if self.classes and not self.classes & graph.op_classes:
            return f"no operator of class {self.classes.name or self.classes}"
        return ""


@dataclass(frozen=True, slots=True)
class RulePass(Pass):
    """Local rules, tried at every node that is one of `anchors` until none applies any more."""

    @abstractmethod
    def visit(self, node: Node, rewriter: Rewriter) -> None:
        """Try the rules at `node`; apply at most one edit. Nodes around an edit are visited
        again.
        """

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        queue = deque(node for node in graph if node.op in self.anchors)
        # Nodes, not their ids: a node that inherits the id of a waiting one still has to be visited
        # itself.
        waiting = set(queue)
        visits_left = 50 * len(queue) + 1000
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            if node.graph is not graph:
                continue
            rewriter.fresh.clear()
            self.visit(node, rewriter)
            for fresh in rewriter.fresh:
                if fresh.op in self.anchors and fresh.graph is graph and fresh not in waiting:
                    waiting.add(fresh)
                    queue.append(fresh)
            visits_left -= 1
            if visits_left < 0:
                raise GraphError(
                    f"pass '{self.name}' does not come to an end at {node!r}: two of its rules undo"
                    " each other"
                )
