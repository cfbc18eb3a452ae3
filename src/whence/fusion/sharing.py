"""Joining groups that share a stored value, into groups with several outputs.

When a result must be stored because something else needs it too, an elementwise reader can still
take it straight from the loop that makes it: the joint group stores the value and goes on. All
results of such a group have one shape and are reached from each other element by element, so that
one loop nest makes them all.

Two groups may be joined when no third one lies on a path between them. The groups are kept in a
topological order that is repaired locally after each join (Pearce and Kelly's algorithm), so a
search looks only at groups that stand between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whence.fusion.groups import MissReason
from whence.fusion.partition import FusionFailure, GroupLimits, Partition
from whence.ops.definition import Pattern

_ANCHORED = Pattern.OUT_ELEMWISE_FUSABLE


def join_sharing_groups(
    partition: Partition, limits: GroupLimits
) -> dict[tuple[int, int], FusionFailure]:
    """Join what may be joined. Returns, by (producer, consumer) position, why others were left,
    where patterns and consumers do not show it.
    """
    joiner = _Joiner(partition, limits)
    left: dict[tuple[int, int], FusionFailure] = {}
    for producer, readers in enumerate(partition.wiring.readers):
        for consumer, pattern in readers.items():
            if (
                pattern is Pattern.ELEMWISE
                and partition.group_of[producer] != partition.group_of[consumer]
            ):
                failure = joiner.try_join(producer, consumer)
                if failure is not None:
                    left[producer, consumer] = failure
    return left


class _Joiner:
    def __init__(self, partition: Partition, limits: GroupLimits) -> None:
        self.partition = partition
        self.limits = limits
        # A group with a single exit waits only for exits that stand before its own, so their
        # positions are a topological order.
        self.order = {
            index: group.exits[-1]
            for index, group in enumerate(partition.groups)
            if group is not None
        }
        nodes = partition.wiring.nodes
        conditions = {
            ref.node
            for node in nodes
            if node.op == "Choose" and (ref := node.inputs[0]) is not None
        }
        self.deciding = {position for position, node in enumerate(nodes) if node.id in conditions}
        self.level = [False] * len(partition.wiring)
        """By position: is the operator's value at an element needed only for the same element of
        the group's results?
        """
        for index in self.order:
            self._find_level(index)

    def _find_level(self, index: int) -> None:
        partition, wiring = self.partition, self.partition.wiring
        for member in reversed(partition.group(index).members):
            inside = {
                reader: pattern
                for reader, pattern in wiring.readers[member].items()
                if partition.group_of[reader] == index
            }
            in_step = all(
                pattern is Pattern.ELEMWISE and self.level[reader]
                for reader, pattern in inside.items()
            )
            self.level[member] = in_step and len(wiring.nodes[member].outputs) == 1

    def try_join(self, producer: int, consumer: int) -> FusionFailure | None:
        """Join the groups of the two, or say why not where patterns and consumers alone do not show
        it.
        """
        partition, limits = self.partition, self.limits
        early, late = partition.group_of[producer], partition.group_of[consumer]
        ours, theirs = partition.group(early), partition.group(late)
        if not self.deciding.isdisjoint((*ours.members, *theirs.members)):
            # A condition is made as early as can be: what it guards does not read it, and would not
            # wait for it.
            return None
        if ours.pattern is _ANCHORED and theirs.pattern is _ANCHORED:
            return FusionFailure(MissReason.SECOND_ANCHOR, theirs.anchor)
        if not (
            self.level[producer] and self.level[consumer] and _fit(ours.pattern, theirs.pattern)
        ):
            return None
        if len(ours.members) + len(theirs.members) > limits.max_depth:
            return FusionFailure(MissReason.DEPTH_LIMIT, count=limits.max_depth)
        if len(ours.exits) + len(theirs.exits) > limits.max_outputs:
            return FusionFailure(MissReason.OUTPUT_LIMIT, count=limits.max_outputs)
        if not self._all_in_step(early, late):
            return None
        return self._join(early, late)

    def _all_in_step(self, early: int, late: int) -> bool:
        """Does every edge between the two groups go from element to element?"""
        group_of, readers = self.partition.group_of, self.partition.wiring.readers
        return all(
            pattern is Pattern.ELEMWISE and self.level[member] and self.level[reader]
            for member in self.partition.group(early).exits
            for reader, pattern in readers[member].items()
            if group_of[reader] == late
        )

    # ---- the order ----

    def _join(self, early: int, late: int) -> FusionFailure | None:
        order, low, high = self.order, self.order[early], self.order[late]
        before = self._reach(late, early, self._predecessors, lambda place: place > low)
        if before is MissReason.CYCLE:
            return FusionFailure(before)
        if not before:
            # Nothing between the two is needed, so both can run where the first stands.
            self._merge(early, late, low)
            return None
        after = self._reach(early, late, self._successors, lambda place: place < high)
        if isinstance(after, MissReason):
            return FusionFailure(after)
        if isinstance(before, MissReason) and after:
            return FusionFailure(before)
        if not isinstance(before, MissReason) and after:
            # What must come first moves to the front of the places they all hold, what must come
            # after to their end.
            places = sorted(
                [low, high, *(order[group] for group in after), *(order[group] for group in before)]
            )
            order.update(zip(sorted(before, key=order.__getitem__), places, strict=False))
            order.update(
                zip(
                    sorted(after, key=order.__getitem__, reverse=True),
                    reversed(places),
                    strict=False,
                )
            )
            high = places[len(before)]
        self._merge(early, late, high)
        return None

    def _merge(self, early: int, late: int, place: int) -> None:
        del self.order[early]
        self.order[late] = place
        self.partition.merge(late, early)

    def _reach(
        self,
        start: int,
        other: int,
        neighbours: Callable[[int], Iterator[int]],
        near: Callable[[int], bool],
    ) -> set[int] | MissReason:
        """The groups between the two that `start` is connected to, or why there can be no join."""
        found: set[int] = set()
        stack, steps = [start], 0
        while stack:
            group = stack.pop()
            for neighbour in neighbours(group):
                steps += 1
                if steps > self.limits.search:
                    return MissReason.TOO_FAR
                if neighbour == other:
                    if group != start:
                        return MissReason.CYCLE
                elif neighbour not in found and near(self.order[neighbour]):
                    found.add(neighbour)
                    stack.append(neighbour)
        return found

    def _successors(self, index: int) -> Iterator[int]:
        group_of = self.partition.group_of
        for member in self.partition.group(index).exits:
            for reader in self.partition.wiring.readers[member]:
                if group_of[reader] != index:
                    yield group_of[reader]

    def _predecessors(self, index: int) -> Iterator[int]:
        group_of = self.partition.group_of
        for member in self.partition.group(index).members:
            for read in self.partition.wiring.reads[member]:
                if group_of[read.producer] != index:
                    yield group_of[read.producer]


def _fit(early: Pattern, late: Pattern) -> bool:
    """An anchored group takes an elementwise tail; an elementwise one joins any tail. What moves
    elements stores its result as it is.
    """
    if early is _ANCHORED:
        return late <= Pattern.BROADCAST
    return early <= Pattern.BROADCAST and late in (
        Pattern.ELEMWISE,
        Pattern.BROADCAST,
        Pattern.INJECTIVE,
        _ANCHORED,
    )
