"""NNVM's passes of graph fusion, under its names and with its attributes.

`graph_find_fusible_groups` decorates a graph with `group_root`, `group_master` and `pattern`,
`graph_fuse` with `fused_entry`. Vectors are parallel to `nodes` and hold positions in it, as NNVM's
do; whence's own hold node ids. What follows in NNVM, `GraphCompile`, is `whence.compile`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whence.fusion.fuse import FuseEntry, fuse
from whence.fusion.groups import NO_NODE, FusibleGroups
from whence.fusion.nnvm import find_fusible_groups
from whence.graph.graph import Graph
from whence.ops.definition import Pattern


@dataclass(frozen=True, slots=True)
class DecoratedGraph:
    """A graph and the attributes that NNVM's passes hang on it."""

    graph: Graph
    groups: FusibleGroups
    group_root: tuple[int, ...]
    """For each node, the position of the root of its group."""
    group_master: tuple[int, ...]
    """For each node, the position of its anchor (NNVM's master); its own where it has none."""
    pattern: tuple[Pattern, ...]
    fused_entry: tuple[FuseEntry, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the nodes, in list order."""
        return self.groups.nodes


def graph_find_fusible_groups(graph: Graph, *, opt_level: int = 1) -> DecoratedGraph:
    """`GraphFindFusibleGroups`. At `opt_level` 0 every operator stays alone."""
    groups = find_fusible_groups(graph, opt_level=opt_level)
    position = {node: index for index, node in enumerate(groups.nodes)}

    def positions(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(own if each == NO_NODE else position[each] for own, each in enumerate(ids))

    return DecoratedGraph(
        graph,
        groups,
        positions(groups.group_root),
        positions(groups.group_anchor),
        groups.pattern,
    )


def graph_fuse(decorated: DecoratedGraph) -> DecoratedGraph:
    """`GraphFuse`: one entry for each group, in execution order."""
    fused = fuse(decorated.graph, decorated.groups)
    return replace(decorated, fused_entry=tuple(fused.entries))
