"""Where a program's values lie: with the caller, in arena or weights, or where they were made."""

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
    """Values that become a part of another, within that one; each after its own parts."""


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Views and parts lie within other values, outputs lie with the caller, variables with the
    state, the rest in the arena by lifetime.
    """

    places: Mapping[Ref, Location]
    """Of every value that a step makes or the caller gives, and its views; not of constants."""
    owners: Mapping[Ref, Ref]
    """What each view is a view of, or of a part of, which is not a view itself."""
    memory: ArenaPlan
    in_place: frozenset[int] = frozenset()
    """The variables written over, by number: nothing reads the old value any more by then."""
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
