"""Where a value of a program lies. Running a program from the cache needs no more than this of its
memory layout.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class MemoryRegion(enum.IntEnum):
    """Numbers as in whence_runtime.h."""

    ARENA = 0
    WEIGHTS = 1
    INPUT = 2
    OUTPUT = 3
    DYNAMIC = 4
    """Not in planned memory: a value whose size is known only when it exists, kept by the run
    itself.
    """
    STATE = 5
    """The value of a variable when the run begins."""
    NEXT = 6
    """The value that a variable gets; the same memory as `STATE` for one that is written in
    place.
    """


@dataclass(frozen=True, slots=True)
class Location:
    region: MemoryRegion
    index: int = 0
    """Of the input, output or variable; in an arena whose sizes are open, of the block."""
    offset: int = 0
    """In bytes, into what it is in."""


def written(place: Location) -> Location:
    """Where a step writes that makes what lies there: it never changes what a variable was."""
    return replace(place, region=MemoryRegion.NEXT) if place.region is MemoryRegion.STATE else place
