"""Choosing how to group."""

from __future__ import annotations

from whence.errors import UnsupportedError
from whence.fusion.dominator import find_dominator_groups
from whence.fusion.groups import FusibleGroups
from whence.fusion.nnvm import find_fusible_groups
from whence.fusion.partition import GroupLimits
from whence.graph import Graph

ALGORITHMS = ("dominator", "nnvm")


def find_groups(
    graph: Graph, algorithm: str = "dominator", limits: GroupLimits | None = None
) -> FusibleGroups:
    """The groups of `graph` by the named algorithm: our own, within limits, or NNVM's."""
    match algorithm:
        case "dominator":
            return find_dominator_groups(graph, limits=limits)
        case "nnvm":
            return find_fusible_groups(graph)
    raise UnsupportedError(
        f"fusion '{algorithm}' is not known; there are {' and '.join(ALGORITHMS)}"
    )
