"""A kernel's time, split over the source operators whose work it does.

1. A kernel's members share its time by modelled cost: arithmetic, and what they read from outside the kernel. What it writes has to be written
   whichever operator comes last, so it is shared in the same proportion.
2. A member's part goes to the source operators that reached it by an edge other than `fold`, by what each cost in the file: its arithmetic,
   and those of its inputs that no other operator of the member makes.
   Operators that were only folded into it did their work at compile time and get nothing.
3. A node that was inserted because of another is charged to that one's source operators, and marked.
4. The part of a loop is split over the operators in its body as well. Which branch of a condition runs is not known: it keeps its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from whence.attribution.cost_model import arithmetic_ps, byte_ps, elements_of, is_contraction
from whence.attribution.source_costs import SourceCost, node_ps
from whence.graph import Graph, Node
from whence.kernels.ir import Member
from whence.ops.registry import lookup
from whence.provenance import NO_ORIGIN, EdgeKind, Ledger, Origin
from whence.runtime.program import ProgramStep
from whence.types import TensorType

_FINE = 1 << 20
# What the interpreter spends on an operator in a loop's body, however small it is.
_INTERPRETED_PS = 20_000_000


class Share(NamedTuple):
    """The part of a kernel that one source operator has through one node."""

    source: int
    node: int
    weight: int
    inserted: bool
    """The node is a layout change or the like, which the operator caused."""


def largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    """`total` split in proportion to `weights`, in integers that add up to it. Equal parts when all weights are 0.

    Each part is the exact one rounded down or up; those with the largest remainders are rounded up, earlier ones first.
    """
    if not weights:
        if total:
            raise ValueError(f"{total} cannot be split over nothing")
        return []
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    parts, rests = [], []
    for weight in weights:
        part, rest = divmod(total * weight, whole)
        parts.append(part)
        rests.append(rest)
    missing = total - sum(parts)
    for index in sorted(range(len(parts)), key=lambda index: (-rests[index], index))[:missing]:
        parts[index] += 1
    return parts


def inserted_nodes(ledger: Ledger) -> set[int]:
    """The nodes that were put in because of others, and what became of nothing but those."""
    found: set[int] = set()
    for edges in ledger.steps():
        parents: dict[int, list[bool]] = {}
        for edge in edges:
            parents.setdefault(edge.child, []).append(edge.kind is EdgeKind.INSERT or edge.parent in found)
        for child, kinds in parents.items():
            if child > ledger.n_sources and all(kinds):
                found.add(child)
            else:
                found.discard(child)
    return found


class Splitter:
    """Knows what is needed to split the steps of one program: its graph, and what the operators of the file cost by themselves."""

    def __init__(self, graph: Graph, costs: Mapping[int, SourceCost]) -> None:
        self._graph = graph
        self._costs = costs
        self._folded = graph.ledger.folded_origins()
        self._inserted = inserted_nodes(graph.ledger)

    def split(self, step: ProgramStep) -> list[Share]:
        """Who has which part of the step; nothing when none of its nodes has an origin. Weights are at least 0 and not all 0."""
        per_byte = byte_ps(sum(member.bytes for member in step.members))
        members = [member for member in step.members if self._graph[member.node].origin]
        shares: list[Share] = []
        for member, weight in zip(members, self._member_weights(step, members, per_byte), strict=True):
            node = self._graph[member.node]
            inserted = node.id in self._inserted
            prices = self._prices(self._graph, node, per_byte)
            parts = largest_remainder(weight * _FINE, list(prices.values()))
            shares += [Share(source, node.id, part, inserted) for source, part in zip(prices, parts, strict=True)]
        return shares if any(share.weight for share in shares) else [share._replace(weight=1) for share in shares]

    def folded(self, node_id: int) -> Origin:
        """The source operators that are in the node only through constants."""
        return self._folded.get(node_id, NO_ORIGIN)

    def _member_weights(self, step: ProgramStep, members: Sequence[Member], per_byte: int) -> list[int]:
        if len(members) == 1:
            return [1]
        inside = frozenset(step.nodes)
        weights = []
        for member in members:
            node = self._graph[member.node]
            reads = max(0, member.bytes - self._written(node, inside))
            weights.append(arithmetic_ps(self._graph, node, member.flops) + reads * per_byte)
        return weights if any(weights) else [1] * len(weights)

    def _written(self, node: Node, inside: frozenset[int]) -> int:
        """The bytes of its results that are used outside the kernel."""
        used = {ref for reader in self._graph.consumers(node) if reader.id not in inside for ref in reader.inputs if ref is not None}
        kinds = (kind for index, kind in enumerate(node.outputs) if node.ref(index) in used)
        return sum(kind.nbytes or 0 for kind in kinds if isinstance(kind, TensorType))

    def _prices(self, graph: Graph, node: Node, per_byte: int) -> dict[int, int]:
        """What to split the node by: its source operators with the cost of each. Folded ones have 0; not all have 0 unless all are alike."""
        folded = self.folded(node.id)
        # Where everything reached the node through constants there is nobody else to charge.
        working = sorted(node.origin - folded) or sorted(node.origin)
        if node.bodies and node.op != "If":
            return self._body_prices(node, working, per_byte)
        prices = dict.fromkeys(working, 1)
        if len(working) > 1:
            prices = {source: self._price(graph, node, source, per_byte) for source in working}
            prices = prices if any(prices.values()) else dict.fromkeys(working, 1)
        return prices | dict.fromkeys(sorted(folded - set(working)), 0)

    def _price(self, graph: Graph, node: Node, source: int, per_byte: int) -> int:
        known = self._costs.get(source)
        if known is not None:
            return known.within(node.origin, per_byte)
        # The operator's shapes are unknown: a contraction does the node's arithmetic, anything else a little for each element.
        op = graph.ledger.source(source).op
        if is_contraction(op):
            return node_ps(graph, node) or 1
        flops = lookup(op).flops
        return 10 * elements_of(node) * (flops if isinstance(flops, int) else 1)

    def _body_prices(self, node: Node, working: Sequence[int], per_byte: int) -> dict[int, int]:
        prices = dict.fromkeys(working, _INTERPRETED_PS)
        for graph, inner in _inside(node):
            own = _INTERPRETED_PS + (node_ps(graph, inner) or 0)
            parts = self._prices(graph, inner, per_byte)
            for source, part in zip(parts, largest_remainder(own, list(parts.values())), strict=True):
                prices[source] = prices.get(source, 0) + part
        return prices


def _inside(node: Node) -> Iterator[tuple[Graph, Node]]:
    """The operators in the bodies of a node; those in bodies of bodies are left to their own node."""
    for body in node.bodies.values():
        for inner in body:
            if inner.origin and not inner.is_const:
                yield body, inner
