"""Where every value of a program lies: with the caller, in the arena, in the weights, or wherever
it was made.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whence.building.arena import ArenaPlan, Block, Planner

if TYPE_CHECKING:
    from whence.graph import Ref


class Region(enum.IntEnum):
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
    region: Region
    index: int = 0
    """Of the input, output or variable; in an arena whose sizes are open, of the block."""
    offset: int = 0
    """In bytes, into what it is in."""


def written(place: Location) -> Location:
    """Where a step writes that makes what lies there: it never changes what a variable was."""
    return replace(place, region=Region.NEXT) if place.region is Region.STATE else place


@dataclass(frozen=True, slots=True)
class SubBuffer:
    """Memory within that of another value."""

    parent: Ref
    offset: int = 0
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Aliasing:
    """Values that lie within others, so that concatenations and splits are not carried out."""

    views: Mapping[Ref, SubBuffer] = field(default_factory=dict)
    """Values that no step makes, within those that they are taken from."""
    parts: Mapping[Ref, SubBuffer] = field(default_factory=dict)
    """Values that steps make, or that have parts themselves, within those that they become a part
    of; each after its own parts.
    """


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Views and parts lie within other values, outputs lie with the caller, variables with the
    state, the rest in the arena by lifetime.
    """

    places: Mapping[Ref, Location]
    """Of every value that a step makes or the caller gives, and of every view of one. Constants are
    not in it.
    """
    owners: Mapping[Ref, Ref]
    """What each view is a view of, or of a part of, which is not a view itself."""
    memory: ArenaPlan
    in_place: frozenset[int] = frozenset()
    """The variables whose new value is written over the old one, by number: nothing reads that any
    more when the writing begins.
    """
    blocks: tuple[Block, ...] = ()
    """What is to lie in the arena, where sizes are open: a place there is the number of a block and
    an offset into it, until `planned` says where blocks begin.
    """

    def planned(self, planner: Planner) -> MemoryLayout:
        """The layout when the sizes of its blocks are numbers."""
        if not self.blocks:
            return self
        memory = planner(self.blocks)
        places = {
            ref: Location(Region.ARENA, 0, memory.offsets[place.index] + place.offset)
            if place.region is Region.ARENA
            else place
            for ref, place in self.places.items()
        }
        return replace(self, places=places, memory=memory, blocks=())

    def owner(self, ref: Ref) -> Ref:
        return self.owners.get(ref, ref)
