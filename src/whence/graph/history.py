"""The life of one source operator, from the file to where it is now, told from the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.graph.outcomes import outcomes
from whence.provenance import (
    Edge,
    EdgeKind,
    Origin,
    Outcome,
    SourceOp,
    Tombstone,
)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One thing that happened to the operator, or to a node that carries it."""

    pass_name: str
    rule: str
    kind: EdgeKind
    child: int
    """The node that carries it afterwards."""
    partners: Origin
    """The other source operators that are in the same node after the step."""


@dataclass(frozen=True, slots=True)
class History:
    source: SourceOp
    outcome: Outcome
    steps: tuple[HistoryStep, ...]
    tombstones: tuple[Tombstone, ...]
    live_in: tuple[Node, ...]
    """The nodes of the graph that carry the operator now, in execution order."""


def history_of(graph: Graph, source: SourceOp) -> History:
    """Everything the ledger knows about one source operator."""
    ledger = graph.ledger
    descendants = {source.id}
    steps = []
    for step in ledger.replayed_steps(frozenset(EdgeKind)):
        by_child: dict[int, list[Edge]] = {}
        for edge in step.edges:
            by_child.setdefault(edge.child, []).append(edge)
        involved = [
            child
            for child, parts in by_child.items()
            if child in descendants or any(edge.parent in descendants for edge in parts)
        ]
        for child in involved:
            parts = by_child[child]
            kind = next((edge.kind for edge in parts if edge.parent in descendants), parts[0].kind)
            partners = step.made[child] - {source.id}
            steps.append(HistoryStep(parts[0].pass_name, parts[0].rule, kind, child, partners))
        descendants.update(involved)
    live = [node for nested in graph.nested() for node in nested if source.id in node.origin]
    # What was put in because of the operator and taken out again is not its story.
    inserted = {edge.child for edge in ledger.edges if edge.kind is EdgeKind.INSERT}
    staying = {node.id for node in live}
    told = tuple(step for step in steps if step.child in staying or step.child not in inserted)
    stones = tuple(stone for stone in ledger.tombstones_of(source.id) if stone.node not in inserted)
    return History(source, outcomes(graph)[source.id - 1], told, stones, tuple(live))
