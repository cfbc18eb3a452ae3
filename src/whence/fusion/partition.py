"""The groups while they are being formed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whence.fusion.groups import MissReason
from whence.fusion.wiring import Wiring
from whence.ops.definition import Pattern

_ANCHORS = frozenset({Pattern.COMM_REDUCE, Pattern.OUT_ELEMWISE_FUSABLE, Pattern.OPAQUE})


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How far grouping by post-dominators goes. The defaults are what pays on a processor."""

    max_depth: int = 256
    """Operators in a group."""
    max_outputs: int = 8
    """Results that a group stores."""
    search: int = 256
    """Edges looked at to prove that joining two groups makes no cycle."""
    copies: int = 8
    """Places in a group's code where one operator may be computed."""
    spare_flops: int = 4
    """Repeated arithmetic that one reading of a value may cost before storing it is the better
    bargain.
    """
    free_flops: int = 16384
    """Repeated arithmetic in all that is never worth a kernel of its own."""
    in_place: bool = True
    """Can a value be stored where it belongs in a concatenation?"""


@dataclass(slots=True)
class FusionGroup:
    members: list[int]
    """Positions, in order."""
    exits: list[int]
    """The members whose results are needed outside, in order; a dead end counts too."""
    pattern: Pattern
    """The least local pattern of any member."""
    anchor: int | None
    """The member that is a reduction, convolution, product, pool or opaque, if there is one."""


@dataclass(frozen=True, slots=True)
class FusionFailure:
    """Why an attempt failed, and at which operator."""

    reason: MissReason
    at: int | None = None
    count: int = 0


def make_group(wiring: Wiring, members: Iterable[int]) -> FusionGroup:
    ordered = sorted(members)
    pattern = max(wiring.patterns[member] for member in ordered)
    anchor = next((member for member in ordered if wiring.patterns[member] in _ANCHORS), None)
    return FusionGroup(ordered, wiring.exits(ordered), pattern, anchor)


class Partition:
    """Every operator in exactly one group. `group_of[position]` is an index into `groups`; a group
    merged away is `None` there.
    """

    def __init__(self, wiring: Wiring, parts: Sequence[Sequence[int]]) -> None:
        self.wiring = wiring
        self.groups: list[FusionGroup | None] = [make_group(wiring, members) for members in parts]
        self.group_of = [0] * len(wiring)
        for index, members in enumerate(parts):
            for member in members:
                self.group_of[member] = index

    def group(self, index: int) -> FusionGroup:
        group = self.groups[index]
        assert group is not None
        return group

    def merge(self, target: int, other: int) -> None:
        """Put everything of group `other` into group `target`."""
        moved = self.group(other).members
        self.groups[target] = make_group(self.wiring, self.group(target).members + moved)
        self.groups[other] = None
        for member in moved:
            self.group_of[member] = target
