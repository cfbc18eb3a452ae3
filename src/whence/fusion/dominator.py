"""Grouping by post-dominators: the default.

1. An operator joins the group of its post-dominator, with everything on the paths between them,
   when the patterns fit (`may_join`). Anchors (convolutions, products, pools) go first, so that
   what follows them becomes their epilogue before moving operators can claim it.
2. A group in which an operator would be computed too often is divided (`recompute`).
3. Concatenations are split off from what can be written in place (`split_off_concats`).
4. Views around an attention, which otherwise stands alone, join it (`views`).
5. Groups that share a stored value are joined, as far as no cycle arises (`sharing`).

After the first three steps a group has one exit, which post-dominates all members, and no value
leaves it from elsewhere; so groups cannot wait for each other. The last step proves the same for
each pair it joins.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.fusion.explain import miss, plain_miss, shared_miss
from whence.fusion.groups import Decision, FusibleGroups, MissedFusion, MissReason, make_groups
from whence.fusion.partition import FusionFailure, GroupLimits, Partition
from whence.fusion.patterns import loop_pattern
from whence.fusion.postdominators import NO_PARENT, PostDominators, post_dominators
from whence.fusion.recompute import divide
from whence.fusion.sharing import join_sharing_groups
from whence.fusion.split_off import split_off_concats
from whence.fusion.views import absorb_views
from whence.fusion.wiring import Wiring, wire
from whence.graph import Graph
from whence.ops.definition import Pattern


def find_dominator_groups(graph: Graph, limits: GroupLimits | None = None) -> FusibleGroups:
    """The groups of `graph`: convex, without cycles between them, one anchor in each at most.
    Near-linear in nodes and edges.
    """
    limits = limits or GroupLimits()
    wiring = wire(graph, loop_pattern)
    fuser = _Fuser(wiring, post_dominators(wiring), limits)
    fuser.run(0)
    fuser.run(1)
    if any(failure.reason is MissReason.SEVERAL_OUTPUTS for failure in fuser.failures.values()):
        # An operator with several outputs may have joined what follows it meanwhile.
        fuser.run(1)
    parts, cut = divide(wiring, fuser.parts(), limits)
    parts, split = split_off_concats(wiring, parts) if limits.in_place else (parts, set())
    partition = Partition(wiring, absorb_views(wiring, parts))
    unshared = join_sharing_groups(partition, limits)
    missed = [
        _explain(partition, position, reader, cut, split, unshared, fuser.failures)
        for position in range(len(wiring))
        for reader in wiring.readers[position]
        if partition.group_of[position] != partition.group_of[reader]
    ]
    return make_groups("dominator", graph, _decisions(partition), missed)


def may_join(source: Pattern, route: Pattern, between: Pattern, sink: Pattern, phase: int) -> bool:
    """May the group `source` join `sink`, its post-dominator's, with all groups `between` them?
    `route` is the least local pattern on the way.

    1. An anchor takes an elementwise tail, once, before anything else happens.
    2. Elementwise and broadcasting operators join whatever follows, even the tail of an anchor if
       nothing on the way moves elements.
    3. Moving operators join, in the second round, what is not anchored, and reductions.
    4. A reduction joins nothing; nothing joins an opaque operator.
    """
    if source is Pattern.OUT_ELEMWISE_FUSABLE:
        return phase == 0 and route is Pattern.ELEMWISE and max(between, sink) <= Pattern.BROADCAST
    if source <= Pattern.BROADCAST and sink is Pattern.OUT_ELEMWISE_FUSABLE:
        return max(route, between) <= Pattern.BROADCAST
    if source <= Pattern.INJECTIVE:
        return (
            (source <= Pattern.BROADCAST or phase > 0)
            and between <= Pattern.INJECTIVE
            and max(route, sink) <= Pattern.COMM_REDUCE
        )
    return False


class _Fuser:
    """Union-find over operators. A group's leader is its exit, which post-dominates all members."""

    def __init__(self, wiring: Wiring, tree: PostDominators, limits: GroupLimits) -> None:
        count = len(wiring)
        self.wiring = wiring
        self.tree = tree
        self.limits = limits
        self.failures: dict[int, FusionFailure] = {}
        """By position of the exit that could not join its post-dominator for a reason that the
        patterns do not show.
        """
        self._leader = list(range(count))
        self._size = [1] * count
        self._pattern = list(wiring.patterns)

    def run(self, phase: int) -> None:
        order: Sequence[int] = range(len(self.wiring))
        if phase == 0:
            # Before what prepares an operand of an anchor's tail can claim that tail for itself.
            order = sorted(
                order,
                key=lambda node: self.wiring.patterns[node] is not Pattern.OUT_ELEMWISE_FUSABLE,
            )
        for node in order:
            sink = self.tree.parent[node]
            group = self._find(node)
            if (
                sink == NO_PARENT
                or self._pattern[group] is Pattern.OPAQUE
                or self._find(sink) == group
            ):
                continue
            failure = self.failures.pop(node, None)
            if failure is not None and failure.reason is MissReason.DEPTH_LIMIT:
                # Groups only grow.
                self.failures[node] = failure
            else:
                self._try_join(node, sink, phase)

    def parts(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for node in range(len(self.wiring)):
            found.setdefault(self._find(node), []).append(node)
        return list(found.values())

    def _try_join(self, node: int, sink: int, phase: int) -> None:
        source, target = self._find(node), self._find(sink)
        # Refuse on what is known already before walking the paths.
        route = self.tree.pattern[node]
        if not may_join(
            self._pattern[source], route, Pattern.ELEMWISE, self._pattern[target], phase
        ):
            return
        if len(self.wiring.nodes[target].outputs) > 1:
            self.failures[node] = FusionFailure(MissReason.SEVERAL_OUTPUTS, target)
            return
        groups = self._between(node, sink, source, target)
        if isinstance(groups, FusionFailure):
            self.failures[node] = groups
        elif groups is not None:
            between = max((self._pattern[group] for group in groups), default=Pattern.ELEMWISE)
            if may_join(self._pattern[source], route, between, self._pattern[target], phase):
                for group in (*groups, source):
                    self._merge(group, target)

    def _between(
        self, node: int, sink: int, source: int, target: int
    ) -> set[int] | FusionFailure | None:
        """The groups on the paths from `node` to `sink`, or why there are too many; `None` as soon
        as one cannot be fused at all.
        """
        too_deep = FusionFailure(MissReason.DEPTH_LIMIT, count=self.limits.max_depth)
        size = self._size[source] + self._size[target]
        if max(size, self.tree.length[node]) > self.limits.max_depth:
            return too_deep
        groups: set[int] = set()
        seen, stack = {sink}, [node]
        while stack:
            for reader in self.wiring.readers[stack.pop()]:
                if reader in seen:
                    continue
                seen.add(reader)
                stack.append(reader)
                group = self._find(reader)
                if group == target or group in groups:
                    continue
                if self._pattern[group] > Pattern.INJECTIVE:
                    return None
                groups.add(group)
                size += self._size[group]
                if size > self.limits.max_depth:
                    return too_deep
        return groups

    def _find(self, node: int) -> int:
        leader = self._leader
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    def _merge(self, group: int, target: int) -> None:
        # The target must stay leader, so there is no choice by size; halving paths alone keeps this
        # near-linear.
        self._leader[group] = target
        self._size[target] += self._size[group]
        self._pattern[target] = max(self._pattern[target], self._pattern[group])


def _decisions(partition: Partition) -> dict[int, Decision]:
    wiring, decisions = partition.wiring, {}
    for group in partition.groups:
        if group is None:
            continue
        root = group.exits[-1]
        anchor = root if group.anchor is None else group.anchor
        own = {member: _derived(wiring, member) for member in group.members}
        own[root] = max(own.values())
        for member, pattern in own.items():
            decisions[wiring.nodes[member].id] = Decision(
                wiring.nodes[root].id, wiring.nodes[anchor].id, pattern
            )
    return decisions


def _derived(wiring: Wiring, member: int) -> Pattern:
    pattern = wiring.patterns[member]
    if pattern > Pattern.BROADCAST:
        return pattern
    return Pattern.ELEMWISE if wiring.works_by_element(member) else Pattern.BROADCAST


def _explain(
    partition: Partition,
    producer: int,
    consumer: int,
    cut: set[int],
    split: set[int],
    unshared: dict[tuple[int, int], FusionFailure],
    failures: dict[int, FusionFailure],
) -> MissedFusion:
    wiring = partition.wiring
    plain = plain_miss(wiring, producer, consumer)
    if plain is not None:
        return plain
    ours = partition.group(partition.group_of[producer])
    theirs = partition.group(partition.group_of[consumer])
    if ours.pattern is Pattern.COMM_REDUCE:
        return miss(wiring, producer, consumer, MissReason.REDUCTION)
    if consumer in split and ours.anchor is None:
        return miss(wiring, producer, consumer, MissReason.IN_PLACE)
    if producer in cut:
        return miss(wiring, producer, consumer, MissReason.RECOMPUTED)
    for found in (unshared.get((producer, consumer)), failures.get(producer)):
        if found is not None:
            return miss(
                wiring, producer, consumer, found.reason, failed_at=found.at, count=found.count
            )
    if (
        ours.anchor is not None
        and theirs.anchor is not None
        and wiring.readers[producer][consumer] is Pattern.ELEMWISE
    ):
        return miss(wiring, producer, consumer, MissReason.SECOND_ANCHOR, failed_at=theirs.anchor)
    shared = None
    if len(wiring.readers[producer]) > 1 or wiring.is_output[producer]:
        shared = shared_miss(wiring, producer, consumer)
    if shared is not None:
        return shared
    for anchor in (ours.anchor, theirs.anchor):
        if anchor is not None:
            return miss(wiring, producer, consumer, MissReason.NOT_ELEMENTWISE, failed_at=anchor)
    return miss(wiring, producer, consumer, MissReason.PATTERN)
