"""How passes rewrite: match without touching, build, apply in one step.

    [A] the pass looks at the graph and decides; nothing changes
    [B] `edit = rewriter.edit(conv, bn, rule="...")`;
        `edit.const(...)`, `edit.node(...)` build new nodes beside the graph
    [C] `edit.replace(bn, new)`; `edit.apply()` does it all, or raises and does nothing;
        `edit.finish(bn, new)` is both

A new node inherits the origins of all matched nodes, unless the rule narrows them with `of=`: to
those whose work it does, where a matched node stays for other readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whence.errors import RewriteError, WhenceError
from whence.extent import is_symbolic
from whence.graph.change import Change
from whence.graph.graph import Graph
from whence.graph.node import Creation, Node, NodeFlag, Ref
from whence.graph.state import SOURCES
from whence.ops.definition import Attr, TypeQuery
from whence.provenance import EdgeKind, Reason, union_of
from whence.types import DType, TensorType, ValueType


class Rewriter:
    """The hand of one pass on one graph. It signs the ledger with the pass's name and counts what
    the pass did.
    """

    def __init__(self, graph: Graph, pass_name: str) -> None:
        self.graph = graph
        self.pass_name = pass_name
        self.rules: Counter[str] = Counter()
        """How often each rule was applied."""
        self.added = 0
        self.removed = 0
        self.fresh: list[Node] = []
        """Nodes whose surroundings changed since the driver last looked: they may match now."""

    @property
    def changes(self) -> int:
        return self.rules.total()

    def edit(
        self, *matched: Node, rule: str, folded: Sequence[Node] = (), kind: EdgeKind | None = None
    ) -> Edit:
        """Start a rewrite of `matched`. Those in `folded` leave no run-time work behind, only their
        effect on constants.
        """
        return Edit(self, matched, rule, folded, kind)

    def bypass(
        self, node: Node, value: Ref, *, reason: Reason, rule: str, undone: Sequence[Node] = ()
    ) -> bool:
        """Connect the users of `node`'s first output to `value` instead, and remove the node unless
        another output is used. What it undid leaves with it, unless it has other users. True, for
        rules that return whether they changed something.
        """
        edit = self.edit(*undone, node, rule=rule)
        edit.replace(node.ref(0), value)
        for each in (*undone, node):
            edit.tombstone(each, reason, into=value.node)
        return edit.apply()

    def applied(self, change: Change, touched: Sequence[Node]) -> None:
        """Take note of a change of the graph, and of whom it may let match now: new nodes, and
        those with another reader or input.
        """
        graph = self.graph
        self.rules[change.rule] += 1
        self.added += len(change.added)
        self.removed += len(change.removed)
        fresh: dict[Node, None] = dict.fromkeys((*change.added, *touched))
        near = [target.node for target in change.redirects.values()]
        near += [ref.node for node in change.removed for ref in node.inputs if ref is not None]
        for producer_id in near:
            producer = graph.get(producer_id)
            if producer is not None and producer not in fresh:
                fresh[producer] = None
                # Rules often ask that a value has only one reader. Now it may.
                if len(producer._uses) == 1:
                    fresh.update(dict.fromkeys(graph.consumers(producer)))
        self.fresh.extend(fresh)


class Edit:
    """One rewrite in the making. Nothing in the graph changes before `apply`."""

    def __init__(
        self,
        rewriter: Rewriter,
        matched: Sequence[Node],
        rule: str,
        folded: Sequence[Node],
        kind: EdgeKind | None,
    ) -> None:
        self.graph = rewriter.graph
        self._rewriter = rewriter
        self._matched = tuple(dict.fromkeys((*matched, *folded)))
        self._folded = frozenset(node.id for node in folded)
        self._rule = rule
        self._kind = kind
        self._new: dict[int, Node] = {}
        self._parents: dict[int, tuple[tuple[Node, ...], EdgeKind | None]] = {}
        self._redirects: dict[Ref, Ref] = {}
        self._tombstones: dict[int, tuple[Reason, int | None]] = {}

    # ---- [B] build ----

    def const(self, value: Any, *, name: str = "", dtype: DType | None = None) -> Ref:
        """A constant with this value; numbers may be expressions, see `sizes`."""
        if isinstance(value, np.ndarray) and value.dtype == np.object_:
            items = value.reshape(-1).tolist()
            if any(map(is_symbolic, items)):
                return self.sizes(items, scalar=value.ndim == 0, name=name)
        array = np.asarray(value, dtype=None if dtype is None else dtype.numpy)
        node = Node(
            self.graph.new_id(), "Const", (), (TensorType.of(array),), value=array, name=name
        )
        self._new[node.id] = node
        return node.ref()

    def sizes(
        self,
        sizes: Sequence[int],
        *,
        scalar: bool = False,
        name: str = "",
        dtype: DType = DType.I64,
        of: Sequence[Node] | None = None,
    ) -> Ref:
        """Numbers that may be expressions over the model's dimensions: a constant if none is."""
        if not any(map(is_symbolic, sizes)):
            return self.const(sizes[0] if scalar else list(sizes), name=name, dtype=dtype)
        attrs: dict[str, Attr] = {"value": tuple(sizes), "scalar": int(scalar), "to": int(dtype)}
        return self.node("DimensionValue", (), attrs, name=name, of=of, kind=EdgeKind.FOLD).ref()

    def node(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attrs: Mapping[str, Attr] | None = None,
        types: Sequence[ValueType] | ValueType | None = None,
        *,
        name: str = "",
        of: Sequence[Node] | None = None,
        kind: EdgeKind | None = None,
        inherit: Node | None = None,
        bodies: Mapping[str, Graph] | None = None,
        flags: NodeFlag = NodeFlag.NONE,
        n_outputs: int = 1,
    ) -> Node:
        """A new operator. Its types are inferred when not given.

        `of` narrows whose origin it inherits (all matched nodes by default). `inherit` names a
        matched node whose id, users and origin it takes over.
        """
        attrs = dict(attrs or {})
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if types is None:
            try:
                types = self.infer(op, inputs, attrs, n_outputs)
            except WhenceError as error:
                raise type(error)(self._told(str(error))) from error
        elif not isinstance(types, Sequence):
            types = (types,)
        parents = self._ancestors(of if of is not None else self._matched, inherit)
        if not parents:
            raise self._error(f"{op} has no origin: nothing was matched, and `of` names no node")
        node = Node(
            inherit.id if inherit is not None else self.graph.new_id(),
            op,
            inputs,
            types,
            attrs,
            name=name or parents[-1].name,
            origin=union_of(parent.origin for parent in parents),
            bodies=bodies,
            flags=flags,
        )
        self._new[node.id] = node
        self._parents[node.id] = parents, kind
        if inherit is not None:
            self.replace(inherit, node)
        return node

    def _ancestors(self, of: Sequence[Node], inherit: Node | None) -> tuple[Node, ...]:
        """The nodes of the graph that `of` stands for: a new node stands for its own ancestors."""
        found: dict[Node, None] = {} if inherit is None else {inherit: None}
        for node in of:
            found.update(
                dict.fromkeys(
                    self._parents[node.id][0] if self._new.get(node.id) is node else (node,)
                )
            )
        return tuple(found)

    def infer(
        self, op: str, inputs: Sequence[Ref | None], attrs: Mapping[str, Attr], n_outputs: int = 1
    ) -> tuple[ValueType, ...]:
        types = tuple(None if ref is None else self.type_of(ref) for ref in inputs)
        values = tuple(None if ref is None else self.value_of(ref) for ref in inputs)
        return self.graph.inference.infer(TypeQuery(op, attrs, types, values, n_outputs))

    def type_of(self, ref: Ref) -> ValueType:
        node = self._new.get(ref.node) or self.graph[ref.node]
        return node.outputs[ref.index]

    def value_of(self, ref: Ref) -> np.ndarray | None:
        node = self._new.get(ref.node) or self.graph[ref.node]
        return node.known_value

    # ---- [C] apply ----

    def replace(self, old: Node | Ref, new: Node | Ref) -> None:
        """Users of `old` are to use `new`. For two nodes, output by output."""
        if isinstance(old, Node) and isinstance(new, Node) and len(old.outputs) > 1:
            for index in range(min(len(old.outputs), len(new.outputs))):
                self._redirects[old.ref(index)] = new.ref(index)
            return
        self._redirects[old if isinstance(old, Ref) else old.ref()] = (
            new if isinstance(new, Ref) else new.ref()
        )

    def tombstone(self, node: Node, reason: Reason, into: int | None = None) -> None:
        """State why a matched node is removed without a successor that has its origin."""
        self._tombstones[node.id] = (reason, into)

    def finish(self, old: Node | Ref, new: Node | Ref) -> bool:
        """Replace `old` by `new`, the last thing to be done, and apply it all."""
        self.replace(old, new)
        return self.apply()

    def apply(self) -> bool:
        """Do it, or raise `RewriteError` and change nothing. Matched nodes that nobody uses any
        more are removed. True, for rules that return whether they changed something.
        """
        for node in self._matched:
            if node.graph is not self.graph:
                raise self._error(f"{node!r} was matched, but is not in the graph any more")
        change = Change(
            self.graph,
            self._rewriter.pass_name,
            self._rule,
            redirects=self._redirects,
            tombstones=self._tombstones,
        )
        needed = {ref.node for ref in self._redirects.values()}
        for node in reversed(self._new.values()):
            if node.is_const and node.id not in needed:
                continue
            needed.update(ref.node for ref in node.inputs if ref is not None)
            (change.consts if node.is_const else change.added).append(node)
        change.added.reverse()
        if change.added and not self._redirects and not any(node.retained for node in change.added):
            raise self._error(
                f"nothing reads the new {change.added[-1].op}: `replace` or `finish` says what it"
                " takes the place of"
            )
        change.removed = self._unused(change, needed)
        if change.added:
            self._set_creations(change)
        else:
            self._pass_on_to_consts(change)
        change.before = self._position(change)
        self._rewriter.applied(change, change.apply())
        return True

    def _unused(self, change: Change, needed: set[int]) -> list[Node]:
        """The matched nodes that no one reads once the redirects are done, consumers before
        producers.
        """
        gone: dict[int, Node] = {}
        for node in sorted(self._matched, key=lambda match: match._order, reverse=True):
            if node.id not in self._new:
                if node.retained or node.op in SOURCES or node.id in needed:
                    continue
                refs = frozenset(node.ref(index) for index in range(len(node.outputs)))
                if any(
                    self._reads(change, user_id, refs)
                    for user_id in node._uses
                    if user_id not in gone
                ):
                    continue
            gone[node.id] = node
        return list(gone.values())

    def _reads(self, change: Change, user_id: int, refs: frozenset[Ref]) -> bool:
        """Will this consumer read one of these outputs when the change is done?"""
        return any(
            change.redirected(user_id, ref) == ref
            for ref in refs.intersection(self.graph[user_id].inputs)
        )

    def _set_creations(self, change: Change) -> None:
        siblings = Counter(self._parents[node.id][0] for node in change.added)
        for node in change.added:
            parents, kind = self._parents[node.id]
            kind = kind or self._kind or self._usual_kind(parents, siblings[parents])
            node.creation = Creation(
                tuple((parent.id, self._kind_for(parent, kind)) for parent in parents),
                change.pass_name,
                change.rule,
            )

    def _usual_kind(self, parents: Sequence[Node], siblings: int) -> EdgeKind:
        """Several make one: fused. One makes several: split. One makes one: a copy."""
        if sum(not parent.is_const and parent.id not in self._folded for parent in parents) > 1:
            return EdgeKind.FUSE
        return EdgeKind.SPLIT if siblings > 1 else EdgeKind.COPY

    def _kind_for(self, parent: Node, kind: EdgeKind) -> EdgeKind:
        # A constant does no run-time work that a child could take over, whatever went into it.
        return EdgeKind.FOLD if parent.is_const or parent.id in self._folded else kind

    def _pass_on_to_consts(self, change: Change) -> None:
        """When only constants are left of the matched nodes, the constants carry their origin."""
        targets = {ref.node for ref in self._redirects.values()}
        parents = [node for node in self._matched if node.id not in self._tombstones]
        for node in change.consts:
            if node.id in targets:
                node.origin = union_of(parent.origin for parent in parents)
                node.creation = Creation(
                    tuple((parent.id, EdgeKind.FOLD) for parent in parents),
                    change.pass_name,
                    change.rule,
                )

    def _position(self, change: Change) -> Node | None:
        """Where the new nodes go: after all they read, before all who will read them, else near the
        last matched node.
        """
        if not change.added:
            return None
        graph = self.graph
        gone = {node.id for node in change.removed}
        added = {node.id for node in change.added}
        limit = max(self._matched, key=lambda match: match._order, default=None)
        moved = {old for old, target in self._redirects.items() if target.node in added}
        for source in filter(None, map(graph.get, {old.node for old in moved})):
            for user_id in source._uses:
                user = graph[user_id]
                if (
                    user_id not in gone
                    and (limit is None or user._order < limit._order)
                    and not moved.isdisjoint(user.inputs)
                ):
                    limit = user
        latest = None
        for node in change.added:
            for ref in node.inputs:
                producer = None if ref is None or ref.node in self._new else graph.get(ref.node)
                if producer is not None and (latest is None or producer._order > latest._order):
                    latest = producer
        if latest is not None and (limit is None or latest._order >= limit._order):
            return latest._next
        return limit

    def _error(self, problem: str) -> RewriteError:
        return RewriteError(self._told(problem))

    def _told(self, problem: str) -> str:
        return f"pass '{self._rewriter.pass_name}', rule '{self._rule}': {problem}"
