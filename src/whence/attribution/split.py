"""A kernel's time, split over the source operators whose work it does.

1. A kernel's members have what leaving each out would save, but for the anchor (`anchor`), which
   has the rest. What would be saved is modelled (`cost_model`) or was measured (`leave_out`).
2. A member's part goes to the source operators that reached it by an edge other than `fold`. In an
   anchor that convolves or multiplies, operators of other kinds have what they add, too. Otherwise
   each has by what it cost in the file: its arithmetic, and those of its inputs that no other
   operator of the member makes. Operators that were only folded into it did their work at compile
   time and get nothing. Nor does a view, while there is anything else: reading through it is the
   work of who reads.
3. A node that was inserted because of another is charged to that one's source operators, and
   marked: a layout change to the convolution or product among them, or to the addition whose
   operand it prepares.
4. The part of a loop is split over the operators in its body as well; where its iterations run in
   native code, the body's kernels have times of their own. Which branch of a condition runs is not
   known: it keeps its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from whence.attribution.anchor import ADDED_INPUT, ADDITIONS, anchor_of, side_bytes
from whence.attribution.cost_model import (
    VIEWS,
    CostModel,
    KernelModel,
    Traffic,
    elements_of,
    is_contraction,
)
from whence.attribution.rows import Share
from whence.attribution.source_costs import Kinds, SourceCost
from whence.attribution.traffic import traffic_of
from whence.building.program import Program, ProgramStep
from whence.graph import Graph, Node
from whence.kernels.ir import Member
from whence.ops.registry import lookup
from whence.provenance import NO_ORIGIN, EdgeKind, Ledger, Origin

_FINE = 1 << 20
# What the interpreter spends on an operator in a loop's body, however small it is.
_INTERPRETED_PS = 20_000_000


def largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    """`total` split in proportion to `weights`, in integers that add up to it. Equal parts when all
    weights are 0.

    Each part is the exact one rounded down or up; those with the largest remainders are rounded up,
    earlier ones first.
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
            parents.setdefault(edge.child, []).append(
                edge.kind is EdgeKind.INSERT or edge.parent in found
            )
        for child, kinds in parents.items():
            if child > ledger.n_sources and all(kinds):
                found.add(child)
            else:
                found.discard(child)
    return found


class Savings(NamedTuple):
    """What leaving out would save, as parts of `whole`, by member, and by source operator of the
    anchor. What is not in it is not known.
    """

    whole: int
    members: Mapping[int, int]
    sources: Mapping[int, int]


class Splitter:
    """Knows what is needed to split the steps of one program: the program, and what the operators
    of the file cost by themselves.

    `measured` has what was found by measuring, by step.
    """

    def __init__(
        self,
        program: Program,
        costs: Mapping[int, SourceCost],
        kinds: Kinds,
        model: CostModel,
        measured: Mapping[int, Savings] | None = None,
    ) -> None:
        self._program = program
        self._model = model
        self._graph = program.graph
        self._costs = costs
        self._kinds = kinds
        self._measured = measured or {}
        self._folded = self._graph.ledger.folded_origins()
        self._inserted = inserted_nodes(self._graph.ledger)

    def split(self, step: ProgramStep, busy_ps: int = 0) -> list[Share]:
        """Who has which part of the step; nothing when none of its nodes has an origin. Weights are
        at least 0 and not all 0.

        `busy_ps` is what all threads together spend on the step, where that is known.
        """
        members = [member for member in step.members if self._graph[member.node].origin]
        if not members:
            return []
        traffic = traffic_of(self._graph, step)
        per_byte = self._model.byte_ps(traffic)
        anchor = anchor_of(self._program, step, members)
        modelled = self._modelled(step, members, anchor, traffic, busy_ps)
        measured = self._measured.get(step.number)
        savings = modelled if measured is None else _known_first(measured, modelled)
        shares: list[Share] = []
        for member, weight in zip(members, _parts(savings, members, anchor), strict=True):
            node = self._graph[member.node]
            inserted = node.id in self._inserted
            prices = self._prices(self._graph, node, per_byte)
            added = savings.sources if member is anchor else {}
            parts = _within(
                weight * _FINE, prices, {source: saved * _FINE for source, saved in added.items()}
            )
            shares += [Share(source, node.id, part, inserted) for source, part in parts.items()]
        if any(share.weight for share in shares):
            return shares
        return [share._replace(weight=1) for share in shares]

    def folded(self, node_id: int) -> Origin:
        """The source operators that are in the node only through constants."""
        return self._folded.get(node_id, NO_ORIGIN)

    def _modelled(
        self,
        step: ProgramStep,
        members: Sequence[Member],
        anchor: Member,
        traffic: Traffic,
        busy_ps: int,
    ) -> Savings:
        graph, inside, model = self._graph, frozenset(step.nodes), self._model
        by_units = step.reduced_precision
        arithmetic = {
            member.node: round(
                self._arithmetic(member, step, traffic)
                * (
                    1.0
                    if member is anchor
                    else model.epilogue(anchor.op, member.op, by_units=by_units)
                )
            )
            for member in step.members
        }
        added = self._added(step, graph[anchor.node])
        read = {
            member.node: side_bytes(graph, graph[member.node], inside)
            for member in members
            if member is not anchor and member.op not in VIEWS
        }
        computing = sum(arithmetic.values()) + sum(own for own, _ in added.values())
        others = None
        if is_contraction(anchor.op):
            others = sum(read.values()) + sum(each for _, each in added.values())
        kernel = KernelModel(model, traffic, computing, others, busy_ps)
        return Savings(
            kernel.whole,
            {
                member.node: kernel.saved(arithmetic[member.node], read[member.node])
                if member.node in read
                else 0
                for member in members
                if member is not anchor
            },
            {source: kernel.saved(*cost) for source, cost in added.items()},
        )

    def _arithmetic(self, member: Member, step: ProgramStep, traffic: Traffic) -> int:
        node, model = self._graph[member.node], self._model
        if not step.symbol:
            # Nobody counted what a reference implementation does.
            return model.node_ps(self._graph, node) or 1
        transposing = model.fused_transpose_ps(node, traffic.bytes) if len(step.members) > 1 else 0
        by_units = step.reduced_precision
        return model.arithmetic_ps(self._graph, node, member.flops, by_units=by_units) + transposing

    def _added(self, step: ProgramStep, anchor: Node) -> dict[int, tuple[int, int]]:
        """What operators of other kinds add to a convolution or product that they became part of:
        arithmetic, and bytes that they read.
        """
        working = anchor.origin - self.folded(anchor.id)
        heavy = {source for source in working if any(map(is_contraction, self._kinds[source]))}
        # A layout change does none of the work of those that it was put in for.
        if not heavy or anchor.bodies or anchor.id in self._inserted:
            return {}
        found = {}
        for source in sorted(working - heavy):
            known = self._costs.get(source)
            if known is not None:
                op = next(iter(self._kinds[source]), "")
                factor = self._model.epilogue(anchor.op, op, by_units=step.reduced_precision)
                own = round(known.arithmetic_ps * factor)
                found[source] = own, known.side_bytes(anchor.origin)
        return found

    def _prices(self, graph: Graph, node: Node, per_byte: float) -> dict[int, int]:
        """What to split the node by: its source operators with the cost of each. Folded ones have
        0; not all have 0 unless all are alike.
        """
        folded = self.folded(node.id)
        # Where everything reached the node through constants there is nobody else to charge.
        working = sorted(node.origin - folded) or sorted(node.origin)
        if node.id in self._inserted:
            causes = self._causes(graph, node, working)
            return dict.fromkeys(causes, 1) | dict.fromkeys(sorted(node.origin - set(causes)), 0)
        if node.bodies and node.op != "If":
            return self._body_prices(node, working, per_byte)
        moving = [source for source in working if not self._kinds[source] <= VIEWS] or working
        prices = dict.fromkeys(moving, 1)
        if len(moving) > 1:
            prices = {source: self._price(graph, node, source, per_byte) for source in moving}
            prices = prices if any(prices.values()) else dict.fromkeys(moving, 1)
        return prices | dict.fromkeys(sorted(node.origin - set(moving)), 0)

    def _causes(self, graph: Graph, node: Node, working: Sequence[int]) -> Sequence[int]:
        """Those of the operators for which a node was inserted that it is really there for: a
        convolution has its layout, not its activation.

        What only prepares an operand that is added is there for the addition.
        """
        heavy = [source for source in working if any(map(is_contraction, self._kinds[source]))]
        additions = [
            source for source in working if self._kinds[source] & ADDITIONS and source not in heavy
        ]
        uses = [
            (reader, index)
            for reader in graph.consumers(node)
            for index, ref in enumerate(reader.inputs)
            if ref is not None and ref.node == node.id
        ]
        if (
            additions
            and uses
            and all(ADDED_INPUT.get(reader.op) == index for reader, index in uses)
        ):
            return additions
        return heavy or working

    def _price(self, graph: Graph, node: Node, source: int, per_byte: float) -> int:
        known = self._costs.get(source)
        if known is not None:
            return known.within(node.origin, per_byte)
        # The operator's shapes are unknown: a contraction does the node's arithmetic, anything else
        # a little for each element.
        if any(map(is_contraction, self._kinds[source])):
            return self._model.node_ps(graph, node) or 1
        flops = [lookup(op).flops for op in self._kinds[source]]
        return (
            10
            * elements_of(node)
            * max((each for each in flops if isinstance(each, int)), default=1)
        )

    def _body_prices(self, node: Node, working: Sequence[int], per_byte: float) -> dict[int, int]:
        prices = dict.fromkeys(working, _INTERPRETED_PS)
        for graph, inner in _inside(node):
            own = _INTERPRETED_PS + (self._model.node_ps(graph, inner) or 0)
            parts = self._prices(graph, inner, per_byte)
            for source, part in zip(
                parts, largest_remainder(own, list(parts.values())), strict=True
            ):
                prices[source] = prices.get(source, 0) + part
        return prices


def _known_first(measured: Savings, modelled: Savings) -> Savings:
    """What was measured, and what was not as the model has it, on the scale of the measurement."""

    def scaled(of: Mapping[int, int]) -> dict[int, int]:
        return {key: saved * measured.whole // max(1, modelled.whole) for key, saved in of.items()}

    members = {**scaled(modelled.members), **measured.members}
    sources = {**scaled(modelled.sources), **measured.sources}
    return Savings(measured.whole, members, sources)


def _parts(savings: Savings, members: Sequence[Member], anchor: Member) -> list[int]:
    """The members' parts of the whole. The anchor's is what is left; when the others would save
    more than there is, it has none.
    """
    parts = [
        0 if member is anchor else max(0, savings.members.get(member.node, 0)) for member in members
    ]
    rest = max(0, savings.whole - sum(parts))
    return [rest if member is anchor else part for member, part in zip(members, parts, strict=True)]


def _within(weight: int, prices: Mapping[int, int], added: Mapping[int, int]) -> dict[int, int]:
    """A member's part over its source operators: those that add something have that, the others
    share the rest by price.
    """
    own = {source: max(0, min(added[source], weight)) for source in prices if source in added}
    excess = sum(own.values()) - weight
    if excess > 0:
        own = dict(zip(own, largest_remainder(weight, list(own.values())), strict=True))
    others = [source for source in prices if source not in own]
    rest = weight - sum(own.values())
    shared = (
        dict(
            zip(others, largest_remainder(rest, [prices[source] for source in others]), strict=True)
        )
        if others
        else {}
    )
    return {source: own.get(source, 0) + shared.get(source, 0) for source in prices}


def _inside(node: Node) -> Iterator[tuple[Graph, Node]]:
    """The operators in the bodies of a node; those in bodies of bodies are left to their own
    node.
    """
    for body in node.bodies.values():
        for inner in body:
            if inner.origin and not inner.is_const:
                yield body, inner
