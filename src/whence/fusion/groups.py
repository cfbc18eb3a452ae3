"""What grouping decides: which operators run as one kernel, and why the others do not."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from whence.errors import GraphError
from whence.graph import Graph
from whence.ops.definition import Pattern

NO_NODE = 0
"""Stands where a vector has no node to name; no node has this id."""


class MissReason(enum.StrEnum):
    """Why the two ends of an edge are in different groups."""

    OPAQUE_PRODUCER = "opaque-producer"
    OPAQUE_CONSUMER = "opaque-consumer"
    NOT_STATIC = "not-static"
    """A shape or a parameter is known only at run time."""
    NOT_NUMBERS = "not-numbers"
    """Text, sequences, optionals and maps."""
    STORED_INPUTS = "stored-inputs"
    """The consumer is a convolution, product or pool: it reads its inputs many times, so they are
    stored first.
    """
    REDUCTION = "reduction"
    """The producer reduces; its result is complete only when its loop has ended."""
    SECOND_ANCHOR = "second-anchor"
    NOT_ELEMENTWISE = "not-elementwise"
    """What follows a convolution, product or pool in its group works element by element."""
    SEVERAL_CONSUMERS = "several-consumers"
    GRAPH_OUTPUT = "graph-output"
    SEVERAL_OUTPUTS = "several-outputs"
    """An operator with several outputs cannot be the end of a group."""
    RECOMPUTED = "recomputed"
    """Each element would be computed many times over."""
    CYCLE = "cycle"
    TOO_FAR = "too-far"
    """Proving that no cycle arises would cost too much."""
    IN_PLACE = "in-place"
    """The consumer is a concatenation, and the producer writes where its output lies."""
    DEPTH_LIMIT = "depth-limit"
    OUTPUT_LIMIT = "output-limit"
    PATTERN = "pattern"
    DISABLED = "disabled"


class MissedFusion(NamedTuple):
    """An edge between two operators that are not in one group. One for each pair, however many
    inputs connect them.
    """

    producer: int
    consumer: int
    reason: MissReason
    text: str
    """The reason as a sentence about these two operators."""


@dataclass(frozen=True, slots=True)
class FusibleGroups:
    """A graph's nodes divided into groups: three dense vectors parallel to `nodes`, holding node
    ids.

    Inputs and constants are their own roots, without an anchor, and opaque; `Output` nodes are in
    no group. Of a group's members only the root's anchor and the root's pattern speak for the group
    as a whole.
    """

    algorithm: str
    nodes: tuple[int, ...]
    """The id of every node, in list order."""
    group_root: tuple[int, ...]
    group_anchor: tuple[int, ...]
    pattern: tuple[Pattern, ...]
    missed: tuple[MissedFusion, ...]
    _position: Mapping[int, int] = field(repr=False)

    def root(self, node_id: int) -> int:
        """The id of the root of the group this node is in, or `NO_NODE`."""
        return self.group_root[self._at(node_id)]

    def anchor(self, node_id: int) -> int:
        """The operator whose loop nest the group of this root takes."""
        return self.group_anchor[self._at(node_id)]

    def pattern_of(self, node_id: int) -> Pattern:
        return self.pattern[self._at(node_id)]

    def _at(self, node_id: int) -> int:
        try:
            return self._position[node_id]
        except KeyError:
            raise GraphError(
                f"node %{node_id} was not in the graph when its groups were found"
            ) from None


class Decision(NamedTuple):
    """What an algorithm decides about one operator."""

    root: int
    anchor: int
    pattern: Pattern


def make_groups(
    algorithm: str, graph: Graph, decisions: Mapping[int, Decision], missed: Sequence[MissedFusion]
) -> FusibleGroups:
    """The vectors for all nodes of `graph` from the decisions about its operators, by node id."""
    roots, anchors, patterns, ids = [], [], [], []
    for node in graph:
        decision = decisions.get(node.id)
        ids.append(node.id)
        roots.append(decision.root if decision else node.id if node.outputs else NO_NODE)
        anchors.append(decision.anchor if decision else NO_NODE)
        patterns.append(decision.pattern if decision else Pattern.OPAQUE)
    position = {node_id: index for index, node_id in enumerate(ids)}
    return FusibleGroups(
        algorithm,
        tuple(ids),
        tuple(roots),
        tuple(anchors),
        tuple(patterns),
        tuple(missed),
        position,
    )
