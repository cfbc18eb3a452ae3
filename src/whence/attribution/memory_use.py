"""What memory a run needs, step by step: which tensors are alive, and who holds the most at the
peak.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whence.building.location import MemoryRegion
from whence.building.program import Program, ProgramStep
from whence.graph import Ref
from whence.runtime.profiler import ProgramPart

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
    """By kernel: tensors in the arena that are made, read, or kept for later then."""
    held: tuple[Held, ...]
    """The largest that are alive at the peak; steps as the kernels' numbers."""

    @property
    def peak_bytes(self) -> int:
        return max(self.alive_bytes, default=0)

    @property
    def peak_step(self) -> int:
        """The place of the first kernel at which most is alive."""
        return self.alive_bytes.index(self.peak_bytes) if self.alive_bytes else 0


def memory_use(parts: Sequence[ProgramPart], kernels: Sequence[int]) -> MemoryUse:
    """As the program and its parts were planned; what a part is planned for is known when it runs.
    Only the steps that are `kernels` are told of. While a part runs, what the program holds at the
    step that it continues stays alive.
    """
    tensors = [
        [held._replace(first=first + held.first, last=first + held.last) for held in _tensors(each)]
        for first, each in parts
    ]
    outside = _held_for_parts(parts[0].program, tensors[0])
    alive: dict[int, int] = {}
    for number, ((first, program), inside) in enumerate(zip(parts, tensors, strict=True)):
        base = sum(held.bytes for held in outside) if number else 0
        alive.update(_alive(first, len(program.steps), inside, base))
    shown = {step: alive[step] for step in kernels if step in alive}
    peak = max(shown, key=lambda step: shown[step], default=0)
    there = [held for inside in tensors for held in inside if held.first <= peak <= held.last]
    if any(first <= peak for first, _ in parts[1:]):
        there += outside
    programs = [each.program for each in parts]
    return MemoryUse(
        sum(int(each.packed.nbytes) for each in programs),
        sum(each.plan.arena_bytes for each in programs),
        max(each.plan.scratch_bytes for each in programs),
        tuple(shown.values()),
        tuple(sorted(there, key=lambda held: -held.bytes)[:_MOST_HELD]),
    )


def _held_for_parts(program: Program, tensors: Sequence[Held]) -> list[Held]:
    """What is alive while other programs run in the place of a step."""
    replaced = [step.number for step in program.steps if is_continued(step)]
    return [each for each in tensors if any(each.first <= step <= each.last for step in replaced)]


def is_continued(step: ProgramStep) -> bool:
    """Do the steps of another program run in its place, if they can?"""
    return any(member.op == "Continuation" for member in step.members)


def _alive(first: int, count: int, tensors: Sequence[Held], base: int) -> Iterator[tuple[int, int]]:
    change = [base] + [0] * count
    for held in tensors:
        change[held.first - first] += held.bytes
        change[held.last + 1 - first] -= held.bytes
    return enumerate(itertools.accumulate(change[:-1]), first)


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
        size = graph.nbytes(ref)
        node = graph[ref.node]
        yield Held(
            size,
            first,
            max(first, last.get(ref, first)),
            tuple(sorted(node.origin)),
            str(graph.type_of(ref)),
        )
