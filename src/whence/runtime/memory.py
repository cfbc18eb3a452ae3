"""The static memory plan: every value's place in one arena, places shared by values that are never needed at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A block of memory needed from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    offsets: tuple[int, ...]
    """Of each block, in the order given."""
    arena_bytes: int
    total_bytes: int
    """What the blocks would take side by side."""


def plan_memory(blocks: Sequence[Lifetime]) -> MemoryPlan:
    """Largest first, each at the lowest place where nothing alive at the same time lies.

    Large blocks decide the size of the arena; small ones fill the gaps between them.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    top = 0
    for index in sorted(range(len(blocks)), key=lambda each: (-blocks[each].size, blocks[each].first)):
        block = blocks[index]
        neighbours = sorted(
            (offsets[other], offsets[other] + aligned(blocks[other].size))
            for other in placed
            if blocks[other].first <= block.last and block.first <= blocks[other].last
        )
        offset = 0
        for begin, end in neighbours:
            if offset + aligned(block.size) <= begin:
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append(index)
        top = max(top, offset + aligned(block.size))
    return MemoryPlan(tuple(offsets), top, sum(block.size for block in blocks))


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
