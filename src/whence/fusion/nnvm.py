"""NNVM's `GraphFindFusibleGroups`, version 0.5: local rules, then one step that fuses a parent into
the group all its children share.

`Input` nodes and stored constants play NNVM's variables; a constant that is part of the code (see
`patterns`) plays an attribute, so `Mul(x, 2)` is NNVM's `__mul_scalar__`. An `Output` marks its
producer as a graph output and is no operator itself.

1. Reference counts: one for each input that reads a result, two more for each graph output. A count
   above 1 realises the result.
2. In list order each operator gets a *derived* pattern and settles the rule of those producers that
   are still undecided.
3. In reverse order, results that fuse to an anchor join their consumer's group. Where a moved
   (injective) and a convolved operand meet, the convolved one stays outside.
4. An operator whose result only single-input operators of one elementwise group read joins that
   group, with all of its own group.

We differ in step 4 where NNVM's answer cannot run: a parent that anything outside the group reads
stays where it is (its value would be lost, or the group would wait for itself), and a group that
was relabelled is found under its new name.

`_assign`, which NNVM treats specially from here on, is `Assign` here (`graph/state.py`): it takes
effect when the run is done, so that groups need not keep an order among reads and writes. Values
that may share memory are found by the memory plan, from lifetimes alone.
"""

from __future__ import annotations

import enum

from whence.fusion.explain import nnvm_miss
from whence.fusion.groups import Decision, FusibleGroups, MissedFusion, make_groups
from whence.fusion.patterns import PatternOf, is_inlined, operator_pattern
from whence.fusion.wiring import Wiring, wire
from whence.graph import Graph
from whence.ops.definition import Pattern
from whence.passes.operands import same_shape

_NONE = -1


class FuseRule(enum.Enum):
    UNKNOWN = enum.auto()
    FUSE_TO_MASTER = enum.auto()
    REALIZE = enum.auto()


def find_fusible_groups(
    graph: Graph, pattern_of: PatternOf = operator_pattern, *, opt_level: int = 1
) -> FusibleGroups:
    """The groups NNVM would form. `opt_level` 0 leaves every operator alone."""
    search = _Search(wire(graph, pattern_of), opt_level)
    search.derive_patterns()
    search.find_roots()
    if opt_level >= 1:
        search.fuse_parents()
    return search.result()


class _Search:
    def __init__(self, wiring: Wiring, opt_level: int) -> None:
        count = len(wiring)
        self.wiring = wiring
        self.opt_level = opt_level
        self.references = [0] * count
        self.derived = [Pattern.OPAQUE] * count
        self.rule = [FuseRule.UNKNOWN] * count
        self.anchor = [_NONE] * count
        self.root = [_NONE] * count
        self.members: list[list[int]] = [[] for _ in range(count)]
        for reads in wiring.reads:
            for read in reads:
                self.references[read.producer] += 1
        position = {node.id: index for index, node in enumerate(wiring.nodes)}
        for result in wiring.graph.results:
            for ref in result.inputs:
                if ref is not None and ref.node in position:
                    self.references[position[ref.node]] += 2

    # ---- step 2 ----

    def derive_patterns(self) -> None:
        for node, pattern in enumerate(self.wiring.patterns):
            if pattern <= Pattern.BROADCAST:
                pattern = self._derive_broadcast(node)
            elif pattern in (Pattern.INJECTIVE, Pattern.COMM_REDUCE):
                for read in self.wiring.reads[node]:
                    self._settle(read.producer, self.derived[read.producer] <= Pattern.INJECTIVE)
                if pattern is Pattern.COMM_REDUCE:
                    self.anchor[node] = node
            else:
                self.anchor[node] = node
                for read in self.wiring.reads[node]:
                    if self._settle(read.producer, False) and self.anchor[read.producer] == _NONE:
                        self.anchor[read.producer] = read.producer
            self.derived[node] = pattern
            if self.references[node] > 1 or self.opt_level < 1:
                self.rule[node] = FuseRule.REALIZE
                if self.anchor[node] == _NONE:
                    self.anchor[node] = node

    def _settle(self, producer: int, fuse: bool) -> bool:
        """Decide the rule of a producer that is still undecided. Was it?"""
        if self.rule[producer] is not FuseRule.UNKNOWN:
            return False
        self.rule[producer] = FuseRule.FUSE_TO_MASTER if fuse else FuseRule.REALIZE
        return True

    def _derive_broadcast(self, node: int) -> Pattern:
        wiring, operator = self.wiring, self.wiring.nodes[node]
        by_element, moved, anchor = len(operator.outputs) == 1, False, _NONE
        for read in wiring.reads[node]:
            producer = read.producer
            if self.rule[producer] is not FuseRule.UNKNOWN:
                continue
            pattern = self.derived[producer]
            by_element &= pattern is Pattern.ELEMWISE
            fits = same_shape(wiring.nodes[producer].outputs[read.output], operator.type)
            if pattern is Pattern.OUT_ELEMWISE_FUSABLE and anchor == _NONE and fits:
                anchor = self.anchor[producer]
                self._settle(producer, True)
            else:
                self._settle(producer, pattern <= Pattern.INJECTIVE)
            moved |= pattern is Pattern.INJECTIVE
        by_element = by_element and wiring.works_by_element(node)
        self.anchor[node] = anchor
        if anchor != _NONE:
            return Pattern.OUT_ELEMWISE_FUSABLE
        if moved:
            return Pattern.INJECTIVE
        return Pattern.ELEMWISE if by_element else Pattern.BROADCAST

    # ---- step 3 ----

    def find_roots(self) -> None:
        for node in reversed(range(len(self.wiring))):
            is_root = self.root[node] == _NONE
            if is_root:
                self._join(node, node)
            fusing = [
                read.producer
                for read in self.wiring.reads[node]
                if self.rule[read.producer] is FuseRule.FUSE_TO_MASTER
            ]
            patterns = {self.derived[producer] for producer in fusing}
            conflict = {Pattern.OUT_ELEMWISE_FUSABLE, Pattern.INJECTIVE} <= patterns
            if conflict:
                # The group's anchor would lie outside it, so the meeting point takes over.
                for member in [node] if is_root else self.members[self.root[node]]:
                    self.anchor[member] = node
            for producer in fusing:
                if conflict and self.derived[producer] is Pattern.OUT_ELEMWISE_FUSABLE:
                    continue
                if conflict and self.derived[producer] is Pattern.INJECTIVE:
                    self.anchor[producer] = node
                self._join(producer, self.root[node])

    def _join(self, node: int, root: int) -> None:
        assert self.root[node] in (_NONE, root)
        if self.root[node] == _NONE:
            self.root[node] = root
            self.members[root].append(node)

    # ---- step 4 ----

    def fuse_parents(self) -> None:
        wiring = self.wiring
        for node in reversed(range(len(wiring))):
            if self.references[node] <= 1 or wiring.patterns[node] is Pattern.OPAQUE:
                continue
            children = [reader for reader in wiring.readers[node] if self._operands(reader) == 1]
            groups = {self.root[reader] for reader in wiring.readers[node]}
            if len(children) < 2 or len(groups) != 1 or wiring.is_output[node]:
                continue
            (group,) = groups
            if group != self.root[node] and all(
                wiring.patterns[member] <= Pattern.BROADCAST for member in self.members[group]
            ):
                self._absorb(node, group)

    def _operands(self, node: int) -> int:
        operator = self.wiring.nodes[node]
        return sum(
            ref is not None and not is_inlined(self.wiring.graph, operator, index)
            for index, ref in enumerate(operator.inputs)
        )

    def _absorb(self, node: int, group: int) -> None:
        """Everything in the group of `node` joins `group`, which takes its pattern and anchor from
        `node`.
        """
        for member in self.members[group]:
            self.derived[member] = self.derived[node]
            self.anchor[member] = self.anchor[node]
        joining, self.members[self.root[node]] = self.members[self.root[node]], []
        for member in joining:
            self.root[member] = group
        self.members[group] += joining

    # ---- result ----

    def result(self) -> FusibleGroups:
        nodes, ids = self.wiring.nodes, [node.id for node in self.wiring.nodes]
        decisions: dict[int, Decision] = {}
        missed: list[MissedFusion] = []
        for position, node in enumerate(nodes):
            # A dead injective operator is never given an anchor; it is its own.
            anchor = position if self.anchor[position] == _NONE else self.anchor[position]
            decisions[node.id] = Decision(
                ids[self.root[position]], ids[anchor], self.derived[position]
            )
            for reader in self.wiring.readers[position]:
                if self.root[reader] != self.root[position]:
                    missed.append(
                        nnvm_miss(self.wiring, self.derived, position, reader, self.opt_level)
                    )
        return make_groups("nnvm", self.wiring.graph, decisions, missed)
