"""The functions of Qualcomm Hexagon NN's notes on prepare.c, under its names.

They find nodes, reconnect inputs and replace parts of the graph; constants are in `hexagon_consts`.
What the notes leave to the caller is checked here, and an error raises before anything has changed.
whence's own passes use `graph/search.py` and `Edit`, which keep the same invariants.

`anchor` is a node of the list, or `None` for its head. Where nodes are removed, the search for the
first of them starts there; where none is, new nodes go in front of it. New nodes are built beside
the graph and belong to no graph yet. They inherit the origins of the removed nodes, unless they
were built with a creation of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from whence.errors import RewriteError
from whence.graph.change import Change
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.graph.search import Ops, is_single_consumer, unique_consumer
from whence.provenance import Reason

CONSUMER_NOINCHECK = 1
"""The consumer may read other operators too."""
UNCHANGED = 0xF
_MULTIPLIER = 2654435761


# ---- nodes by id ----


def find_node(graph: Graph, node_id: int) -> Node | None:
    """The node with this id, or `None`."""
    return graph.get(node_id)


def find_node_must_be(graph: Graph, node_id: int, op: str) -> Node | None:
    """The node with this id when its operator is `op`, else `None`."""
    node = graph.get(node_id)
    return node if node is not None and node.op == op else None


def find_node_must_be_const(graph: Graph, node_id: int) -> Node | None:
    """The constant with this id, else `None`."""
    return find_node_must_be(graph, node_id, "Const")


def find_node_must_be_const_from_ref(graph: Graph, ref: Ref | None) -> Node | None:
    """The constant `ref` points at. A constant has only output 0."""
    return find_node_must_be_const(graph, ref.node) if ref is not None and ref.index == 0 else None


# ---- consumers ----


def find_unique_consumer_anytype(graph: Graph, src: Node | None, flags: int = 0) -> Node | None:
    """The only node that reads any output of `src` and, without `CONSUMER_NOINCHECK`, reads nothing
    but `src` and constants; else `None`.
    """
    return unique_consumer(graph, src, check_inputs=not flags & CONSUMER_NOINCHECK)


def find_unique_consumer(graph: Graph, src: Node | None, ops: Ops, flags: int = 0) -> Node | None:
    """As `find_unique_consumer_anytype`, of one operator, or of one of several."""
    return unique_consumer(graph, src, ops, check_inputs=not flags & CONSUMER_NOINCHECK)


find_unique_consumer_mustbe = find_unique_consumer


def check_single_consumer_all(graph: Graph, producer: Node, consumer: Node) -> int:
    """0 when `consumer` reads `producer`, on any output, and nobody else does; -1 otherwise."""
    return 0 if is_single_consumer(graph, producer, consumer) else -1


check_all_outputs = check_single_consumer_all


def find_first_consumer(graph: Graph, ref: Ref) -> Node | None:
    """The earliest node that reads exactly this output."""
    uses = graph.uses(ref)
    return uses[0][0] if uses else None


def find_last_consumer(graph: Graph, ref: Ref) -> Node | None:
    """The latest node that reads exactly this output."""
    uses = graph.uses(ref)
    return uses[-1][0] if uses else None


def id_mask(node_id: int) -> int:
    """The one bit that stands for this id in a `noderefhash`."""
    return 1 << ((node_id * _MULTIPLIER & 0xFFFFFFFF) >> 27)


def node_rehash_inputrefs(node: Node) -> int:
    """The node's `noderefhash`: the bits of all ids that it reads. A prefilter for searches, which
    our index of consumers does without.
    """
    bits = 0
    for ref in node.inputs:
        if ref is not None:
            bits |= id_mask(ref.node)
    return bits


# ---- reconnecting inputs ----


def change_output_refs(
    graph: Graph, begin: Node | None, old_id: int, new_id: int, pattern: int
) -> int:
    """Reconnect inputs that read `old_id` to outputs of `new_id`; returns how many.

    Nybble `i` of `pattern` says what becomes of a reference to output `i`: 0xF leaves it, 1..14
    selects output 0..13 of `new_id`, and 0 is an error, as is any output past 15. Scans from
    `begin` on, itself included, or the whole list.
    """

    def remap(ref: Ref) -> Ref:
        nybble = 0 if ref.index >= 16 else (pattern >> 4 * ref.index) & 0xF
        if nybble == 0:
            raise RewriteError(
                f"pattern {pattern:#x} does not say what becomes of output {ref.index} of %{old_id}"
            )
        return ref if nybble == UNCHANGED else Ref(new_id, nybble - 1)

    return _reconnect(graph, begin, old_id, remap)


def change_single_output_ref(graph: Graph, begin: Node | None, old: Ref, new: Ref) -> int:
    """Reconnect inputs that read exactly `old` to `new`; returns how many."""
    return _reconnect(graph, begin, old.node, lambda ref: new if ref == old else ref)


def change_multi_output_refs_table(
    graph: Graph, begin: Node | None, old_id: int, table: Sequence[Ref | None]
) -> int:
    """Reconnect inputs that read output `i` of `old_id` to `table[i]`; `None`, and indices past the
    table, leave them. Returns how many.
    """

    def remap(ref: Ref) -> Ref:
        new = table[ref.index] if ref.index < len(table) else None
        return ref if new is None else new

    return _reconnect(graph, begin, old_id, remap)


def change_multi_output_refs(
    graph: Graph, begin: Node | None, old_id: int, new_nodes: Sequence[Node | None]
) -> int:
    """Reconnect inputs that read output `i` of `old_id` to output 0 of `new_nodes[i]`; `None`
    leaves them. Returns how many.
    """
    return change_multi_output_refs_table(
        graph, begin, old_id, [None if node is None else node.ref() for node in new_nodes]
    )


def _reconnect(graph: Graph, begin: Node | None, old_id: int, remap: Callable[[Ref], Ref]) -> int:
    planned: list[tuple[Node, tuple[Ref | None, ...]]] = []
    count = 0
    if begin is not None and begin.graph is not graph:
        raise RewriteError(f"{begin!r}, where the search is to begin, is not in the graph")
    for consumer in graph.consumers(graph[old_id]):
        if begin is not None and consumer is not begin and not graph.precedes(begin, consumer):
            continue
        inputs = tuple(
            remap(ref) if ref is not None and ref.node == old_id else ref for ref in consumer.inputs
        )
        changed = [
            new
            for old, new in zip(consumer.inputs, inputs, strict=True)
            if old != new and new is not None
        ]
        for ref in changed:
            producer = graph.get(ref.node)
            if producer is None or not 0 <= ref.index < len(producer.outputs):
                raise RewriteError(f"{consumer!r} would read {ref}, which does not exist")
            if not graph.precedes(producer, consumer):
                raise RewriteError(f"{consumer!r} would read {ref}, which does not stand before it")
        if changed:
            planned.append((consumer, inputs))
            count += len(changed)
    for consumer, inputs in planned:
        graph.set_inputs(consumer, inputs)
    return count


# ---- replacing parts of the graph ----


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
    _replace(graph, anchor, removed, [] if new is None else [new], pass_name, rule, reason)


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
    _replace(graph, anchor, [removed], nodes, pass_name, rule, reason)
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


def _replace(
    graph: Graph,
    anchor: Node | None,
    removed: list[Node],
    added: list[Node],
    pass_name: str,
    rule: str,
    reason: Reason | None,
) -> None:
    """Raises unless a walk from `anchor` on meets the removed nodes in this order."""
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
    tombstones = {} if reason is None else {node.id: (reason, None) for node in removed}
    before = removed[0]
    Change(
        graph, pass_name, rule, added, before=before, removed=removed, tombstones=tombstones
    ).apply()
