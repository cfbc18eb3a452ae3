"""Replacing parts of the graph, in the three forms of the seed. Passes mostly use `Edit`, which
chooses the place itself.

`anchor` is a node of the list, or `None` for its head. Where nodes are removed, the search for the
first of them starts there;
where none is, new nodes go in front of it. New nodes are built beside the graph and belong to no
graph yet. They
inherit the origins of the removed nodes, unless they were built with a birth of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from whence.errors import RewriteError
from whence.graph.change import Change
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.provenance import Reason


def replace_nodes(
    graph: Graph,
    anchor: Node | None,
    new: Node | None,
    first: Node,
    *others: Node | None,
    pass_name: str,
    rule: str = "",
    reason: Reason | None = None,
) -> None:
    """Remove `first` and `others`, which stand in this order from `anchor` on, and put `new` where
    `first` was.

    `new` may carry the id of a removed node. With `new=None` the nodes are only deleted, and
    `reason` says why.
    """
    removed = [first, *(node for node in others if node is not None)]
    _check_found(graph, anchor, removed)
    Change(
        graph,
        pass_name,
        rule,
        [] if new is None else [new],
        before=first,
        removed=removed,
        buried=_buried(removed, reason),
    ).apply()


def replace_node_with(
    graph: Graph,
    anchor: Node | None,
    removed: Node | None,
    *added: Node | None,
    pass_name: str,
    rule: str = "",
    reason: Reason | None = None,
) -> int:
    """Put `added`, in this order and contiguous, where `removed` was, or at `anchor` when nothing
    is removed. Returns how many.

    With nothing to add the node is only deleted, and `reason` says why.
    """
    nodes = [node for node in added if node is not None]
    if removed is None:
        return insert_nodes(graph, anchor, *nodes, pass_name=pass_name, rule=rule)
    _check_found(graph, anchor, [removed])
    Change(
        graph,
        pass_name,
        rule,
        nodes,
        before=removed,
        removed=[removed],
        buried=_buried([removed], reason),
    ).apply()
    return len(nodes)


def insert_nodes(
    graph: Graph, anchor: Node | None, *added: Node | None, pass_name: str, rule: str = ""
) -> int:
    """Put `added`, in this order and contiguous, in front of `anchor`, or of the whole list.
    Returns how many.
    """
    nodes = [node for node in added if node is not None]
    if nodes:
        Change(
            graph, pass_name, rule, nodes, before=anchor if anchor is not None else graph.first
        ).apply()
    return len(nodes)


def _check_found(graph: Graph, anchor: Node | None, removed: Sequence[Node]) -> None:
    """Raise unless a walk from `anchor` on meets the nodes in this order."""
    for node in removed if anchor is None else (anchor, *removed):
        if node.graph is not graph:
            raise RewriteError(f"{node!r} is not in the graph")
    if anchor is not None and graph.precedes(removed[0], anchor):
        raise RewriteError(
            f"{removed[0]!r} is to be removed, but stands before the anchor {anchor!r}"
        )
    for earlier, later in itertools.pairwise(removed):
        if not graph.precedes(earlier, later):
            raise RewriteError(
                f"{earlier!r} and {later!r} are to be removed, but do not stand in that order"
            )


def _buried(removed: Sequence[Node], reason: Reason | None) -> dict[int, tuple[Reason, int | None]]:
    return {} if reason is None else {node.id: (reason, None) for node in removed}
