"""How every source operator that no longer runs came to its end: the step that `whence why` tells
of, in one row.

1. folded: the first `fold` edge on its way, and a node that carries it now.
2. dead, removed: its last tombstone. Tombstones of nodes that were put in because of it, and taken
   out again, are not its own.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.graph.graph import Graph
from whence.graph.outcomes import outcomes
from whence.provenance import (
    NO_ORIGIN,
    Edge,
    EdgeKind,
    Ledger,
    Outcome,
    Tombstone,
)


class Elimination(NamedTuple):
    source_id: int
    reason: str
    """`folded`, or that of the tombstone."""
    pass_name: str
    rule: str
    into: int | None
    """The node that carries it now, or whose result stands in for it."""


def eliminated(graph: Graph) -> list[Elimination]:
    """By number. Takes the main graph; nested graphs are looked into."""
    ledger = graph.ledger
    first_node: dict[int, int] = {}
    for nested in graph.nested():
        for node in nested:
            for source_id in node.origin:
                first_node[source_id] = min(node.id, first_node.get(source_id, node.id))
    folds, stones = _first_folds(ledger), _last_tombstones(ledger)
    found = []
    for source_id, outcome in enumerate(outcomes(graph), 1):
        fold, stone = folds.get(source_id), stones.get(source_id)
        if outcome is Outcome.FOLDED and fold is not None:
            into = first_node.get(source_id, stone.into if stone is not None else None)
            found.append(Elimination(source_id, outcome.value, fold.pass_name, fold.rule, into))
        elif outcome is not Outcome.LIVE and stone is not None:
            found.append(
                Elimination(source_id, stone.reason.value, stone.pass_name, stone.rule, stone.into)
            )
    return found


def _first_folds(ledger: Ledger) -> dict[int, Edge]:
    """What was inserted because of an operator may be folded before the operator is: such edges are
    not followed.
    """
    first: dict[int, Edge] = {}
    for step in ledger.replayed_steps(frozenset(EdgeKind) - {EdgeKind.INSERT}):
        for edge in step.edges:
            if edge.kind is EdgeKind.FOLD:
                for source_id in step.before.get(edge.parent, NO_ORIGIN):
                    first.setdefault(source_id, edge)
    return first


def _last_tombstones(ledger: Ledger) -> dict[int, Tombstone]:
    inserted = {edge.child for edge in ledger.edges if edge.kind is EdgeKind.INSERT}
    own, other = dict[int, Tombstone](), dict[int, Tombstone]()
    for stone in ledger.tombstones:
        (other if stone.node in inserted else own).update(dict.fromkeys(stone.origin, stone))
    return other | own
