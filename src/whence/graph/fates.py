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
from dataclasses import dataclass

from whence.graph.graph import Graph
from whence.provenance import NO_ORIGIN, Fate, Reason


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many source operators there are, and how many met each fate. The fates add up to
    `source_ops`.
    """

    source_ops: int
    live: int
    folded: int
    removed: int
    dead: int
    lost: int

    def __str__(self) -> str:
        fates = (
            (self.live, "live"),
            (self.folded, "folded"),
            (self.removed, "removed"),
            (self.dead, "dead"),
            (self.lost, "lost"),
        )
        return f"{self.source_ops} source operators: " + ", ".join(
            f"{count} {name}" for count, name in fates if count or name in {"live", "lost"}
        )


def fates(graph: Graph) -> list[Fate]:
    """The fate of every source operator, that of source `i` at index `i - 1`. Takes the main graph;
    nested graphs are looked into.
    """
    ledger = graph.ledger
    result = [Fate.LOST] * ledger.n_sources
    for stone in ledger.tombstones:
        fate = _BURIED.get(stone.reason, Fate.REMOVED)
        for source_id in stone.origin:
            result[source_id - 1] = fate
    folded = ledger.folded_origins()
    live: set[int] = set()
    carried: set[int] = set()
    for nested in graph.nested():
        for node in nested:
            carried |= node.origin
            if not node.is_const:
                live |= node.origin - folded.get(node.id, NO_ORIGIN)
    for source_id in carried:
        result[source_id - 1] = Fate.LIVE if source_id in live else Fate.FOLDED
    return result


def coverage(graph: Graph) -> Coverage:
    """The fates of all source operators, counted."""
    counts = Counter(fates(graph))
    return Coverage(
        graph.ledger.n_sources,
        counts[Fate.LIVE],
        counts[Fate.FOLDED],
        counts[Fate.REMOVED],
        counts[Fate.DEAD],
        counts[Fate.LOST],
    )


# Folded into a constant that itself left the graph since: the work was still done at compile time.
_BURIED = {Reason.DEAD: Fate.DEAD, Reason.FOLDED: Fate.FOLDED}
