"""Nodes without a name that are part of an operator which an engine computes by several.

OpenVINO computes a DynamicQuantizeLinear by reductions, products and conversions, and subtracts
zero points in front of a product of integers; only the last of these nodes has the operator's name.

1. A node between two that both have an operator is part of that operator.
2. A node in front of one that has an operator by name, and behind one whose results that operator
   reads, is part of it: nothing of the file stands between the two. So is one that reads nothing
   but inputs of the model, as that operator does. A view is not computed by anything, so a node
   there is something else.

A third kind is a whole operator in another place: OpenVINO scales by a constant before it moves
elements where the file moves them first. A node that is called after such a function is the one
behind the movements that read what feeds it.

It is only said where one operator fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set

from whence.attribution.cost_model import VIEWS
from whence.foreign.recording import EngineNode
from whence.foreign.source import SourceGraph, reached

_MOVES = VIEWS | {"Transpose", "Expand"}
Operators = Mapping[int, Set[int]]
"""Of the file, by node of the engine."""


def operator_in_parts(
    source: SourceGraph,
    feeds: Collection[EngineNode],
    readers: Collection[EngineNode],
    operators: Operators,
) -> int | None:
    """The operator that a node between these is part of, if that is certain."""
    before = {each for node in feeds for each in operators[node.number]}
    after = {each for node in readers for each in operators[node.number]}
    both = {each for each in before & after if not source[each].is_known_from_sizes}
    if not both:
        named = {each for node in readers for each in (*node.makes, *node.holds)}
        both = {
            each
            for each in named & after
            if before.intersection(source[each].feeds_from)
            or (not before and not source[each].feeds_from)
        }
    fitting = [each for each in both if source[each].op not in VIEWS]
    return fitting[0] if len(both) == len(fitting) == 1 else None


def operator_behind_moves(
    source: SourceGraph, before: Collection[int], kinds: Collection[str], named: Set[int]
) -> int | None:
    """The operator of one of these types, with one operand that is no constant, that stands behind
    nothing but movements of what these make, and that no node is called after.
    """

    def moved(each: int) -> Iterator[int]:
        return (reader for reader in source.readers(each) if source[reader].op in _MOVES)

    readers = {reader for each in reached(before, moved) for reader in source.readers(each)}
    found = {
        each
        for each in readers.difference(before)
        if source[each].op in {*kinds} - _MOVES and len(source[each].feeds_from) == 1
    }
    return next(iter(found)) if len(found) == 1 and not found & named else None
