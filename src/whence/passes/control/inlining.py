"""Moving nested graphs into the graph around them: one change, in which every operator keeps its
own origin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.errors import RewriteError
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.change import Change, contradict, discard_body
from whence.graph.copying import copy_node
from whence.graph.node import Creation
from whence.ops.definition import Attrs
from whence.ops.registry import REGISTRY
from whence.passes.simplify.remove_dead_nodes import remove_unread
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType, ValueType


@dataclass(slots=True)
class Inlining:
    """The change that puts copies of the nodes of nested graphs where the node that holds them
    stands.
    """

    rewriter: Rewriter
    holder: Node
    rule: str
    new: dict[int, Node] = field(default_factory=dict)
    redirects: dict[Ref, Ref] = field(default_factory=dict)
    taken: list[Graph] = field(default_factory=list)
    """The nested graphs whose nodes move."""
    moved: list[Node] = field(default_factory=list)
    """Nodes of the nested graph that hold graphs themselves, which go over to their copies."""
    retained: list[Graph] = field(default_factory=list)
    """Nested graphs that go over to a node of their own."""

    def inline(self, body: Graph, given: Sequence[Ref | None]) -> list[Ref | None]:
        """Copy the nodes of `body`, fed with `given`; returns what its outputs became."""
        self.taken.append(body)
        copies: dict[Ref, Ref | None] = {
            entry.ref(): ref for entry, ref in zip(body.inputs, given, strict=True)
        }
        for node in body:
            if node.is_a("Input", "Output"):
                continue
            inputs = [None if ref is None else copies[ref] for ref in node.inputs]
            copy = self._copy(node, inputs)
            if node.bodies:
                self.moved.append(node)
            for index in range(len(node.outputs)):
                copies[node.ref(index)] = copy.ref(index)
        return [
            copies[ref] if (ref := output.inputs[0]) is not None else None
            for output in body.outputs
        ]

    def const(self, value: np.ndarray) -> Ref:
        # Numbers that no operator made have no history.
        node = Node(self.graph.new_id(), "Const", (), (TensorType.of(value),), value=value)
        node.name = self.holder.name
        return self._add(node).ref()

    def keep(
        self, body: Graph, given: Sequence[Ref | None], types: Sequence[ValueType]
    ) -> list[Ref | None]:
        """Leave `body` a nested graph, fed with `given`, that gives what has these types; returns
        what its outputs became.
        """
        self.retained.append(body)
        node = self._make("Branch", given, types, {"captures": len(given)}, {"body": body})
        return [node.ref(index) for index in range(len(types))]

    def choose(self, condition: Ref, then: Ref, otherwise: Ref) -> Ref:
        """What an If gives: one of two values, of one type."""
        return self._make("Choose", (condition, then, otherwise), [self.type_of(then)]).ref()

    def number(self, condition: Ref) -> Ref:
        """A condition that may be a list of one element, as a number."""
        kind = self.type_of(condition)
        if isinstance(kind, TensorType) and kind.shape == ():
            return condition
        nothing = self.const(np.array([], np.int64))
        return self._make("Reshape", (condition, nothing), [TensorType(DType.BOOL, ())]).ref()

    def row(self, ref: Ref | None) -> Ref | None:
        """The only row of a scan output: the value of one iteration with a leading dimension of
        1.
        """
        kind = None if ref is None else self.type_of(ref)
        if not isinstance(kind, TensorType):
            return None
        stacked = TensorType(kind.dtype, None if kind.shape is None else (1, *kind.shape))
        return self._make("Unsqueeze", (ref, self.const(np.array([0]))), [stacked]).ref()

    def connect(self, results: Sequence[Ref | None]) -> bool:
        """`results` are to stand for the holder's outputs. False when they do not fit."""
        if len(results) != len(self.holder.outputs):
            return False
        for index, (was, ref) in enumerate(zip(self.holder.outputs, results, strict=True)):
            if ref is None or contradict(was, self.type_of(ref)):
                return False
            self.redirects[self.holder.ref(index)] = ref
        return True

    def apply(self) -> list[Node]:
        """Do it; returns the nodes that are new. What was not taken is dead."""
        rewriter, holder = self.rewriter, self.holder
        target = self.redirects[holder.ref()].node
        held, bodies_before = holder.bodies, {node: node.bodies for node in self.moved}
        change = Change(
            self.graph,
            rewriter.pass_name,
            self.rule,
            before=holder,
            redirects=self.redirects,
            removed=[holder],
        )
        change.tombstones = {holder.id: (Reason.INLINED, target)}
        for node in self.new.values():
            (change.consts if node.is_const else change.added).append(node)
        # The change dissolves what the removed node holds: graphs that go over to a copy must not
        # be found there.
        holder.bodies = {
            name: body for name, body in held.items() if any(body is taken for taken in self.taken)
        }
        for node in self.moved:
            node.bodies = {}
        try:
            touched = change.apply()
        except RewriteError:
            holder.bodies = held
            for node, bodies in bodies_before.items():
                node.bodies = bodies
            raise
        for body in held.values():
            if not any(body is other for other in (*self.taken, *self.retained)):
                discard_body(
                    body, Reason.DEAD, rewriter.pass_name, f"never runs: {self.rule}", None
                )
        rewriter.applied(change, touched)
        # The condition, or the number of iterations, did its work here. What a branch captured may
        # still be wanted, or is simply dead.
        deciding = REGISTRY[holder.op].operands
        remove_unread(
            rewriter,
            holder.inputs[: len(deciding.names) - deciding.variadic],
            reason=Reason.FOLDED,
            rule=self.rule,
            into=target,
        )
        return change.added

    def _copy(self, original: Node, inputs: Sequence[Ref | None]) -> Node:
        node = copy_node(original, self.graph.new_id(), inputs)
        # A constant of the file that no operator made has no history to go on with.
        silent = node.is_const and not original.origin
        return self._add(node) if silent else self._add(node, original, EdgeKind.COPY)

    def _make(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        types: Sequence[ValueType],
        attrs: Attrs | None = None,
        bodies: Mapping[str, Graph] | None = None,
    ) -> Node:
        """An operator that the holder becomes."""
        number, name = self.graph.new_id(), self.holder.name
        node = Node(number, op, inputs, types, attrs, name=name, bodies=bodies)
        return self._add(node, self.holder, EdgeKind.LOWER)

    def _add(self, node: Node, parent: Node | None = None, kind: EdgeKind = EdgeKind.LOWER) -> Node:
        if parent is not None:
            node.creation = Creation(((parent.id, kind),), self.rewriter.pass_name, self.rule)
            node.origin = parent.origin
        self.new[node.id] = node
        return node

    @property
    def graph(self) -> Graph:
        return self.rewriter.graph

    def type_of(self, ref: Ref) -> ValueType:
        node = self.new.get(ref.node) or self.graph[ref.node]
        return node.outputs[ref.index]


Plan = Callable[[Rewriter, Node], Inlining | None]
"""How a node is inlined; `None` where it is not."""


def inline_all(rewriter: Rewriter, plans: Mapping[str, Plan]) -> bool:
    """Inline what the plans allow, and then what that held, which may become certain through it.
    Was there anything?
    """
    return sum(_inlined(rewriter, node, plans) for node in list(rewriter.graph)) > 0


def _inlined(rewriter: Rewriter, node: Node, plans: Mapping[str, Plan]) -> bool:
    plan = None if node.retained else plans.get(node.op)
    inlining = None if plan is None else plan(rewriter, node)
    if inlining is None:
        return False
    for each in inlining.apply():
        _inlined(rewriter, each, plans)
    return True
