"""Nodes of an engine without any name of the file: the operators between the nodes around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from whence.attribution.cost_model import VIEWS
from whence.foreign.decomposed import operator_behind_moves, operator_in_parts
from whence.foreign.engine_graph import EngineGraph, Region, move_operator
from whence.foreign.recording import EngineNode, Evidence
from whence.foreign.source import SourceGraph

_PLACED = Evidence.NEIGHBOUR


def place_between(
    source: SourceGraph,
    engine: EngineGraph,
    regions: dict[int, Region],
    claims: dict[int, list[int]],
    node: EngineNode,
) -> None:
    """Give a node without a name the operators between its neighbours."""
    readers = [each for each in engine.nearest_readers(node.number) if each in regions]
    held = {operator for each in readers for operator in regions[each].operators}
    if not readers:
        held = {operator for operator in source.live if not claims.get(operator)}
    fitting = [
        inside
        for ends in _ends(source, regions, claims, node, readers, held)
        if (inside := _between(source, engine, claims, node, ends, held))
    ]
    if len(fitting) != 1:
        _place_part(source, engine, regions, claims, node)
        return
    for operator in fitting[0]:
        # An operator that became several kernels is in those whose names have it, too, and in those
        # that are nothing but a part of it.
        kept = [
            each
            for each in claims[operator]
            if operator in (*regions[each].node.makes, *regions[each].node.holds)
            or (regions[each].evidence, regions[each].operators) == (_PLACED, {operator})
        ]
        for each in claims[operator]:
            if each not in kept:
                regions[each].operators.discard(operator)
        claims[operator] = [*kept, node.number]
    regions[node.number] = Region(node, Evidence.NEIGHBOUR, fitting[0])
    engine.stand(node.number)
    if node.is_heavy:
        _place_reverse(source, engine, regions, claims, node)


def _place_reverse(
    source: SourceGraph,
    engine: EngineGraph,
    regions: dict[int, Region],
    claims: dict[int, list[int]],
    node: EngineNode,
) -> None:
    """The other direction of a recurrent layer: a node of the same type that reads the same."""
    both = {each for each in regions[node.number].operators if source[each].is_bidirectional}
    others = [
        each
        for each in engine.nodes.values()
        if each.op == node.op and each.inputs[:1] == node.inputs[:1] and each.number not in regions
    ]
    if len(both) == len(others) == 1:
        (operator,), (other,) = both, others
        regions[other.number] = Region(other, Evidence.NEIGHBOUR, {operator})
        claims[operator].append(other.number)
        engine.stand(other.number)


def _place_part(
    source: SourceGraph,
    engine: EngineGraph,
    regions: dict[int, Region],
    claims: dict[int, list[int]],
    node: EngineNode,
) -> None:
    feeds, readers = engine.feeds(node.number), engine.nearest_readers(node.number)
    whole = operator_in_parts(
        source,
        [regions[each].node for each in feeds if each in regions],
        [regions[each].node for each in readers if each in regions],
        {number: region.operators for number, region in regions.items()},
    )
    if whole is None and not node.is_heavy:
        named = {
            each for region in regions.values() for each in (*region.node.makes, *region.node.holds)
        }
        before = {each for kernel in feeds for each in regions[kernel].operators}
        moved = operator_behind_moves(source, before, node.called_after, named)
        if moved is not None:
            regions[node.number] = Region(node, Evidence.NEIGHBOUR, moved=moved)
            move_operator(regions, claims, moved, node.number)
            engine.stand(node.number)
    elif whole is not None and not node.is_heavy:
        claims[whole].append(node.number)
        regions[node.number] = Region(node, Evidence.NEIGHBOUR, {whole})
        engine.stand(node.number)


def _between(
    source: SourceGraph,
    engine: EngineGraph,
    claims: Mapping[int, list[int]],
    node: EngineNode,
    ends: Set[int],
    held: Set[int],
) -> set[int]:
    """The operators from what feeds the node to those at the end; none if they do not fit."""
    feeds = engine.feeds(node.number)
    inside: set[int] = set()
    waiting = list(ends)
    while waiting:
        operator = waiting.pop()
        if operator not in inside:
            inside.add(operator)
            waiting += [each for each in source[operator].feeds_from if each in held]
    outside = {
        maker
        for operator in inside
        for maker in source[operator].feeds_from
        # Engines know such a value beforehand: the zeros that a recurrent layer begins with.
        if maker not in inside and not source[maker].is_known_from_sizes
    }
    fits = sum(source[each].is_heavy for each in inside) <= node.is_heavy and all(
        any(each in feeds for each in claims.get(maker, ())) for maker in outside
    )
    return inside if fits else set()


def _ends(
    source: SourceGraph,
    regions: Mapping[int, Region],
    claims: Mapping[int, list[int]],
    node: EngineNode,
    readers: Sequence[int],
    held: Set[int],
) -> list[set[int]]:
    """What a node without a name may end with, among the operators that its readers claim."""
    if node.is_heavy:
        return [
            {operator}
            for operator in sorted(held)
            if source[operator].is_heavy
            and not any(regions[each].node.is_heavy for each in claims[operator])
        ]
    if readers and all(regions[each].node.is_heavy for each in readers):
        before = {
            maker
            for operator in held
            if source[operator].is_heavy
            for maker in source[operator].feeds_from
        }
        return [before & held]
    typed = [
        {operator}
        for operator in sorted(held)
        if source[operator].op == node.op or source[operator].op in node.implements
    ]
    merged = {operator for operator in held if source[operator].op in node.merges}
    if merged and not typed:
        return [merged]
    working = [operator for operator in sorted(held) if source[operator].op not in VIEWS]
    return typed or ([set(working)] if len(working) == 1 else [])
