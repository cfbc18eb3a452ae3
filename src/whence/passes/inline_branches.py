"""Nested graphs that are certain to run exactly once, or never, move into the graph around them.

1. An `If` with a constant condition is the branch it takes. The other branch is dead.
2. A `Loop` that makes one turn is its body, each scan output with a leading dimension of 1.
3. A `Loop` that makes no turn and collects nothing yields the values it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.errors import RewriteError
from whence.graph import Graph, Node, NodeFlag, Ref, Rewriter
from whence.graph.change import Change, contradict, dissolve
from whence.graph.node import Birth
from whence.ops.definition import Attrs
from whence.passes.base import Pass
from whence.passes.captures import capture_count
from whence.passes.const_values import const_bool, const_ints
from whence.passes.remove_dead_nodes import remove_unread
from whence.provenance import NO_ORIGIN, EdgeKind, Reason
from whence.types import TensorType, ValueType

_CONTROL = ("If", "Loop")


@dataclass(frozen=True, slots=True)
class InlineBranches(Pass):
    name = "inline_branches"
    summary = "branches and loops whose course is certain become plain operators"

    def run(self, rewriter: Rewriter) -> None:
        for node in [node for node in rewriter.graph if node.op in _CONTROL]:
            _unfold(rewriter, node)

    def why_skip(self, graph: Graph) -> str:
        return "" if not graph.op_counts.keys().isdisjoint(_CONTROL) else "no If, no Loop"


def _unfold(rewriter: Rewriter, node: Node) -> None:
    """Inline `node` if its course is certain, then what it held, which may become certain through it."""
    inlining = _plan_if(rewriter.graph, node) if node.op == "If" else _plan_loop(rewriter.graph, node)
    if inlining is None or node.retained:
        return
    for each in inlining.apply(rewriter):
        if each.op in _CONTROL:
            _unfold(rewriter, each)


# If(true, f, g) = f, If(false, f, g) = g
def _plan_if(graph: Graph, node: Node) -> _Inlining | None:
    taken = const_bool(graph, node.input(0))
    if taken is None:
        return None
    rule = f"an If that is always {'true' if taken else 'false'} is its {'then' if taken else 'else'} branch"
    inlining = _Inlining(graph, node, rule)
    results = inlining.inline(node.bodies["then_branch" if taken else "else_branch"], node.inputs[1:])
    return inlining if inlining.connect(results) else None


def _plan_loop(graph: Graph, node: Node) -> _Inlining | None:
    trips = const_ints(graph, node.input(0))
    proceeds = True if node.input(1) is None else const_bool(graph, node.input(1))
    formal = len(node.inputs) - capture_count(node)
    carried = node.inputs[2:formal]
    # Loop(0, c, v, f) = Loop(n, false, v, f) = v
    if proceeds is False or (trips is not None and len(trips) == 1 and trips[0] <= 0):
        inlining = _Inlining(graph, node, "a Loop of no turns yields what it was given")
        return inlining if inlining.connect(carried) else None
    # Loop(1, true, v, f) = f(0, true, v)
    if proceeds is True and trips == (1,):
        inlining = _Inlining(graph, node, "a Loop of one turn is its body")
        first = [inlining.const(np.array(0, np.int64)), inlining.const(np.array(True))]
        _, *results = inlining.inline(node.bodies["body"], [*first, *carried, *node.inputs[formal:]])
        rows = [inlining.row(ref) for ref in results[len(carried) :]]
        return inlining if inlining.connect([*results[: len(carried)], *rows]) else None
    return None


@dataclass(slots=True)
class _Inlining:
    """The change that puts copies of a nested graph's nodes where the node that holds it stands."""

    graph: Graph
    holder: Node
    rule: str
    new: dict[int, Node] = field(default_factory=dict)
    redirects: dict[Ref, Ref] = field(default_factory=dict)
    taken: Graph | None = None
    moved: list[Node] = field(default_factory=list)
    """Nodes of the nested graph that hold graphs themselves, which go over to their copies."""

    def inline(self, body: Graph, given: Sequence[Ref | None]) -> list[Ref | None]:
        """Copy the nodes of `body`, fed with `given`; returns what its outputs became."""
        self.taken = body
        became: dict[Ref, Ref | None] = {entry.ref(): ref for entry, ref in zip(body.inputs, given, strict=True)}
        for node in body:
            if node.op in ("Input", "Output"):
                continue
            inputs = [None if ref is None else became[ref] for ref in node.inputs]
            copy = self._add(node.op, inputs, node.outputs, node, EdgeKind.COPY, node.attrs, node.value, node.bodies, node.flags)
            if node.bodies:
                self.moved.append(node)
            for index in range(len(node.outputs)):
                became[node.ref(index)] = copy.ref(index)
        return [became[ref] if (ref := output.inputs[0]) is not None else None for output in body.outputs]

    def const(self, value: np.ndarray) -> Ref:
        return self._add("Const", (), (TensorType.of(value),), self.holder, EdgeKind.LOWER, value=value).ref()

    def row(self, ref: Ref | None) -> Ref | None:
        """The only row of a scan output: the value of one turn with a leading dimension of 1."""
        kind = None if ref is None else self._type_of(ref)
        if not isinstance(kind, TensorType):
            return None
        stacked = TensorType(kind.dtype, None if kind.shape is None else (1, *kind.shape))
        return self._add("Unsqueeze", (ref, self.const(np.array([0], np.int64))), (stacked,), self.holder, EdgeKind.LOWER).ref()

    def connect(self, results: Sequence[Ref | None]) -> bool:
        """`results` are to stand for the holder's outputs. False when they do not fit."""
        if len(results) != len(self.holder.outputs):
            return False
        for index, (was, ref) in enumerate(zip(self.holder.outputs, results, strict=True)):
            if ref is None or contradict(was, self._type_of(ref)):
                return False
            self.redirects[self.holder.ref(index)] = ref
        return True

    def apply(self, rewriter: Rewriter) -> list[Node]:
        """Do it; returns the nodes that are new. What was not taken is dead."""
        holder, target = self.holder, self.redirects[self.holder.ref()].node
        held, kept = holder.bodies, {node: node.bodies for node in self.moved}
        change = Change(self.graph, rewriter.pass_name, self.rule, before=holder, redirects=self.redirects, removed=[holder])
        change.buried = {holder.id: (Reason.INLINED, target)}
        for node in self.new.values():
            node.birth = Birth(node.birth.parents, rewriter.pass_name, self.rule) if node.birth is not None else None
            (change.consts if node.is_const else change.added).append(node)
        # The change dissolves what the removed node holds: graphs that go over to a copy must not be found there.
        holder.bodies = {name: body for name, body in held.items() if body is self.taken}
        for node in self.moved:
            node.bodies = {}
        try:
            touched = change.apply()
        except RewriteError:
            holder.bodies = held
            for node, bodies in kept.items():
                node.bodies = bodies
            raise
        for body in held.values():
            if body is not self.taken:
                dissolve(body, Reason.DEAD, rewriter.pass_name, f"never runs: {self.rule}", None)
        rewriter.applied(change, touched)
        # The condition, or the number of turns, did its work here. What a branch captured may still be wanted, or is simply dead.
        remove_unread(rewriter, holder.inputs[: 1 if holder.op == "If" else 2], reason=Reason.FOLDED, rule=self.rule, into=target)
        return change.added

    def _add(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        types: Sequence[ValueType],
        parent: Node,
        kind: EdgeKind,
        attrs: Attrs | None = None,
        value: np.ndarray | None = None,
        bodies: Mapping[str, Graph] | None = None,
        flags: NodeFlag = NodeFlag.NONE,
    ) -> Node:
        # A constant of the file that no operator made has no history to go on with.
        silent = op == "Const" and (not parent.origin or parent is self.holder)
        birth = None if silent else Birth(((parent.id, kind),), "", self.rule)
        origin = NO_ORIGIN if silent else parent.origin
        node = Node(self.graph.new_id(), op, inputs, types, attrs, name=parent.name, origin=origin, value=value, bodies=bodies, flags=flags)
        node.birth = birth
        self.new[node.id] = node
        return node

    def _type_of(self, ref: Ref) -> ValueType:
        node = self.new.get(ref.node) or self.graph[ref.node]
        return node.outputs[ref.index]
