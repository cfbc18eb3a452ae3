"""What each node of an engine is charged to: operators of the file, with the evidence, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whence.foreign.checks import Checks, check_regions
from whence.foreign.engine_graph import EngineGraph, Region
from whence.foreign.inseparable import find_inseparable
from whence.foreign.operator_costs import OperatorCosts
from whence.foreign.recording import EngineNode, Evidence
from whence.foreign.regions import find_regions
from whence.foreign.shares import weights_of
from whence.foreign.source import SourceGraph

CANNOT_BE_TOLD_APART = "cannot be told apart"
LONGER = "which takes longer than its operators one by one"
"""Why the parts of a kernel cannot be told apart."""


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """One node of the engine, and the source operators that are charged for it."""

    node: EngineNode
    evidence: Evidence
    weights: Mapping[int, int]
    """By source operator: its part. None where nobody can be charged."""
    is_inserted: bool = False
    """The engine put it in because of those operators: a change of layout or element type."""
    doubt: str = ""
    """Why nobody can be charged."""
    inseparable: frozenset[int] = frozenset()
    """Operators whose parts cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Placement:
    places: tuple[NodePlacement, ...]
    """In the order of the engine's nodes."""
    regions: Mapping[int, Region]
    checks: Checks

    @property
    def uncertain(self) -> dict[int, str]:
        """Operators whose place or part is not certain, with the reason."""
        together = {
            number: f"its part of {each.node.op} {CANNOT_BE_TOLD_APART}, {LONGER}"
            for each in self.places
            for number in each.inseparable
        }
        return together | self.checks.uncertain


def place(
    costs: OperatorCosts,
    nodes: tuple[EngineNode, ...],
    *,
    has_edges: bool = True,
    busy_ps: Mapping[int, int] | None = None,
) -> Placement:
    """`busy_ps` is what all threads together spend on each node in a run, by its number."""
    source, engine = costs.source, EngineGraph(nodes)
    regions = find_regions(source, engine)
    checks = check_regions(source, engine, regions, has_edges=has_edges)
    places = []
    for node in nodes:
        region = regions.get(node.number)
        if node.number in checks.doubtful:
            places.append(
                NodePlacement(node, Evidence.NONE, {}, doubt=checks.doubtful[node.number])
            )
        elif region is not None and region.operators:
            busy = (busy_ps or {}).get(node.number, 0)
            weights = weights_of(costs, region.operators, busy)
            together = find_inseparable(costs, region.operators)
            places.append(NodePlacement(node, region.evidence, weights, inseparable=together))
        elif node.is_layout and (causes := _causes(source, engine, regions, node)):
            weights = dict.fromkeys(causes, 1)
            places.append(NodePlacement(node, Evidence.NEIGHBOUR, weights, is_inserted=True))
        else:
            reason = "no name that the engine kept tells which operators it stands for"
            places.append(NodePlacement(node, Evidence.NONE, {}, doubt=reason))
    return Placement(tuple(places), regions, checks)


def _causes(
    source: SourceGraph, engine: EngineGraph, regions: Mapping[int, Region], node: EngineNode
) -> list[int]:
    """The operators that a change of layout is there for: convolutions and products after it, else
    those before it, else what stands after it, else before it.
    """
    after = [regions[each] for each in engine.nearest_readers(node.number)]
    before = [regions[each] for each in sorted(engine.feeds(node.number))]
    for around in (after, before):
        heavy = {each for region in around for each in region.operators if source[each].is_heavy}
        if heavy:
            return sorted(heavy)
    for around in (after, before):
        named = {
            each
            for region in around
            for each in region.operators & {*region.node.anchors} or region.operators
        }
        if named:
            return sorted(named)
    return []
