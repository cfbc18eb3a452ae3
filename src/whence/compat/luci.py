"""luci-profile's `CircleNodeOrigin`, under its names: origins as sets of sources with id and name.

whence keeps sets of ids, and the names in the list of source operators. In ONE two sources of one
id count twice in memory until they are exported; here they are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from whence.errors import ProvenanceError
from whence.graph.graph import Graph
from whence.graph.node import Node


class Source(NamedTuple):
    """An operator of the first file, by the id that luci has for it."""

    id: int
    name: str


Origin = frozenset[Source]
"""Where a node came from, never empty; a node without one has `None`."""


def single_origin(source_id: int, name: str) -> Origin:
    """The origin of a node that is one source operator."""
    return frozenset((Source(source_id, name),))


def composite_origin(parts: Iterable[Origin | None]) -> Origin | None:
    """The union of `parts`, of which `None` counts for nothing; `None` if all are. No parts at all
    is a `ProvenanceError`.
    """
    parts = tuple(parts)
    if not parts:
        raise ProvenanceError("a composite origin needs at least one origin to be made of")
    return frozenset().union(*(part for part in parts if part)) or None


def add_origin(existing: Origin | None, added: Origin | None) -> Origin | None:
    """The origin of a node that had `existing` and takes over `added`: always their union, never a
    replacement.
    """
    return composite_origin((existing, added))


def get_origin(graph: Graph, node: Node) -> Origin | None:
    """The origin of a node of our graph: of its source operators, the id in the file's own table,
    or the position as ONE would have numbered it, and the name.
    """
    sources = (graph.ledger.source(number) for number in node.origin)
    return (
        frozenset(
            Source(source.id - 1 if source.table_id is None else source.table_id, source.name)
            for source in sources
        )
        or None
    )


def has_origin(graph: Graph, node: Node) -> bool:
    return get_origin(graph, node) is not None
