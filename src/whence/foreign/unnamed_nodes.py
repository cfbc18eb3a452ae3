"""Nodes of an engine without any name of the file: the operators between the nodes around them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from whence.attribution.cost_model import VIEWS
from whence.foreign.decomposed import operator_behind_moves, operator_in_parts
from whence.foreign.engine_graph import EngineGraph, Region, move_operator
from whence.foreign.recording import EngineNode, Evidence
from whence.foreign.source import SourceGraph, reached


@dataclass(frozen=True, slots=True)
class UnnamedNodes:
    """What is known of the others: the regions of nodes, and which nodes have each operator. Both
    grow with every node that finds its place.
    """

    source: SourceGraph
    engine: EngineGraph
    regions: dict[int, Region]
    claims: dict[int, list[int]]

    def place(self, node: EngineNode) -> None:
        """Give a node without a name the operators between its neighbours."""
        readers = [
            each for each in self.engine.nearest_readers(node.number) if each in self.regions
        ]
        held = {operator for each in readers for operator in self.regions[each].operators}
        if not readers:
            held = {operator for operator in self.source.live if not self.claims.get(operator)}
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
        self.regions[node.number] = Region(node, Evidence.NEIGHBOUR, operators)
        for operator in operators:
            self.claims[operator].append(node.number)
        self.engine.stand(node.number)

    def _leave_to_named(self, operator: int) -> None:
        """An operator that became several kernels stays in those whose names have it, and in those
        that are nothing but a part of it; no other keeps it.
        """
        regions = self.regions
        part = (Evidence.NEIGHBOUR, {operator})
        kept = [
            each
            for each in self.claims[operator]
            if operator in (*regions[each].node.makes, *regions[each].node.holds)
            or (regions[each].evidence, regions[each].operators) == part
        ]
        for each in self.claims[operator]:
            if each not in kept:
                regions[each].operators.discard(operator)
        self.claims[operator] = kept

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
        regions = self.regions
        feeds, readers = self.engine.feeds(node.number), self.engine.nearest_readers(node.number)
        whole = operator_in_parts(
            self.source,
            [regions[each].node for each in feeds if each in regions],
            [regions[each].node for each in readers if each in regions],
            {number: region.operators for number, region in regions.items()},
        )
        if whole is not None:
            self._enter(node, {whole})
            return
        named = {
            each for region in regions.values() for each in (*region.node.makes, *region.node.holds)
        }
        before = {each for kernel in feeds for each in regions[kernel].operators}
        moved = operator_behind_moves(self.source, before, node.called_after, named)
        if moved is not None:
            regions[node.number] = Region(node, Evidence.NEIGHBOUR, moved=moved)
            move_operator(regions, self.claims, moved, node.number)
            self.engine.stand(node.number)

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
            any(each in feeds for each in self.claims.get(maker, ())) for maker in outside
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
                and not any(regions[each].node.is_heavy for each in self.claims[operator])
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
