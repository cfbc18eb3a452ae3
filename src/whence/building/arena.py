"""The static memory plan: every value's place in one arena, places shared by values that are never
needed at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from whence.building.aligned_memory import ALIGNMENT, aligned

LARGEST = 1 << 48
"""Bytes of an arena: more than any machine has, and far from the end of 64 bits."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Memory needed from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int
    offset: int = 0
    """From where its block begins: a multiple of `ALIGNMENT`."""


Block: TypeAlias = Sequence[Lifetime]
"""What lies at fixed distances. Where a part of a block is not needed yet, or no more, others may
lie.
"""


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    offsets: tuple[int, ...]
    """Where each block begins, in the order given."""
    arena_bytes: int
    total_bytes: int
    """What the blocks would take side by side."""


Planner: TypeAlias = Callable[[Sequence[Block]], ArenaPlan]
"""Finds a place for every block: `plan_arena`, or `side_by_side`."""


def side_by_side(blocks: Sequence[Block]) -> ArenaPlan:
    """Every block by itself, with a gap after each, so that reading or writing past its end shows
    (see `building/redzones.py`).
    """
    sizes = [max((each.offset + each.size for each in block), default=0) for block in blocks]
    *offsets, top = itertools.accumulate(
        (aligned(size) + ALIGNMENT for size in sizes), initial=ALIGNMENT
    )
    return ArenaPlan(tuple(offsets), top, sum(sizes))


def plan_arena(blocks: Sequence[Block]) -> ArenaPlan:
    """Largest first, each at the lowest place where nothing alive at the same time lies.

    Large blocks decide the size of the arena; small ones fill the gaps between them.
    """
    offsets = [0] * len(blocks)
    sizes = [max((each.offset + each.size for each in block), default=0) for block in blocks]
    placed: list[tuple[int, Lifetime]] = []
    top = 0
    for index in sorted(
        range(len(blocks)),
        key=lambda each: (-sizes[each], min((part.first for part in blocks[each]), default=0)),
    ):
        # What is placed keeps the block from beginning anywhere between these two.
        taken = sorted(
            (begin - ours.offset - aligned(ours.size), begin - ours.offset + aligned(theirs.size))
            for ours in blocks[index]
            for begin, theirs in placed
            if theirs.first <= ours.last and ours.first <= theirs.last
        )
        offset = 0
        for before, after in taken:
            if offset <= before:
                break
            offset = max(offset, after)
        offsets[index] = offset
        placed += [(offset + each.offset, each) for each in blocks[index]]
        top = max(top, offset + aligned(sizes[index]))
    return ArenaPlan(tuple(offsets), top, sum(sizes))
