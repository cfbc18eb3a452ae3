"""Which operators of the file read what which others make: the edges of the graph that the page
draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whence.attribution.profile import Background
from whence.graph import Graph, Node


def operands(background: Background | None, number: Mapping[int, int]) -> list[list[int]]:
    """By operator, in the order of `number`: the operators whose results it reads, each once.

    Nodes that stem from no operator are looked through. A nested graph's results are read by the
    operator that holds it. Without a graph nobody reads anything.
    """
    found: list[dict[int, None]] = [{} for _ in number]
    if background is not None:
        for source, reader in edges(background.source_graph):
            if source in number and reader in number and source != reader:
                found[number[reader]][number[source]] = None
    return [sorted(each) for each in found]


def edges(graph: Graph) -> Iterator[tuple[int, int]]:
    """From operator to operator, by their ids."""
    made_by: dict[int, frozenset[int]] = {}
    for node in graph:
        read = _read(node, made_by)
        for body in node.bodies.values():
            yield from edges(body)
            read |= _results(body)
        made_by[node.id] = node.origin or read
        for reader in node.origin:
            for source in read:
                yield source, reader


def _read(node: Node, made_by: Mapping[int, frozenset[int]]) -> frozenset[int]:
    parts = [made_by.get(ref.node, frozenset()) for ref in node.inputs if ref is not None]
    return frozenset().union(*parts)


def _results(body: Graph) -> frozenset[int]:
    """The operators that make what a nested graph returns."""
    outputs = [node for node in body if node.is_a("Output")]
    made = [body[ref.node].origin for node in outputs for ref in node.inputs if ref is not None]
    return frozenset().union(*made)
