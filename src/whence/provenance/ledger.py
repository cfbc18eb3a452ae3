"""The ledger: an append-only account of how every node came to be, and what became of every source
operator.

Ids are shared by source operators and nodes. Source operator 7 is read as node 7; nodes that the
file does not hold (inputs, constants, everything passes make) get ids after the last source
operator. So an edge `child <- parent` needs no second namespace, and "which source operators are in
this node" is a walk along the edges.

The ledger also counts, for each source operator, the nodes that have it in their origin. The count
makes the promise cheap to keep: an operator whose count falls to zero needs a tombstone afterwards,
before the pass ends, and only those are looked at.
"""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from whence.errors import ProvenanceError
from whence.provenance.pass_report import PassReport
from whence.provenance.source import NO_ORIGIN, Origin, SourceOp, union_of


class EdgeKind(enum.StrEnum):
    """How a child came from a parent."""

    COPY = "copy"
    """One node took the place of one node."""
    FUSE = "fuse"
    """Several nodes became one that does the work of all."""
    SPLIT = "split"
    """One node became several."""
    LOWER = "lower"
    """A node was restated in other operators."""
    FOLD = "fold"
    """The parent's work is done at compile time; the child's constants have its effect."""
    CSE = "cse"
    """The child does the work for an identical twin as well."""
    INSERT = "insert"
    """The child was put in because of the parent: a layout change, a cast."""
    REMAT = "remat"
    """The child repeats work of a parent that lives on."""


class Reason(enum.StrEnum):
    """Why an operator left no node behind."""

    IDENTITY = "identity"
    """It computed its own input."""
    FOLDED = "constant-folded"
    DEAD = "dead"
    """Nothing used its result."""
    CSE = "cse"
    """An identical operator already computed it."""
    CANCELLED = "cancelled"
    """It and its neighbours undid each other."""
    ABSORBED = "absorbed"
    """Its effect moved into attributes of a neighbour."""
    EARLIER = "removed-earlier"
    """It is not in the file: the tool that wrote the file had removed it."""
    INLINED = "inlined"
    """A call or a branch was replaced by the operators inside it."""


class Edge(NamedTuple):
    child: int
    parent: int
    kind: EdgeKind
    pass_name: str
    rule: str
    step: int
    """The rewrite it belongs to. All edges of one step happen at once: a parent is what it was
    before the step.
    """


class Entry(NamedTuple):
    """How one node came to be: what `Ledger.record` is told."""

    child: int
    parents: tuple[tuple[int, EdgeKind], ...]
    pass_name: str
    rule: str


class ReplayedStep(NamedTuple):
    """One rewrite, when the history is gone through again."""

    edges: list[Edge]
    before: Mapping[int, Origin]
    """The origins of nodes, by id, before the rewrite: a parent is what it was then, also when
    another node takes over its id.
    """
    made: Mapping[int, Origin]
    """The origins of the nodes that the rewrite made."""


class Tombstone(NamedTuple):
    """A node that left the graph without a successor that carries its origin."""

    node: int
    origin: Origin
    reason: Reason
    pass_name: str
    rule: str
    into: int | None = None
    """The node whose result stands in for it, when there is one."""


class Outcome(enum.StrEnum):
    """What became of a source operator."""

    LIVE = "live"
    FOLDED = "folded"
    REMOVED = "removed"
    DEAD = "dead"
    LOST = "lost"


class Ledger:
    """One per model, shared by its main graph and all nested graphs."""

    def __init__(self, sources: Iterable[SourceOp] = ()) -> None:
        self.sources: list[SourceOp] = []
        self.edges: list[Edge] = []
        self.tombstones: list[Tombstone] = []
        self.passes: list[PassReport] = []
        """What every pass did, in order; of passes before the file was written, only the edges."""
        self._node_counts: list[int] = [0]
        self._suspects: set[int] = set()
        self._next_id = 1
        self._next_step = 1
        for source in sources:
            self.add_source(source)

    # ---- ids ----

    def add_source(self, source: SourceOp) -> None:
        """Enter the next operator of the file; all come before the first node."""
        if source.id != len(self.sources) + 1 or self._next_id != source.id:
            raise ProvenanceError(
                f"source operator {source.name!r} has number {source.id}; the next free number is"
                f" {self._next_id}"
            )
        self.sources.append(source)
        self._node_counts.append(0)
        self._suspects.add(source.id)
        self._next_id += 1

    def source(self, source_id: int) -> SourceOp:
        return self.sources[source_id - 1]

    @property
    def n_sources(self) -> int:
        return len(self.sources)

    def new_id(self) -> int:
        """An id no node or source operator of this model has had."""
        fresh = self._next_id
        self._next_id += 1
        return fresh

    @property
    def next_id(self) -> int:
        """The first id that nothing has had."""
        return self._next_id

    @property
    def next_step(self) -> int:
        """The number that the next rewrite gets."""
        return self._next_step

    def resume(
        self, edges: Iterable[Edge], tombstones: Iterable[Tombstone], next_id: int, next_step: int
    ) -> None:
        """Take up a written history, after all sources and before the first node."""
        self.edges.extend(edges)
        for stone in tombstones:
            self.add_tombstone(stone)
        self._next_id, self._next_step = next_id, next_step

    def copy(self) -> Ledger:
        """An independent ledger with the same history."""
        twin = Ledger()
        twin.sources, twin.edges, twin.tombstones = (
            list(self.sources),
            list(self.edges),
            list(self.tombstones),
        )
        twin.passes = list(self.passes)
        twin._node_counts, twin._suspects = list(self._node_counts), set(self._suspects)
        twin._next_id, twin._next_step = self._next_id, self._next_step
        return twin

    # ---- entries; the graph and the rewriter make them ----

    def record(
        self, child: int, parents: Iterable[tuple[int, EdgeKind]], pass_name: str, rule: str
    ) -> None:
        """Enter where one node came from, as a step of its own."""
        self.record_step([Entry(child, tuple(parents), pass_name, rule)])

    def record_step(self, entries: Iterable[Entry]) -> None:
        """Enter where the nodes of one rewrite came from.

        A node that takes over the id of a parent keeps that parent's origin without an edge to
        itself.
        """
        step = self._next_step
        self._next_step += 1
        for child, parents, pass_name, rule in entries:
            self.edges.extend(
                Edge(child, parent, kind, pass_name, rule, step)
                for parent, kind in parents
                if parent != child
            )

    def add_tombstone(self, tombstone: Tombstone) -> None:
        """Enter why a node left, after it left. That explains those of its source operators which
        nothing carries any more.
        """
        self.tombstones.append(tombstone)
        self._suspects -= tombstone.origin

    def node_added(self, origin: Origin) -> None:
        """A node with this origin entered a graph."""
        for source_id in origin:
            self._node_counts[source_id] += 1

    def node_removed(self, origin: Origin) -> None:
        """A node with this origin left a graph."""
        for source_id in origin:
            self._node_counts[source_id] -= 1
            if self._node_counts[source_id] == 0:
                self._suspects.add(source_id)

    # ---- questions ----

    def node_count(self, source_id: int) -> int:
        """How many nodes have this source operator in their origin."""
        return self._node_counts[source_id]

    def lost(self) -> list[SourceOp]:
        """Source operators without a node or a tombstone. Must be empty after every pass."""
        self._suspects = {s for s in self._suspects if self._node_counts[s] == 0}
        return [self.source(s) for s in sorted(self._suspects)]

    def check_conserved(self, pass_name: str = "") -> None:
        """Raise a `ProvenanceError` that names the pass when it lost an operator; no pass, when
        none has run. Costs time only for what the pass removed.
        """
        lost = self.lost()
        if lost:
            names = ", ".join(
                f"{source.name!r} ({source.op}, number {source.id})" for source in lost[:5]
            )
            more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
            if not pass_name:
                raise ProvenanceError(
                    f"the graph has neither a node nor a tombstone for {names}{more}, and no pass"
                    " has run yet: what made the graph must give each source operator one"
                )
            raise ProvenanceError(
                f"pass '{pass_name}' lost {names}{more}: make new nodes through Edit.node so that"
                " they inherit, or give the operator a tombstone with a reason"
            )

    def steps(self) -> Iterator[list[Edge]]:
        """The edges rewrite by rewrite, in the order of events."""
        for _, edges in itertools.groupby(self.edges, _step_of):
            yield list(edges)

    def replay_origins(self) -> dict[int, Origin]:
        """The origin of every node id, derived from the edges alone, in the order they were
        written.

        Order matters: a node that inherits an id grows that id's origin, and only children made in
        later steps see the growth.
        """
        return self._replay(frozenset(EdgeKind))

    def folded_origins(self) -> dict[int, Origin]:
        """For every node id, the part of its origin that reached it only through `fold` edges:
        effect without run-time work.
        """
        working = self._replay(frozenset(EdgeKind) - {EdgeKind.FOLD})
        return {
            node: origin - working.get(node, NO_ORIGIN)
            for node, origin in self.replay_origins().items()
        }

    def _replay(self, kinds: frozenset[EdgeKind]) -> dict[int, Origin]:
        origins = self._own_origins()
        for step in self.replayed_steps(kinds):
            origins.update(step.made)
        return origins

    def replayed_steps(self, kinds: frozenset[EdgeKind]) -> Iterator[ReplayedStep]:
        """The rewrites in the order of events, with the origins that nodes had by then and got,
        following edges of these kinds.
        """
        origins = self._own_origins()
        for edges in self.steps():
            parts: dict[int, list[Origin]] = {}
            for edge in edges:
                if edge.kind in kinds:
                    parts.setdefault(edge.child, [origins.get(edge.child, NO_ORIGIN)]).append(
                        origins.get(edge.parent, NO_ORIGIN)
                    )
            made = {child: union_of(inherited) for child, inherited in parts.items()}
            yield ReplayedStep(edges, origins, made)
            origins.update(made)

    def _own_origins(self) -> dict[int, Origin]:
        return {source.id: frozenset((source.id,)) for source in self.sources}

    def children(self) -> dict[int, list[Edge]]:
        """The edges by parent, for walking from a source operator to what it became."""
        index: dict[int, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            index[edge.parent].append(edge)
        return dict(index)

    def tombstones_of(self, source_id: int) -> Sequence[Tombstone]:
        return [stone for stone in self.tombstones if source_id in stone.origin]


def _step_of(edge: Edge) -> int:
    return edge.step
