"""Whether regions can be true, as far as that can be told without asking the engine.

1. A data edge of the file between two regions is an edge of the engine's graph. What is known from
   the sizes of tensors alone is no data, nor is what has no elements.
2. A convolution, product or recurrent cell is in exactly one region, that of a node which does
   such work.
3. A node that convolves or multiplies has such an operator in its region, with the same kernel,
   strides, groups and dilations.

A node that fails the third is uncertain as a whole: its time is charged to nobody. An operator that
fails the first or second is marked, and listed with the cause.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whence.foreign.engine_graph import EngineGraph, Region, Regions
from whence.foreign.recording import EngineNode
from whence.foreign.source import SourceGraph

_MOVED = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class Cause(enum.StrEnum):
    """Why a data edge of the file is none of the engine's."""

    SIZES = "a few whole numbers, which the engine may know beforehand"
    DUPLICATE = "an identical operator does the work"
    NESTED = "into or out of a nested graph"
    MOVED = "a transpose or reshape that the engine moved or merged"
    PLACE = "one of the operators may be in another kernel"


@dataclass(frozen=True, slots=True)
class MissingEdge:
    maker: int
    reader: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Checks:
    edges: int
    """Data edges of the file between operators that are each in one region, not the same."""
    missing: tuple[MissingEdge, ...]
    """Those that the engine's graph does not have."""
    heavy: int
    """Convolutions, products and recurrent cells of the file,"""
    heavy_elsewhere: Mapping[int, int]
    """and those that are not in exactly one region, with the number of regions."""
    doubtful: Mapping[int, str]
    """Nodes whose operators are not known, with the reason."""

    @property
    def edges_found(self) -> float:
        """The part of the edges that the engine has too."""
        return 1 - len(self.missing) / self.edges if self.edges else 1.0

    @property
    def uncertain(self) -> dict[int, str]:
        """Operators whose place is not certain, with the reason."""
        found = {
            number: "no kernel of the engine has it" if not count else f"{count} kernels claim it"
            for number, count in self.heavy_elsewhere.items()
        }
        for edge in self.missing:
            if edge.cause is Cause.PLACE:
                found.setdefault(edge.reader, "the engine's graph lacks an edge that it needs")
        return found


def check_regions(
    source: SourceGraph,
    engine: EngineGraph,
    regions: Regions,
    *,
    has_edges: bool = True,
) -> Checks:
    """Some engines do not say where their nodes get their operands from: they have no edges."""
    claims = regions.claims
    moved = {region.moved for region in regions.values() if region.moved is not None}
    edges, missing = [], []
    for reader in sorted(source.live - moved) if has_edges else ():
        for maker in source[reader].feeds_from:
            if source[maker].is_known_from_sizes:
                continue
            # Who reads an operator that was moved reads what that reads in the file.
            instead = source[maker].feeds_from[0] if maker in moved else maker
            makers, readers = claims.get(instead, ()), claims.get(reader, ())
            if len(makers) == len(readers) == 1 and makers[0] != readers[0]:
                edges.append((maker, reader))
                if makers[0] not in _feeds(engine, regions, readers[0]):
                    missing.append(MissingEdge(maker, reader, _cause(source, maker, reader)))
    if missing:
        # Which operators make nothing takes a while to find out, and is seldom needed.
        edges = [edge for edge in edges if not source.empty.intersection(edge)]
        missing = [
            edge for edge in missing if not source.empty.intersection((edge.maker, edge.reader))
        ]
    nodes = engine.nodes
    elsewhere = {}
    for each in source.heavy:
        claiming = [nodes[kernel] for kernel in claims.get(each, ())]
        able = [node for node in claiming if node.is_heavy or node.is_composite]
        # A product with the zeros that a recurrent layer begins with is known beforehand.
        is_known = not able and source[each].is_known_from_sizes
        if not is_known and not _is_settled(source, each, able):
            elsewhere[each] = len(able)
    doubts = {number: _doubt(source, node, regions.get(number)) for number, node in nodes.items()}
    doubtful = {number: reason for number, reason in doubts.items() if reason}
    return Checks(len(edges), tuple(missing), len(source.heavy), elsewhere, doubtful)


def _feeds(engine: EngineGraph, regions: Mapping[int, Region], kernel: int) -> set[int]:
    """The nodes before it, and before operators between them that the engine moved there."""
    found = set(engine.feeds(kernel))
    for each in engine.feeds(kernel):
        if regions[each].moved is not None:
            found |= engine.feeds(each)
    return found


def _is_settled(source: SourceGraph, operator: int, nodes: Sequence[EngineNode]) -> bool:
    """Are these the nodes of the operator? Several may be, if the engine itself lists it in each;
    and a recurrent layer in both directions may be two.
    """
    if len(nodes) == 2 and source[operator].is_bidirectional:
        return nodes[0].op == nodes[1].op and nodes[0].inputs[:1] == nodes[1].inputs[:1]
    return len(nodes) == 1 or (
        bool(nodes)
        and all(node.is_whole or (node.is_composite and operator in node.holds) for node in nodes)
    )


def _cause(source: SourceGraph, maker: int, reader: int) -> Cause:
    made, read = source[maker], source[reader]
    if made.is_shape or read.is_shape:
        return Cause.SIZES
    if made.holder != read.holder:
        return Cause.NESTED
    if {made.op, read.op} & _MOVED:
        return Cause.MOVED
    if len(source.duplicates(maker)) > 1 or len(source.duplicates(reader)) > 1:
        return Cause.DUPLICATE
    return Cause.PLACE


def _doubt(source: SourceGraph, node: EngineNode, region: Region | None) -> str:
    if not node.is_heavy or region is None:
        return ""
    heavy = [source[each] for each in region.operators if source[each].is_heavy]
    if not heavy:
        return f"it is a {node.op}, and nothing of the kind stands in its place in the file"
    if node.window and not any(
        all(each.window.get(name, value) == value for name, value in node.window.items())
        for each in heavy
    ):
        found = ", ".join(f"{name} {value}" for name, value in node.window.items())
        return f"it has {found}, and no operator in its place in the file has"
    return ""
