"""Transposes move towards the outputs, through operators that do not care about the order of axes,
where that makes them fewer.

1. f(transpose(x, p)) = transpose(f(x), p) for f elementwise, and for f along an axis with that axis
   renamed
2. f(transpose(x, p), transpose(y, p), c) = transpose(f(x, y, transpose⁻¹(c, p)), p) for f on
   several values, c being constant
3. transpose(transpose(x, p), q), wherever two meet, as in `cancel_transposes`

Regions of such operators are planned first: one from all transposes with the same permutation,
taken together, which sees branches that meet again; then a bounded one from each. A region is
carried out only when it ends with fewer transposes than it began with, those that move nothing but
axes of size 1 counting for almost nothing, so the pass comes to an end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.connected_components import connected_components
from whence.graph.search import producer_of
from whence.graph.state import BOUNDARY
from whence.passes.base import RulePass
from whence.passes.layout.axes import Perm, compose, is_identity, perm_of
from whence.passes.layout.cancel_transposes import cancel_pairs, compose_transposes
from whence.passes.layout.transposed_op import Input, Reshaped, rewritten
from whence.passes.pattern import few_consumers, same_dim, shape_of
from whence.provenance import Reason
from whence.types import TensorType

# Regions are local. The bounds keep the pass linear in the size of the graph.
_MAX_REGION = 64
_MAX_CONSUMERS = 16
_MOVE = 1 << 20
"""The cost of moving elements, in units of a reshape's."""


@dataclass(slots=True)
class _Region:
    """Operators that are to work on untransposed values."""

    graph: Graph
    sources: dict[int, Node] = field(default_factory=dict)
    """The transposes in front."""
    nodes: dict[int, Node] = field(default_factory=dict)
    perms: dict[Ref, Perm] = field(default_factory=dict)
    """How the value that is there now results from the one that will be there, where these
    differ.
    """

    def all(self) -> list[Node]:
        return [*self.sources.values(), *self.nodes.values()]

    def perm_at(self, node: Node) -> Perm | None:
        """The permutation of the node's inputs from the region, if they agree."""
        perms = {self.perms[ref] for ref in node.inputs if ref is not None and ref in self.perms}
        return perms.pop() if len(perms) == 1 else None

    def add_source(self, source: Node) -> bool:
        perm = perm_of(self.graph, source)
        if (
            perm is None
            or is_identity(perm)
            or few_consumers(self.graph, source, _MAX_CONSUMERS) is None
        ):
            return False
        self.sources[source.id] = source
        self.perms[source.ref()] = perm
        return True

    def take(self, node: Node, perm: Perm, others: Sequence[Node] = ()) -> bool:
        """Add an operator that reads the region, and the transposes `others` that it reads too, if
        it can work on untransposed values.
        """
        more = {other.ref() for other in others}
        refs = [ref for ref in node.inputs if ref is not None]
        mine = {ref: ref for ref in refs if ref in self.perms or ref in more}
        transposed = rewritten(self.graph, node, mine, perm)
        if transposed is None or not all(map(self.add_source, others)):
            return False
        self.nodes[node.id] = node
        # An operator may remove the axes that were out of order; its users are no concern of ours.
        if not is_identity(transposed.perm):
            outputs = _transposed_outputs(node, transposed.perm)
            self.perms.update(dict.fromkeys(outputs, transposed.perm))
        return True

    def remove(self, node: Node) -> None:
        self.nodes.pop(node.id, None)
        self.sources.pop(node.id, None)
        for index in range(len(node.outputs)):
            self.perms.pop(node.ref(index), None)

    def is_needed_outside(self, ref: Ref) -> bool:
        """Does anybody else than the region and transposes read this value as it is now?"""
        users = self.graph.consumers(self.graph.producer(ref))
        return any(
            ref in user.inputs and user.id not in self.nodes and user.op != "Transpose"
            for user in users
        )

    def frontier(self, node: Node) -> int:
        """What the transposes cost that others than the region need behind the node's outputs."""
        refs = [node.ref(index) for index in range(len(node.outputs))]
        return sum(
            _cost(self.graph, ref, self.perms[ref])
            for ref in refs
            if ref in self.perms and self.is_needed_outside(ref)
        )

    def sinks(self, node: Node) -> list[Node]:
        """The transposes that read an output of the node which is one now."""
        return [
            user
            for user in self.graph.consumers(node)
            if user.op == "Transpose" and user.inputs[0] in self.perms
        ]

    def gain(self) -> int:
        """What the transposes cost now, less what they cost afterwards."""
        graph = self.graph
        sinks = {sink.id: sink for node in self.all() for sink in self.sinks(node)}
        if sinks.keys() & self.sources.keys():
            return 0
        now = sum(
            _cost(graph, node.ref(), perm_of(graph, node))
            for node in (*self.sources.values(), *sinks.values())
        )
        left = sum(
            _cost(graph, sink.ref(), perm_of(graph, sink))
            for sink in sinks.values()
            if not self._cancels(sink)
        )
        return now - left - sum(self.frontier(node) for node in self.all())

    def _cancels(self, sink: Node) -> bool:
        perm, ref = perm_of(self.graph, sink), sink.inputs[0]
        return perm is not None and ref is not None and is_identity(compose(self.perms[ref], perm))


def _cost(graph: Graph, ref: Ref, perm: Perm | None) -> int:
    """What a Transpose by `perm` that results in `ref` costs: next to nothing when only axes of
    size 1 change places, as in a reshape.
    """
    shape = shape_of(graph, ref)
    if shape is None or perm is None:
        return _MOVE
    moved = [axis for axis, size in zip(perm, shape, strict=True) if not same_dim(size, 1)]
    return _MOVE if moved != sorted(moved) else 1


@dataclass(frozen=True, slots=True)
class SinkTransposes(RulePass):
    """Move transposes downstream until they meet."""

    name = "sink_transposes"
    summary = "move transposes through elementwise and axis-wise operators to where they cancel"
    anchors = frozenset({"Transpose"})

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        cancel_pairs(rewriter)
        # Neighbours first: nothing needs to move for them. Each meets what is left of those before
        # it, so that once through the graph is enough.
        for node in [node for node in graph if node.op == "Transpose"]:
            if node.graph is graph:
                compose_transposes(node, rewriter)
        perms = dict.fromkeys(perm_of(graph, node) for node in graph if node.op == "Transpose")
        for perm in perms:
            if perm is not None and not is_identity(perm):
                for region in _parts(_plan_together(graph, perm)):
                    _carry_out(region, rewriter)
        # The explicit form: a dataclass with slots is another class than the one `super` would
        # find.
        RulePass.run(self, rewriter)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        # Neighbours first: nothing needs to move for them.
        if compose_transposes(node, rewriter):
            return
        region = _plan(rewriter.graph, node)
        if region is not None:
            _carry_out(region, rewriter)


def _carry_out(region: _Region, rewriter: Rewriter) -> None:
    """Let the region's operators work on untransposed values, if that saves transposes and an
    earlier region has not changed them.
    """
    graph = rewriter.graph
    if (
        not region.nodes
        or any(node.graph is not graph for node in region.all())
        or region.gain() <= 0
    ):
        return
    sinks = [sink for each in region.all() for sink in region.sinks(each)]
    # One operator after the other passes the transposes in front of it on to its outputs.
    for each in sorted(region.nodes.values(), key=_place):
        perm = region.perm_at(each)
        assert perm is not None
        outputs = _pass_through(rewriter, each, perm)
        region.perms.update(outputs)
    # 3. transpose(transpose(x, p), q)
    for sink in sinks:
        if sink.graph is graph:
            compose_transposes(sink, rewriter)


def _plan_together(graph: Graph, perm: Perm) -> _Region:
    """The region behind all transposes by `perm`, without the parts at its end that save
    nothing.
    """
    region = _Region(graph)
    for node in graph:
        if node.op == "Transpose":
            if perm_of(graph, node) == perm:
                region.add_source(node)
            continue
        common = None if node.op in BOUNDARY else region.perm_at(node)
        if common is not None and few_consumers(graph, node, _MAX_CONSUMERS) is not None:
            region.take(node, common)
    _prune(region)
    return region


def _parts(region: _Region) -> list[_Region]:
    """The region as regions that have nothing to do with each other, so that each is judged by what
    it saves itself.
    """
    pairs = (
        (ref.node, node.id)
        for node in region.nodes.values()
        for ref in node.inputs
        if ref is not None and ref in region.perms
    )
    parts = []
    for ids in connected_components([node.id for node in region.all()], pairs):
        sources = {each: region.sources[each] for each in ids if each in region.sources}
        nodes = {each: region.nodes[each] for each in ids if each in region.nodes}
        refs = [
            node.ref(i)
            for node in (*sources.values(), *nodes.values())
            for i in range(len(node.outputs))
        ]
        perms = {ref: region.perms[ref] for ref in refs if ref in region.perms}
        parts.append(_Region(region.graph, sources, nodes, perms))
    return parts


def _plan(graph: Graph, source: Node) -> _Region | None:
    """The region behind `source`, without the parts that save nothing; `None` when it grows too
    large.
    """
    region = _Region(graph)
    if not region.add_source(source):
        return None
    queue = deque(graph.consumers(source))
    while queue:
        node = queue.popleft()
        perm = region.perm_at(node)
        if (
            node.id in region.nodes
            or node.is_a("Transpose", "Output", "Assign")
            or perm is None
            or few_consumers(graph, node, _MAX_CONSUMERS) is None
        ):
            continue
        others = _other_sources(region, node, perm)
        if not region.take(node, perm, others):
            continue
        if len(region.nodes) > _MAX_REGION:
            return None
        for each in (*others, node):
            queue.extend(graph.consumers(each))
    _prune(region)
    return region


def _other_sources(region: _Region, node: Node, perm: Perm) -> list[Node]:
    """The transposes by `perm` among the node's inputs that are not in the region yet."""
    graph, found = region.graph, dict[Node, None]()
    for ref in node.inputs:
        other = producer_of(graph, ref, "Transpose")
        if other is not None and other.id not in region.sources and perm_of(graph, other) == perm:
            found[other] = None
    return list(found)


def _prune(region: _Region) -> None:
    """Leave out operators at the end that no Transpose follows, unless they join values and so save
    one.
    """
    for node in sorted(region.nodes.values(), key=_place, reverse=True):
        if region.sinks(node) or any(
            user.id in region.nodes for user in region.graph.consumers(node)
        ):
            continue
        inputs = {ref for ref in node.inputs if ref is not None and ref in region.perms}
        spared = sum(
            _cost(region.graph, ref, region.perms[ref])
            for ref in inputs
            if not region.is_needed_outside(ref)
        )
        if spared <= region.frontier(node):
            region.remove(node)
    used = {ref.node for node in region.nodes.values() for ref in node.inputs if ref is not None}
    for source in [source for source in region.sources.values() if source.id not in used]:
        region.remove(source)


def _place(node: Node) -> int:
    """Where it stands in the list."""
    return node._order


def _operand(edit: Edit, value: Input) -> Ref | None:
    if isinstance(value, Reshaped):
        return edit.node("Reshape", [value.value, edit.sizes(value.shape)]).ref()
    return edit.const(value) if isinstance(value, np.ndarray) else value


def _transposed_outputs(node: Node, perm: Perm) -> list[Ref]:
    """The outputs that have the axes of `perm`; a scale that an operator finds for the whole tensor
    has none.
    """
    return [
        node.ref(index)
        for index, kind in enumerate(node.outputs)
        if not isinstance(kind, TensorType) or kind.rank in {None, len(perm)}
    ]


# 1. f(transpose(x, p)) = transpose(f(x), p)
# 2. f(transpose(x, p), transpose(y, p), c) = transpose(f(x, y, transpose⁻¹(c, p)), p)
def _pass_through(rewriter: Rewriter, node: Node, perm: Perm) -> dict[Ref, Perm]:
    """Move the transposes by `perm` in front of `node` behind it. Returns the permutation of each
    new transposed value.
    """
    graph = rewriter.graph
    transposes = {}
    for ref in node.inputs:
        transpose = producer_of(graph, ref, "Transpose")
        if ref is not None and transpose is not None and perm_of(graph, transpose) == perm:
            transposes[ref] = transpose
    values = {ref: transpose.first_input for ref, transpose in transposes.items()}
    transposed = rewritten(graph, node, values, perm)
    assert transposed is not None
    edit = rewriter.edit(*transposes.values(), node, rule="f(transpose(x)) = transpose(f(x))")
    inputs = [_operand(edit, value) for value in transposed.inputs]
    moved = edit.node(
        transposed.op or node.op,
        inputs,
        transposed.attrs,
        of=[node],
        flags=node.flags,
        n_outputs=len(node.outputs),
    )
    result: dict[Ref, Perm] = {}
    users = graph.consumers(node)
    for index, kind in enumerate(node.outputs):
        ref = node.ref(index)
        if is_identity(transposed.perm) or ref not in _transposed_outputs(node, transposed.perm):
            edit.replace(ref, moved.ref(index))
        elif any(ref in user.inputs for user in users):
            after = edit.node(
                "Transpose",
                [moved.ref(index)],
                {"perm": transposed.perm},
                types=kind,
                of=list(transposes.values()),
            )
            edit.replace(ref, after)
            result[after.ref()] = transposed.perm
    if not result:
        for transpose in transposes.values():
            edit.tombstone(transpose, Reason.CANCELLED, into=moved.id)
    edit.apply()
    return result
