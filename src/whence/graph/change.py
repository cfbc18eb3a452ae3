"""One atomic change of a graph: nodes added, uses redirected, nodes removed, the ledger written.

Everything that rewrites a graph ends here. A change is checked as a whole first; what follows
cannot fail. So a rewrite either happens wholly, or raises `RewriteError` and leaves graph, ledger
and new nodes exactly as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from whence.errors import RewriteError
from whence.graph.graph import Graph
from whence.graph.node import Creation, Node, Ref
from whence.provenance import EdgeKind, Entry, Origin, Reason, Tombstone, union_of
from whence.types import DType, TensorType, ValueType, differ


class Rewired(NamedTuple):
    """A consumer that is to read other outputs than before."""

    user: Node
    inputs: tuple[Ref | None, ...]
    dropped: Sequence[Ref | None]
    gained: Sequence[Ref | None]


@dataclass(slots=True)
class Change:
    """What is to happen. `added` stand contiguously before `before` (at the end of the list when
    `None`).
    """

    graph: Graph
    pass_name: str
    rule: str
    added: list[Node] = field(default_factory=list)
    before: Node | None = None
    consts: list[Node] = field(default_factory=list)
    """New constants; they go to the front of the list."""
    redirects: Mapping[Ref, Ref] = field(default_factory=dict)
    """Who read the key reads the value instead. All at once: where a -> b and b -> c, those who
    read a read b.
    """
    removed: list[Node] = field(default_factory=list)
    tombstones: Mapping[int, tuple[Reason, int | None]] = field(default_factory=dict)
    """By node id: why a removed node needs no successor, and which node stands in for it."""
    _front: frozenset[int] = frozenset()

    def apply(self) -> list[Node]:
        """Do it, or raise and do nothing. Returns the consumers that were redirected."""
        self._front = frozenset(node.id for node in self.consts)
        new = self._check_nodes()
        rewired = self._redirected(new)
        self._check_leftover_uses(new, rewired)
        creations = [self._creation(node) for node in self.added]
        self._check_conservation(creations)
        self._commit(creations, rewired)
        return [each.user for each in rewired]

    def redirected(self, user_id: int, ref: Ref) -> Ref:
        """What the node `user_id` reads instead of `ref`. A node that takes over the users of its
        own input goes on reading it.
        """
        target = self.redirects.get(ref, ref)
        return ref if target.node == user_id else target

    # ---- checking ----

    def _check_nodes(self) -> dict[int, Node]:
        """The new nodes by id."""
        graph = self.graph
        if self.before is not None and self.before.graph is not graph:
            raise self._error(f"{self.before!r}, where new nodes are to go, is not in the graph")
        removed: set[int] = set()
        for node in self.removed:
            if node.graph is not graph:
                raise self._error(f"{node!r} is to be removed, but is not in the graph")
            if node.id in removed:
                raise self._error(f"{node!r} is to be removed twice")
            removed.add(node.id)
        new: dict[int, Node] = {}
        for node in (*self.consts, *self.added):
            if node.graph is not None:
                raise self._error(f"{node!r} is in a graph already")
            if (
                node.id == 0
                or node.id in new
                or (graph.get(node.id) is not None and node.id not in removed)
            ):
                raise self._error(f"the id of {node!r} is not free")
            self._check_inputs(node, new, removed)
            new[node.id] = node
        return new

    def _check_inputs(self, node: Node, new: Mapping[int, Node], removed: set[int]) -> None:
        for ref in node.inputs:
            if ref is None:
                continue
            producer = new.get(ref.node)
            if producer is None:
                producer = self.graph.get(ref.node)
                if producer is None or ref.node in removed:
                    raise self._error(f"{node!r} reads {ref}, which will not exist")
                if self.before is not None and not self.graph.precedes(producer, self.before):
                    raise self._error(f"{node!r} would stand before its input {producer!r}")
            if not 0 <= ref.index < len(producer.outputs):
                raise self._error(
                    f"{node!r} reads output {ref.index} of {producer!r}, which has"
                    f" {len(producer.outputs)}"
                )

    def _redirected(self, new: Mapping[int, Node]) -> list[Rewired]:
        """Who is to read what, once all redirects are known to lead somewhere."""
        graph = self.graph
        removed = {node.id for node in self.removed}
        users: dict[int, None] = {}
        for source_id in dict.fromkeys(old.node for old in self.redirects):
            source = graph.get(source_id)
            if source is not None:
                users.update(dict.fromkeys(source._uses))
        for old, target in self.redirects.items():
            source = graph.get(old.node)
            if source is None or not 0 <= old.index < len(source.outputs):
                raise self._error(f"{old} is to be replaced, but does not exist")
            producer = new.get(target.node) or (
                None if target.node in removed else graph.get(target.node)
            )
            if producer is None or not 0 <= target.index < len(producer.outputs):
                raise self._error(f"{old} is to be replaced by {target}, which will not exist")
            self._check_compatible(
                old, source.outputs[old.index], target, producer.outputs[target.index]
            )
        targets = {target.node for target in self.redirects.values()}
        lookup = self.redirects.get
        result = []
        for user_id in users:
            user = graph[user_id]
            if user_id in targets:
                inputs = tuple(
                    None if ref is None else self.redirected(user_id, ref) for ref in user.inputs
                )
            else:
                # The same without a call for each: operators with thousands of inputs exist.
                inputs = tuple(None if ref is None else lookup(ref, ref) for ref in user.inputs)
            # By identity: who reads an heir reads another node through an equal reference.
            pairs = [
                (was, ref) for was, ref in zip(user.inputs, inputs, strict=True) if was is not ref
            ]
            if not pairs or user_id in removed:
                continue
            for _, ref in pairs:
                if ref is not None and not self._stands_before(ref.node, user, new):
                    raise self._error(f"{user!r} would stand before its new input {ref}")
            result.append(
                Rewired(user, inputs, [was for was, _ in pairs], [ref for _, ref in pairs])
            )
        return result

    def _stands_before(self, producer_id: int, consumer: Node, new: Mapping[int, Node]) -> bool:
        producer = new.get(producer_id)
        if producer is None:
            return self.graph.precedes(self.graph[producer_id], consumer)
        if producer_id in self._front:
            return True
        return self.before is not None and not self.graph.precedes(consumer, self.before)

    def _check_compatible(self, old: Ref, was: ValueType, new: Ref, becomes: ValueType) -> None:
        if contradict(was, becomes):
            raise self._error(f"{old} is {was}, its replacement {new} is {becomes}")

    def _check_leftover_uses(self, new: Mapping[int, Node], rewired: Sequence[Rewired]) -> None:
        """A node that still reads a removed one must find a successor with the same id."""
        removed = {node.id for node in self.removed}
        inputs = {each.user.id: each.inputs for each in rewired}
        for node in self.removed:
            heir = new.get(node.id)
            for user_id in node._uses:
                if user_id in removed:
                    continue
                user = self.graph[user_id]
                for ref in inputs.get(user_id, user.inputs):
                    if ref is None or ref.node != node.id:
                        continue
                    if heir is None:
                        raise self._error(f"{node!r} is to be removed, but {user!r} reads it")
                    if ref.index >= len(heir.outputs) or not self._stands_before(
                        heir.id, user, new
                    ):
                        raise self._error(
                            f"{user!r} reads {ref}, which the replacement {heir!r} cannot provide"
                        )
                    self._check_compatible(
                        ref, node.outputs[ref.index], ref, heir.outputs[ref.index]
                    )

    # ---- provenance ----

    def _creation(self, node: Node) -> tuple[Creation, Origin]:
        """Where a new node comes from. One that does not say descends from everything that is
        removed.
        """
        graph = self.graph
        if node.creation is not None:
            parents = [
                parent
                for parent_id, _ in node.creation.parents
                if (parent := graph.get(parent_id)) is not None
            ]
            return node.creation, node.origin or union_of(parent.origin for parent in parents)
        if not self.removed:
            raise self._error(f"{node!r} is inserted without naming the node that caused it")
        one_to_one = len(self.removed) == 1 and len(self.added) == 1
        kind = (
            EdgeKind.COPY
            if one_to_one
            else EdgeKind.FUSE
            if len(self.added) == 1
            else EdgeKind.SPLIT
        )
        edges = tuple(
            (parent.id, EdgeKind.FOLD if parent.is_const else kind) for parent in self.removed
        )
        return Creation(edges, self.pass_name, self.rule), union_of(
            parent.origin for parent in self.removed
        )

    def _check_conservation(self, creations: Sequence[tuple[Creation, Origin]]) -> None:
        surviving = union_of(
            [*(origin for _, origin in creations), *(node.origin for node in self.consts)]
        )
        for node in self.removed:
            if node.id in self.tombstones:
                continue
            if not node.origin <= surviving:
                raise self._error(
                    f"removing {node!r} would lose source operators"
                    f" {sorted(node.origin - surviving)}:"
                    " name a reason (`edit.tombstone`), or make a successor (`edit.node`)"
                )
            if self._abandoned_bodies(node):
                raise self._error(
                    f"removing {node!r} would lose the operators nested in it: name a reason"
                )

    def _abandoned_bodies(self, node: Node) -> list[Graph]:
        moved = [body for heir in self.added for body in heir.bodies.values()]
        return [body for body in node.bodies.values() if not any(body is other for other in moved)]

    # ---- doing ----

    def _commit(
        self, creations: Sequence[tuple[Creation, Origin]], rewired: Sequence[Rewired]
    ) -> None:
        graph = self.graph
        removed = {node.id for node in self.removed}
        before = self.before
        while before is not None and before.id in removed:
            before = before._next
        for user, _, dropped, _ in rewired:
            graph._drop_uses(user, dropped)
        leftover: dict[int, dict[int, int]] = {}
        # Consumers first, so that what is left in a node's uses then are consumers of its heir.
        for node in sorted(self.removed, key=lambda gone: gone._order, reverse=True):
            leftover[node.id], node._uses = node._uses, {}
            graph._unlink(node)
            self._add_tombstone(node)
        for node in self.consts:
            graph._link(node, None, graph._first)
            graph._register(node)
        for node, (creation, origin) in zip(self.added, creations, strict=True):
            node.creation, node.origin = creation, origin
            graph._link(node, graph._last if before is None else before._prev, before)
            graph._register(node)
        for node in (*self.consts, *self.added):
            # Readers of a new node are new themselves so far, and so none of them is a reader of
            # the node it replaces.
            node._uses.update(leftover.get(node.id, {}))
        for user, inputs, _, gained in rewired:
            user.inputs = inputs
            graph._add_uses(user, gained)
        graph.ledger.record_step(
            Entry(node.id, *node.creation)
            for node in (*self.consts, *self.added)
            if node.creation is not None
        )

    def _add_tombstone(self, node: Node) -> None:
        if node.id not in self.tombstones:
            return
        reason, into = self.tombstones[node.id]
        if node.origin:
            self.graph.ledger.add_tombstone(
                Tombstone(node.id, node.origin, reason, self.pass_name, self.rule, into)
            )
        for body in self._abandoned_bodies(node):
            discard_body(body, reason, self.pass_name, self.rule, into)

    def _error(self, problem: str) -> RewriteError:
        return RewriteError(f"pass '{self.pass_name}', rule '{self.rule}': {problem}")


def contradict(left: ValueType, right: ValueType) -> bool:
    """Can no value have both types? What is unknown contradicts nothing."""
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        if left.dtype is not right.dtype and DType.UNDEFINED not in (left.dtype, right.dtype):
            return True
        if left.shape is None or right.shape is None:
            return False
        if len(left.shape) != len(right.shape):
            return True
        return any(map(differ, left.shape, right.shape))
    unknown = any(
        isinstance(kind, TensorType) and kind.dtype is DType.UNDEFINED for kind in (left, right)
    )
    return type(left) is not type(right) and not unknown


def discard_body(body: Graph, reason: Reason, pass_name: str, rule: str, into: int | None) -> None:
    """Take every node out of a nested graph that is no longer reachable, leaving tombstones."""
    for node in reversed(body):
        body._unlink(node)
        if node.origin:
            body.ledger.add_tombstone(
                Tombstone(node.id, node.origin, reason, pass_name, rule, into)
            )
        for inner in node.bodies.values():
            discard_body(inner, reason, pass_name, rule, into)
