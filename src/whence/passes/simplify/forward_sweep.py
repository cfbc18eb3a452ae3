"""One walk over the list in which nodes give way to values that exist already.

Rules that find a node superfluous could each be an edit of its own, but an edit costs as much as
the consumers it touches have inputs, and a graph of a million nodes may hold hundreds of thousands
of superfluous ones. So the walk keeps a table of what stands for what, reconnects every node once,
as it is reached, and takes the superfluous nodes out together at the end.

    sweep = ForwardSweep(rewriter)
    for node in sweep:
        if node.op == "Identity":
            sweep.replace(node, [node.inputs[0]], reason=Reason.IDENTITY, rule="Identity(x) = x")
    sweep.finish()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from whence.graph import Node, Ref, Rewriter
from whence.graph.change import Change, contradict
from whence.graph.merge import merge
from whence.graph.state import GIVEN, SOURCES
from whence.provenance import Reason
from whence.types import ValueType


class _Removal(NamedTuple):
    node: Node
    reason: Reason
    into: int | None


class ForwardSweep:
    """The nodes in list order, each already reading what stands for its superfluous inputs."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.graph = rewriter.graph
        self._rewriter = rewriter
        self._stands_for: dict[int, Sequence[Ref | None]] = {}
        self._leaving: dict[str, list[_Removal]] = {}
        self._spares: list[tuple[str, _Removal]] = []

    def __iter__(self) -> Iterator[Node]:
        table = self._stands_for
        # As `NodeList.__iter__`, without a generator inside another: every pass sweeps.
        graph, node = self.graph, self.graph.first
        while node is not None:
            if node.graph is graph:
                if table:
                    for ref in node.inputs:
                        if ref is not None and ref.node in table:
                            self._reconnect(node)
                            break
                yield node
            node = node._next

    def replace(
        self, node: Node, values: Sequence[Ref | None], *, reason: Reason, rule: str
    ) -> bool:
        """From here on `values` stand for the outputs of `node`, which leaves at the end.

        `None` is for outputs that nobody reads. Returns False, and does nothing, when the node must
        stay or types contradict.
        """
        if node.retained:
            return False
        news: list[tuple[Ref, ValueType]] = []
        for was, value in zip(node.outputs, values, strict=True):
            becomes = was if value is None else self.graph.type_of(value)
            if value is None or was is becomes or was == becomes:
                continue
            if contradict(was, becomes):
                return False
            news.append((value, was))
        for value, was in news:
            self._learn(value, was)
        self._stands_for[node.id] = values
        into = next((value.node for value in values if value is not None), None)
        self._leaving.setdefault(rule, []).append(_Removal(node, reason, into))
        return True

    def spare(self, node: Node, *, reason: Reason, rule: str, into: int | None) -> None:
        """`node` leaves as well if by the end nobody reads it any more."""
        self._spares.append((rule, _Removal(node, reason, into)))

    def finish(self) -> None:
        """Take out what was replaced, and the spares without readers, leaving tombstones."""
        for rule, leaving in self._leaving.items():
            self._rewriter.rules[rule] += len(leaving)
            self._take_out(rule, leaving)
        # A node that only removed nodes read is removed, too.
        for rule, spares in itertools.groupby(reversed(self._spares), key=lambda each: each[0]):
            unread: dict[int, _Removal] = {}
            for _, spare in spares:
                node = spare.node
                if (
                    node.graph is self.graph
                    and not node.retained
                    and node.op not in GIVEN
                    and node._uses.keys() <= unread.keys()
                ):
                    unread[node.id] = spare
            if unread:
                self._take_out(rule, list(unread.values()))

    def _take_out(self, rule: str, leaving: Sequence[_Removal]) -> None:
        nodes = [item.node for item in leaving]
        tombstones = {item.node.id: (item.reason, item.into) for item in leaving}
        Change(
            self.graph, self._rewriter.pass_name, rule, removed=nodes, tombstones=tombstones
        ).apply()
        self._rewriter.removed += len(nodes)

    def _reconnect(self, node: Node) -> None:
        table = self._stands_for
        inputs = []
        for ref in node.inputs:
            values = table.get(ref.node) if ref is not None else None
            value = values[ref.index] if values is not None and ref is not None else None
            inputs.append(ref if value is None else value)
        self.graph.set_inputs(node, inputs)

    def _learn(self, value: Ref, was: ValueType) -> None:
        """Two outputs that are equal share what is known of either. An `Input` keeps its type: it
        is the model's signature.
        """
        producer = self.graph[value.node]
        known = producer.outputs[value.index]
        if producer.op in SOURCES:
            return
        merged = merge(known, was)
        if merged != known:
            self.graph.set_types(
                producer,
                (*producer.outputs[: value.index], merged, *producer.outputs[value.index + 1 :]),
            )
