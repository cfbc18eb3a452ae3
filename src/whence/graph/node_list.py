"""The list that a graph's nodes stand in: linked both ways, with order numbers."""

from __future__ import annotations

from collections.abc import Iterator

from whence.errors import GraphError
from whence.graph.node import Node
from whence.graph.order import number


class NodeList:
    """Insertion, removal and the question which of two nodes stands first are O(1) amortised."""

    def __init__(self) -> None:
        self._first: Node | None = None
        self._last: Node | None = None

    def __iter__(self) -> Iterator[Node]:
        """The nodes in list order. Nodes may be inserted or removed meanwhile; a removed node's
        successor is still reached.

        Moving nodes meanwhile is not safe: the walk follows a node to where it went.
        """
        node = self._first
        while node is not None:
            if node.graph is self:
                yield node
            # A removed node keeps its link onwards, so the walk goes on from where it stood.
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node = self._last
        while node is not None:
            if node.graph is self:
                yield node
            node = node._prev

    @property
    def first(self) -> Node | None:
        return self._first

    @property
    def last(self) -> Node | None:
        return self._last

    def precedes(self, earlier: Node, later: Node) -> bool:
        """Does `earlier` stand before `later` in the list?"""
        try:
            return earlier._order < later._order
        except AttributeError:
            raise no_node(later if isinstance(earlier, Node) else earlier) from None

    def successor(self, node: Node) -> Node | None:
        try:
            return node._next
        except AttributeError:
            raise no_node(node) from None

    def predecessor(self, node: Node) -> Node | None:
        try:
            return node._prev
        except AttributeError:
            raise no_node(node) from None

    def _link(self, node: Node, before: Node | None, after: Node | None) -> None:
        node._prev, node._next = before, after
        if before is None:
            self._first = node
        else:
            before._next = node
        if after is None:
            self._last = node
        else:
            after._prev = node
        number(node)

    def _detach_links(self, node: Node) -> None:
        if node._prev is None:
            self._first = node._next
        else:
            node._prev._next = node._next
        if node._next is None:
            self._last = node._prev
        else:
            node._next._prev = node._prev

    def _relink(self, node: Node, before: Node | None, after: Node | None) -> None:
        if after is node or before is node:
            return
        self._detach_links(node)
        self._link(node, before, after)


def no_node(found: object) -> GraphError:
    """The error for something that should have been a node."""
    return GraphError(f"a node is wanted, not {type(found).__name__}")
