"""Nodes of an engine without any name of the file: the operators between the nodes around them, or
a part of one that an engine computes by several nodes.

OpenVINO computes a DynamicQuantizeLinear by reductions, products and conversions, and subtracts
zero points in front of a product of integers; only the last of these nodes has the operator's name.

1. A node between two that both have an operator is part of that operator.
2. A node in front of one that has an operator by name, and behind one whose results that operator
   reads, is part of it: nothing of the file stands between the two. So is one that reads nothing
   but inputs of the model, as that operator does. A view is not computed by anything, so a node
   there is something else.

A third kind is a whole operator in another place: OpenVINO scales by a constant before it moves
elements where the file moves them first. A node that is called after such a function is the one
behind the movements that read what feeds it.

That a node is a part, or such a function, is only said where one operator fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from whence.attribution.cost_model import VIEWS
from whence.foreign.engine_graph import EngineGraph, Region, Regions
from whence.foreign.recording import EngineNode, Evidence
from whence.foreign.source import SourceGraph, reached

_MOVES = VIEWS | {"Transpose", "Expand"}


@dataclass(frozen=True, slots=True)
class UnnamedNodes:
    """What is known of the others: their regions, which grow with every node that is placed."""

    source: SourceGraph
    engine: EngineGraph
    regions: Regions

    def place(self, node: EngineNode) -> None:
        """Give a node without a name the operators between its neighbours."""
        readers = self.engine.nearest_readers(node.number)
        held = {operator for each in readers for operator in self.regions[each].operators}
        if not readers:
            held = {
                operator for operator in self.source.live if not self.regions.claims.get(operator)
            }
        fitting = [
            inside
            for ends in self._ends(node, readers, held)
            if (inside := self._between(node, ends, held))
        ]
        if len(fitting) != 1:
            self._place_part(node)
            return
        for operator in fitting[0]:
            self._leave_to_named(operator)
        self._enter(node, fitting[0])
        if node.is_heavy:
            self._place_reverse(node)

    def _enter(self, node: EngineNode, operators: set[int]) -> None:
        """The node stands for these from now on, beside the nodes that have them already."""
        self.regions.add(Region(node, Evidence.NEIGHBOUR, operators))
        self.engine.stand(node.number)

    def _leave_to_named(self, operator: int) -> None:
        """An operator that became several kernels stays in those whose names have it, and in those
        that are nothing but a part of it; no other keeps it.
        """
        regions, claims = self.regions, self.regions.claims
        part = (Evidence.NEIGHBOUR, {operator})
        kept = [
            each
            for each in claims[operator]
            if operator in regions[each].node.anchors
            or (regions[each].evidence, regions[each].operators) == part
        ]
        for each in claims[operator]:
            if each not in kept:
                regions[each].operators.discard(operator)
        claims[operator] = kept

    def _place_reverse(self, node: EngineNode) -> None:
        """The other direction of a recurrent layer: a node of the same type that reads the same."""
        operators = self.regions[node.number].operators
        both = {each for each in operators if self.source[each].is_bidirectional}
        others = [
            each
            for each in self.engine.nodes.values()
            if each.op == node.op
            and each.inputs[:1] == node.inputs[:1]
            and each.number not in self.regions
        ]
        if len(both) == len(others) == 1:
            self._enter(others[0], both)

    def _place_part(self, node: EngineNode) -> None:
        """A node that does a part of one operator, or an operator that the engine moved to it."""
        if node.is_heavy:
            return
        feeds = [self.regions[each] for each in self.engine.feeds(node.number)]
        readers = [self.regions[each] for each in self.engine.nearest_readers(node.number)]
        before = {operator for region in feeds for operator in region.operators}
        whole = self._operator_in_parts(before, readers)
        if whole is not None:
            self._enter(node, {whole})
            return
        moved = self._operator_behind_moves(before, node.called_after)
        if moved is not None:
            self.regions.add(Region(node, Evidence.NEIGHBOUR, moved=moved))
            self.regions.move(moved, node.number)
            self.engine.stand(node.number)

    def _operator_in_parts(self, before: set[int], readers: Sequence[Region]) -> int | None:
        """The operator that a node between these is part of, if that is certain."""
        source = self.source
        after = {operator for region in readers for operator in region.operators}
        both = {each for each in before & after if not source[each].is_known_from_sizes}
        if not both:
            named = {each for region in readers for each in region.node.anchors}
            both = {
                each
                for each in named & after
                if before.intersection(source[each].feeds_from)
                or (not before and not source[each].feeds_from)
            }
        fitting = [each for each in both if source[each].op not in VIEWS]
        return fitting[0] if len(both) == len(fitting) == 1 else None

    def _operator_behind_moves(self, before: set[int], kinds: Collection[str]) -> int | None:
        """The operator of one of these types, with one operand that is no constant, that stands
        behind nothing but movements of what these make, and that no node is called after.
        """
        source = self.source

        def moved(each: int) -> Iterator[int]:
            return (reader for reader in source.readers(each) if source[reader].op in _MOVES)

        readers = {reader for each in reached(before, moved) for reader in source.readers(each)}
        found = {
            each
            for each in readers - before
            if source[each].op in {*kinds} - _MOVES and len(source[each].feeds_from) == 1
        }
        named = {each for region in self.regions.values() for each in region.node.anchors}
        return next(iter(found)) if len(found) == 1 and not found & named else None

    def _between(self, node: EngineNode, ends: Set[int], held: set[int]) -> set[int]:
        """The operators from what feeds the node to those at the end; none if they do not fit."""
        source, feeds = self.source, self.engine.feeds(node.number)
        inside = set(reached(ends, lambda each: held.intersection(source[each].feeds_from)))
        outside = {
            maker
            for operator in inside
            for maker in source[operator].feeds_from
            # Engines know such a value beforehand: the zeros that a recurrent layer begins with.
            if maker not in inside and not source[maker].is_known_from_sizes
        }
        fits = sum(source[each].is_heavy for each in inside) <= node.is_heavy and all(
            any(each in feeds for each in self.regions.claims.get(maker, ())) for maker in outside
        )
        return inside if fits else set()

    def _ends(self, node: EngineNode, readers: Sequence[int], held: Set[int]) -> list[set[int]]:
        """What a node without a name may end with, among the operators that its readers claim."""
        source, regions = self.source, self.regions
        if node.is_heavy:
            return [
                {operator}
                for operator in sorted(held)
                if source[operator].is_heavy
                and not any(regions[each].node.is_heavy for each in self.regions.claims[operator])
            ]
        if readers and all(regions[each].node.is_heavy for each in readers):
            before = {
                maker
                for operator in held
                if source[operator].is_heavy
                for maker in source[operator].feeds_from
            }
            return [before & held]
        typed = [
            {operator}
            for operator in sorted(held)
            if source[operator].op == node.op or source[operator].op in node.implements
        ]
        merged = {operator for operator in held if source[operator].op in node.merges}
        if merged and not typed:
            return [merged]
        working = [operator for operator in sorted(held) if source[operator].op not in VIEWS]
        return typed or ([set(working)] if len(working) == 1 else [])
