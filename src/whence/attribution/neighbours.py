"""What feeds an operator of the file and what it feeds, and for each of those whether it runs in
the same kernel, and if not, why not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from whence.attribution.outcome_text import kernels_text, without_kernel
from whence.building.program import Program, ProgramStep
from whence.graph import Graph, Node
from whence.graph.outcomes import outcomes
from whence.graph.state import BOUNDARY
from whence.provenance import Outcome, SourceOp


@dataclass(slots=True)
class Links:
    """The neighbours of one operator in the file: source operators by number, inputs and outputs of
    the model by name.
    """

    feeders: dict[int | str, None] = field(default_factory=dict)
    readers: dict[int | str, None] = field(default_factory=dict)


def links_of(graph: Graph) -> dict[int, Links]:
    """The neighbours of every operator, from the graph as it was read: passes have not changed it
    yet.
    """
    found = {source.id: Links() for source in graph.ledger.sources}
    for nested in graph.nested():
        for node in nested:
            makers = [nested[ref.node] for ref in node.inputs if ref is not None]
            for maker in makers:
                for source in node.origin:
                    found[source].feeders.update(dict.fromkeys(_ends(maker)))
                for source in maker.origin:
                    found[source].readers.update(dict.fromkeys(_ends(node)))
    return found


_ENDS = BOUNDARY - {"Const"}


def _ends(node: Node) -> Iterable[int | str]:
    if node.origin:
        return sorted(node.origin)
    return [f"{node.op.lower()} {node.name}"] if node.op in _ENDS else []


@dataclass(frozen=True, slots=True)
class Neighbour:
    name: str
    op: str
    """Empty for an input or output of the model."""
    where: str
    """Where it runs, or what became of it."""
    why_apart: tuple[str, ...] = ()
    """Why it is not in the same kernel; nothing when it is, or when it does not run."""
    through: str = ""
    """The operator that does not run any more and stands between, or empty."""


class Neighbourhood:
    """Knows the kernels of a program, and answers for one operator after the other."""

    def __init__(self, program: Program, links: Mapping[int, Links]) -> None:
        self._program, self._links = program, links
        self._outcomes = outcomes(program.graph)
        self._kernel = {node: step for step in program.steps for node in step.nodes}
        self._nodes: dict[int, list[Node]] = {}
        folded = program.graph.ledger.folded_origins()
        for node in program.graph:
            if not node.is_const:
                for source in node.origin - folded.get(node.id, frozenset()):
                    self._nodes.setdefault(source, []).append(node)

    def kernels(self, source: SourceOp) -> list[ProgramStep]:
        """The steps that do the operator's work, in order."""
        steps = {
            step.number: step
            for node in self._nodes.get(source.id, ())
            if (step := self._kernel.get(node.id)) is not None
        }
        return [steps[number] for number in sorted(steps)]

    def without_kernel(self, source: SourceOp) -> str:
        """Why there is no step that does its work."""
        nodes = self._nodes.get(source.id)
        if nodes:
            return without_kernel({node.op for node in nodes})
        return "runs inside a nested graph"

    def feeders(self, source: SourceOp) -> list[Neighbour]:
        """What it reads. Behind an operator that does not run any more stands the one that feeds
        that.
        """
        return list(self._around(source, feeds=True))

    def readers(self, source: SourceOp) -> list[Neighbour]:
        """What reads it, likewise."""
        return list(self._around(source, feeds=False))

    def _around(self, source: SourceOp, *, feeds: bool) -> Iterator[Neighbour]:
        """The neighbours, nearest first."""
        seen: set[int | str] = {source.id}
        waiting: list[tuple[int, str]] = [(source.id, "")]
        while waiting:
            number, through = waiting.pop(0)
            links = self._links[number]
            for each in links.feeders if feeds else links.readers:
                if each in seen:
                    continue
                seen.add(each)
                yield self._neighbour(source, each, through, feeds=feeds)
                if isinstance(each, int) and self._outcomes[each - 1] is not Outcome.LIVE:
                    waiting.append((each, self._program.graph.ledger.source(each).name))

    def _neighbour(
        self, source: SourceOp, other: int | str, through: str, *, feeds: bool
    ) -> Neighbour:
        if isinstance(other, str):
            kind, _, name = other.partition(" ")
            return Neighbour(name, "", f"an {kind} of the model", through=through)
        them = self._program.graph.ledger.source(other)
        neighbour = partial(Neighbour, them.name, them.op, through=through)
        fate = self._outcomes[other - 1]
        if fate is not Outcome.LIVE:
            return neighbour(f"which does not run: {fate.value}")
        own, theirs = self.kernels(source), self.kernels(them)
        if shared := [step.number for step in theirs if step in own]:
            return neighbour(f"in the same kernel, {kernels_text(shared)}")
        where = self.without_kernel(them)
        if theirs:
            where = f"in {kernels_text([step.number for step in theirs])}"
        if not own or not theirs:
            return neighbour(where)
        first, second = (them, source) if feeds else (source, them)
        return neighbour(where, tuple(self._reasons(first, second)))

    def _reasons(self, first: SourceOp, second: SourceOp) -> list[str]:
        """Why the work of `first`, which `second` reads, is done in another kernel."""
        graph, missed = self._program.graph, self._program.fused.groups.missed
        makers = {node.id for node in self._nodes[first.id]}
        users = {node.id for node in self._nodes[second.id]}
        direct = [
            each.text for each in missed if each.producer in makers and each.consumer in users
        ]
        if direct:
            return list(dict.fromkeys(direct))
        # Something that neither of them is may stand between the two, such as a change of layout.
        between = [
            (before, after)
            for before in missed
            if before.producer in makers
            for after in missed
            if after.producer == before.consumer and after.consumer in users
        ]
        if between:
            return list(
                dict.fromkeys(
                    f"{graph[after.producer].op} stands between them: {before.text}; {after.text}"
                    for before, after in between
                )
            )
        if self._groups(makers) & self._groups(users):
            return ["they were fused, but no kernel does both: their group was taken apart again"]
        return ["nothing flows from one to the other any more"]

    def _groups(self, nodes: Iterable[int]) -> set[int]:
        return {
            entry.id for node in nodes if (entry := self._program.fused.entry_of(node)) is not None
        }
