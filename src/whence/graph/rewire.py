"""Reconnecting inputs of existing nodes: the bypass kind of rewrite, output index by output index.

These do not remove anything and so touch no provenance. Each checks everything first, then changes
everything: an error leaves the graph as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whence.errors import RewriteError
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref

UNCHANGED = 0xF


def change_output_refs(
    graph: Graph, begin: Node | None, old_id: int, new_id: int, pattern: int
) -> int:
    """Reconnect inputs that read `old_id` to outputs of `new_id`; returns how many.

    Nybble `i` of `pattern` says what becomes of a reference to output `i`: 0xF leaves it, 1..14
    selects output 0..13 of
    `new_id`, and 0 is an error, as is any output past 15. Scans from `begin` on, itself included,
    or the whole list.
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
