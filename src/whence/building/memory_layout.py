"""Where every value of a program lies: with the caller, in the arena, in the weights, or wherever
it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whence.building.arena import ArenaPlan, Block, Planner
from whence.building.location import Location, MemoryRegion

if TYPE_CHECKING:
    from whence.graph import Ref


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
            ref: Location(MemoryRegion.ARENA, 0, memory.offsets[place.index] + place.offset)
            if place.region is MemoryRegion.ARENA
            else place
            for ref, place in self.places.items()
        }
        return replace(self, places=places, memory=memory, blocks=())

    def owner(self, ref: Ref) -> Ref:
        return self.owners.get(ref, ref)
