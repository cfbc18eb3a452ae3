"""The life of one source operator, from the file to where it is now, told from the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.graph.outcomes import outcomes
from whence.provenance import (
    NO_ORIGIN,
    Edge,
    EdgeKind,
    Origin,
    Outcome,
    SourceOp,
    Tombstone,
    union_of,
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
    carriers = {source.id}
    origins: dict[int, Origin] = {each.id: frozenset((each.id,)) for each in ledger.sources}
    steps = []
    for edges in ledger.steps():
        made: dict[int, list[Edge]] = {}
        for edge in edges:
            made.setdefault(edge.child, []).append(edge)
        # A parent is what it was before the step, also when another node takes over its id in the
        # step.
        whole = {
            child: union_of(
                [
                    origins.get(child, NO_ORIGIN),
                    *(origins.get(edge.parent, NO_ORIGIN) for edge in parts),
                ]
            )
            for child, parts in made.items()
        }
        involved = [
            child
            for child, parts in made.items()
            if child in carriers or any(edge.parent in carriers for edge in parts)
        ]
        for child in involved:
            parts = made[child]
            kind = next((edge.kind for edge in parts if edge.parent in carriers), parts[0].kind)
            steps.append(
                HistoryStep(
                    parts[0].pass_name, parts[0].rule, kind, child, whole[child] - {source.id}
                )
            )
        carriers.update(involved)
        origins.update(whole)
    live = [node for nested in graph.nested() for node in nested if source.id in node.origin]
    # What was put in because of the operator and taken out again is not its story.
    inserted = {edge.child for edge in ledger.edges if edge.kind is EdgeKind.INSERT}
    staying = {node.id for node in live}
    told = tuple(step for step in steps if step.child in staying or step.child not in inserted)
    stones = tuple(stone for stone in ledger.tombstones_of(source.id) if stone.node not in inserted)
    return History(source, outcomes(graph)[source.id - 1], told, stones, tuple(live))
