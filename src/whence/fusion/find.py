"""Choosing how to group."""

from __future__ import annotations

from whence.errors import UnsupportedError
from whence.fusion.dominator import find_dominator_groups
from whence.fusion.groups import FusibleGroups
from whence.fusion.nnvm import find_fusible_groups
from whence.graph import Graph

ALGORITHMS = ("dominator", "nnvm")


def find_groups(graph: Graph, algorithm: str = "dominator") -> FusibleGroups:
    """The groups of `graph` by the named algorithm: our own, or NNVM's."""
    match algorithm:
        case "dominator":
            return find_dominator_groups(graph)
        case "nnvm":
            return find_fusible_groups(graph)
    raise UnsupportedError(f"fusion '{algorithm}' is not known; there are {' and '.join(ALGORITHMS)}")
