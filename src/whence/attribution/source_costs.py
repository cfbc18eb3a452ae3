"""What each operator of the file would cost by itself: how a node that several of them became is
split between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whence.attribution.cost_model import CostModel, node_cost
from whence.graph import Graph, Node
from whence.ops.definition import Cost
from whence.ops.registry import REGISTRY
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.provenance import Origin


@dataclass(frozen=True, slots=True)
class SourceCost:
    """One operator of the file by itself."""

    arithmetic_ps: int
    reads: tuple[tuple[Origin, int], ...]
    """For each input: the source operators that make it, none for inputs and constants of the
    model, and its bytes.
    """

    def within(self, companions: Origin, per_byte: float) -> int:
        """Picoseconds of the operator when it runs together with others: what they make for it is
        not read from memory.
        """
        return self.arithmetic_ps + round(
            per_byte * sum(size for makers, size in self.reads if not makers & companions)
        )

    def side_bytes(self, companions: Origin) -> int:
        """What it reads beside its main operand, which is one that the others make, else the
        largest.
        """
        outside = [size for makers, size in self.reads if not makers & companions]
        return sum(outside) - (max(outside, default=0) if len(outside) == len(self.reads) else 0)


def sized(graph: Graph, shapes: Mapping[str, Sequence[int]] | None) -> Graph:
    """The graph as it was loaded, for inputs of these shapes; it is left as it is itself."""
    return fix_input_shapes(graph.copy(), shapes) if shapes else graph


def source_costs(graph: Graph, model: CostModel) -> dict[int, SourceCost]:
    """What each source operator of a `sized` graph costs. Operators whose shapes stay unknown are
    left out.
    """
    arithmetic: dict[int, int] = {}
    reads: dict[int, list[tuple[Origin, int]]] = {}
    unknown: set[int] = set()
    for nested in graph.nested():
        for node in nested:
            if not node.origin or node.is_const:
                continue
            price = model.node_ps(nested, node)
            if price is None:
                unknown |= node.origin
                continue
            for source in node.origin:
                arithmetic[source] = arithmetic.get(source, 0) + price // len(node.origin)
                reads.setdefault(source, []).extend(_reads(nested, node, source))
    return {
        source: SourceCost(price, tuple(reads[source]))
        for source, price in arithmetic.items()
        if source not in unknown
    }


def own_work(graph: Graph) -> dict[int, Cost]:
    """Operations and bytes of each source operator of a `sized` graph. Operators whose shapes stay
    unknown are left out.
    """
    found: dict[int, Cost] = {}
    for nested in graph.nested():
        for node in nested:
            if node.is_const or not node.origin:
                continue
            each = node_cost(nested, node)
            # Where a reader restated an operator in several nodes, it is all of them.
            if each is not None and len(node.origin) == 1:
                (source,) = node.origin
                before = found.get(source, Cost(0, 0))
                found[source] = Cost(before.flops + each.flops, before.bytes + each.bytes)
    return found


Kinds = Mapping[int, frozenset[str]]
"""By source operator: what it is, in operators of the registry. Some formats have names of their
own for theirs.
"""


def source_kinds(graph: Graph) -> Kinds:
    """For every source operator, from the graph as it was loaded: the operator itself, or those
    that it was read as.
    """
    found: dict[int, set[str]] = {
        source.id: {source.op} & REGISTRY.keys() for source in graph.ledger.sources
    }
    named = {source for source, kinds in found.items() if kinds}
    for nested in graph.nested():
        for node in nested:
            if not node.is_const:
                for source in node.origin - named:
                    found[source].add(node.op)
    return {source: frozenset(kinds) for source, kinds in found.items()}


def _reads(graph: Graph, node: Node, source: int) -> list[tuple[Origin, int]]:
    makers = (
        (graph[ref.node].origin, graph.nbytes(ref))
        for ref in node.inputs
        if ref is not None and graph.tensor_type(ref) is not None
    )
    # What an operator makes for itself, where the reader restated it in several nodes, is none of
    # its inputs.
    return [(origin, size) for origin, size in makers if source not in origin]
