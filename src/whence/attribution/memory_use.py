"""What memory a run needs, step by step: which tensors are alive, and who holds the most at the
peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from whence.building.location import MemoryRegion
from whence.building.program import Program
from whence.graph import Graph, Ref
from whence.types import TensorType

_MOST_HELD = 20


class Held(NamedTuple):
    """A tensor of the arena."""

    bytes: int
    first: int
    """The step that makes it,"""
    last: int
    """and the last that reads it."""
    sources: tuple[int, ...]
    """The operators of the file that it is a result of."""
    type: str


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Of one run."""

    weights_bytes: int
    arena_bytes: int
    """What the plan takes; tensors that are never alive together share a place in it."""
    scratch_bytes: int
    """What kernels keep while they run, for each thread."""
    alive_bytes: tuple[int, ...]
    """By step: tensors in the arena that are made, read, or kept for later then."""
    held: tuple[Held, ...]
    """The largest that are alive at the peak."""

    @property
    def peak_bytes(self) -> int:
        return max(self.alive_bytes, default=0)

    @property
    def peak_step(self) -> int:
        """The first step at which most is alive."""
        return self.alive_bytes.index(self.peak_bytes) if self.alive_bytes else 0


def memory_use(program: Program) -> MemoryUse:
    """As the program was planned. What is known only when it runs, is not in it."""
    count = len(program.steps)
    tensors = list(_tensors(program))
    change = [0] * (count + 1)
    for held in tensors:
        change[held.first] += held.bytes
        change[held.last + 1] -= held.bytes
    alive, now = [], 0
    for each in change[:-1]:
        now += each
        alive.append(now)
    peak = alive.index(max(alive)) if alive else 0
    there = [held for held in tensors if held.first <= peak <= held.last]
    return MemoryUse(
        int(program.packed.nbytes),
        program.plan.arena_bytes,
        program.plan.scratch_bytes,
        tuple(alive),
        tuple(sorted(there, key=lambda held: -held.bytes)[:_MOST_HELD]),
    )


def _tensors(program: Program) -> Iterator[Held]:
    """What steps make that lies in the arena. Who reads a view reads what it is a view of."""
    graph, layout = program.graph, program.layout
    made = {node: step.number for step in program.steps for node in step.nodes}
    inside = {step.number: frozenset(step.nodes) for step in program.steps}
    last: dict[Ref, int] = {}
    for step in program.steps:
        for number in step.nodes:
            node = graph.get(number)
            for ref in node.inputs if node is not None else ():
                if ref is not None and ref.node not in inside[step.number]:
                    owner = layout.owner(ref)
                    last[owner] = max(last.get(owner, 0), step.number)
    for ref, place in layout.places.items():
        if place.region is not MemoryRegion.ARENA or ref in layout.owners or ref.node not in made:
            continue
        first = made[ref.node]
        size = _nbytes(graph, ref)
        node = graph[ref.node]
        yield Held(
            size,
            first,
            max(first, last.get(ref, first)),
            tuple(sorted(node.origin)),
            str(graph.type_of(ref)),
        )


def _nbytes(graph: Graph, ref: Ref) -> int:
    kind = graph.type_of(ref)
    return (kind.nbytes or 0) if isinstance(kind, TensorType) else 0
