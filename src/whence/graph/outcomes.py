"""What became of every source operator, read off the graph as it stands and the tombstones behind
it; how it came to its end; and the life of one, from the file to where it is now.

1. live: a node that computes at run time carries it, and not only as an effect folded into
   constants.
2. folded: its work was done at compile time; all that carries it are constants, or operators
   through constants it was folded into.
3. dead, removed: nothing carries it; its last tombstone says that its result was unused, or names
   another reason.
4. lost: nothing carries it and nothing explains that. `Ledger.check_conserved` keeps this from
   happening.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.provenance import (
    NO_ORIGIN,
    Edge,
    EdgeKind,
    Ledger,
    Origin,
    Outcome,
    Reason,
    SourceOp,
    Tombstone,
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many source operators there are, and how many had each outcome. The outcomes add up to
    `source_ops`.
    """

    source_ops: int
    live: int
    folded: int
    removed: int
    dead: int
    lost: int

    @staticmethod
    def of(found: Iterable[Outcome]) -> Coverage:
        """The outcomes of all source operators, counted."""
        counts = Counter(found)
        return Coverage(counts.total(), *(counts[each] for each in _COUNTED))

    def __str__(self) -> str:
        counts = (
            (self.live, "live"),
            (self.folded, "folded"),
            (self.removed, "removed"),
            (self.dead, "dead"),
            (self.lost, "lost"),
        )
        return f"{self.source_ops} source operators: " + ", ".join(
            f"{count} {name}" for count, name in counts if count or name in {"live", "lost"}
        )


def outcomes(graph: Graph) -> list[Outcome]:
    """The outcome of every source operator, that of source `i` at index `i - 1`. Takes the main
    graph; nested graphs are looked into.
    """
    ledger = graph.ledger
    result = [Outcome.LOST] * ledger.n_sources
    for stone in ledger.tombstones:
        outcome = _BURIED.get(stone.reason, Outcome.REMOVED)
        for source_id in stone.origin:
            result[source_id - 1] = outcome
    folded = ledger.folded_origins()
    live: set[int] = set()
    carried: set[int] = set()
    for nested in graph.nested():
        for node in nested:
            carried |= node.origin
            if not node.is_const:
                live |= node.origin - folded.get(node.id, NO_ORIGIN)
    for source_id in carried:
        result[source_id - 1] = Outcome.LIVE if source_id in live else Outcome.FOLDED
    return result


def coverage(graph: Graph) -> Coverage:
    """The outcomes of all source operators, counted."""
    return Coverage.of(outcomes(graph))


class Elimination(NamedTuple):
    """How a source operator that no longer runs came to its end: the step that `whence why` tells
    of, in one row.
    """

    source_id: int
    reason: str
    """`folded`, or that of the tombstone."""
    pass_name: str
    rule: str
    into: int | None
    """The node that carries it now, or whose result stands in for it."""


def eliminated(graph: Graph) -> list[Elimination]:
    """Every source operator that no longer runs, by number. Takes the main graph; nested graphs are
    looked into.

    1. folded: the first `fold` edge on its way, and a node that carries it now.
    2. dead, removed: its last tombstone. Tombstones of nodes that were put in because of it, and
       taken out again, are not its own.
    """
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
    """The life of one source operator, from the file to where it is now."""

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


_COUNTED = (Outcome.LIVE, Outcome.FOLDED, Outcome.REMOVED, Outcome.DEAD, Outcome.LOST)
# Folded into a constant that itself left the graph since: the work was still done at compile time.
_BURIED = {Reason.DEAD: Outcome.DEAD, Reason.FOLDED: Outcome.FOLDED}
