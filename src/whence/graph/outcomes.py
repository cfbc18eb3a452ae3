"""What became of every source operator, read off the graph as it stands and the tombstones behind
it.

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

from whence.graph.graph import Graph
from whence.provenance import NO_ORIGIN, Outcome, Reason


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


_COUNTED = (Outcome.LIVE, Outcome.FOLDED, Outcome.REMOVED, Outcome.DEAD, Outcome.LOST)
# Folded into a constant that itself left the graph since: the work was still done at compile time.
_BURIED = {Reason.DEAD: Outcome.DEAD, Reason.FOLDED: Outcome.FOLDED}
