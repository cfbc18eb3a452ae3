"""A graph's operators by position: 0, 1, ... in list order, with what each reads of the others.

Inputs, constants, outputs, variables and what is assigned to them are left out: they run nothing.
Grouping works on positions because they are dense and topologically sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whence.fusion.patterns import PatternOf, is_always_inlined, is_inlined
from whence.graph import Graph, Node
from whence.graph.state import BOUNDARY
from whence.ops.definition import Pattern
from whence.passes.operands import same_shape


def is_operator(node: Node) -> bool:
    return node.op not in BOUNDARY and not is_always_inlined(node)


class ReadEdge(NamedTuple):
    """One input of an operator that is connected to another operator."""

    producer: int
    output: int
    pattern: Pattern
    """How the consumer's elements depend on this input's: `ELEMWISE` where both have one shape and
    the consumer works by element.
    """


@dataclass(frozen=True, slots=True)
class Wiring:
    graph: Graph
    nodes: Sequence[Node]
    patterns: Sequence[Pattern]
    """By position: the operator's pattern before any grouping."""
    reads: Sequence[Sequence[ReadEdge]]
    """By position of the consumer, in input order."""
    readers: Sequence[dict[int, Pattern]]
    """By position of the producer: its distinct consumers in list order, with the least local
    pattern among the inputs that connect them.
    """
    is_output: Sequence[bool]
    """Does a result of this operator leave the graph, as an output or as the new value of a
    variable?
    """

    def __len__(self) -> int:
        return len(self.nodes)

    def exits(self, members: Iterable[int]) -> list[int]:
        """The members whose results are needed elsewhere, in order; a dead end counts too."""
        inside = set(members)
        return [
            member
            for member in sorted(inside)
            if self.is_output[member]
            or not self.readers[member].keys() <= inside
            or not self.readers[member]
        ]

    def works_by_element(self, position: int) -> bool:
        """Has every operand that is not part of the code the shape of the result?"""
        node = self.nodes[position]
        return self.patterns[position] <= Pattern.BROADCAST and all(
            ref is None
            or is_inlined(self.graph, node, index)
            or same_shape(self.graph.type_of(ref), node.type)
            for index, ref in enumerate(node.inputs)
        )


def wire(graph: Graph, pattern_of: PatternOf) -> Wiring:
    """The operators of `graph` and the edges between them. Costs time linear in nodes and edges."""
    nodes = [node for node in graph if is_operator(node)]
    position = {node.id: index for index, node in enumerate(nodes)}
    patterns = [pattern_of(node) for node in nodes]
    reads: list[list[ReadEdge]] = []
    readers: list[dict[int, Pattern]] = [{} for _ in nodes]
    is_output = [False] * len(nodes)
    for consumer, node in enumerate(nodes):
        found: list[ReadEdge] = []
        for ref in node.inputs:
            producer = position.get(ref.node) if ref is not None else None
            if ref is None or producer is None:
                continue
            pattern = patterns[consumer]
            if pattern <= Pattern.BROADCAST:
                local = same_shape(nodes[producer].outputs[ref.index], node.type)
                pattern = Pattern.ELEMWISE if local else Pattern.BROADCAST
            found.append(ReadEdge(producer, ref.index, pattern))
            known = readers[producer].get(consumer, Pattern.ELEMWISE)
            readers[producer][consumer] = max(known, pattern)
        reads.append(found)
    for result in graph.results:
        for ref in result.inputs:
            if ref is not None and ref.node in position:
                is_output[position[ref.node]] = True
    return Wiring(graph, nodes, patterns, reads, readers, is_output)
