"""Which operators of the file each node of an engine's graph stands for: cuts between anchors.

An engine keeps some names of the file: tensors (its node makes exactly those), or names of nodes
(those are in it). Between two such anchors everything belongs to the later one:

1. A node's region is what leads to its anchors, up to the anchors of other nodes, inputs and
   constants.
2. A node that only a name is known of may do more than the operator of that name: ONNX Runtime
   names a convolution before it adds a sum and an activation to it. What stands behind such an
   anchor, in front of somebody else's, is moved to it if its operands all come from it or from
   what feeds it, and the engine gives a reason: two nodes claim it, its place needs an edge that
   the engine's graph does not have, or the node says that it applies such an activation.
3. A convolution or product that several nodes claim belongs to the one of them that computes such.
   One that none of them computes, or only one that computes another as well, while a node elsewhere
   computes the same from the same constants, is done by that one, and so is what that node does
   besides it. So is any other operator that the engine computes once with another, if the node
   that it would be in lacks an edge for it.
4. A node without any name, which computes something, has what lies between the nodes around it: a
   convolution, product or recurrent cell that no other node computes, if it does such work; what
   stands in front of the convolution or product that reads it, which does nothing to its operands;
   the operator there that has its type, or the only one there, which may be in several kernels.
   A recurrent layer in both directions may be two nodes of one type that read the same.
   Else it is part of an operator that the nodes around it have (`decomposed.py`), or left open.
5. What stands in a nested graph, and no node has, is in the nodes of the operator with that graph.
6. What is left at the end of the file, and no node has, is an epilogue of the node before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from whence.foreign.engine_graph import EngineGraph, Region, claims_of, move_operator
from whence.foreign.recording import Evidence
from whence.foreign.source import SourceGraph
from whence.foreign.unnamed_nodes import UnnamedNodes


def find_regions(source: SourceGraph, engine: EngineGraph) -> dict[int, Region]:
    """By node, for those that have an anchor or a place between their neighbours."""
    named = {
        number
        for node in engine.nodes.values()
        for number in (*node.makes, *node.holds)
        if number in source.live
    }
    found: dict[int, Region] = {}
    for node in engine.nodes.values():
        own = dict.fromkeys((*node.makes, *node.holds))
        # What could have been computed when the model was loaded, and is not.
        running = [number for number in own if number in source.live] or list(own)
        if running:
            evidence = Evidence.TENSOR if node.makes else Evidence.NAME
            inside = set(running) if node.is_whole else _behind(source, running, named)
            found[node.number] = Region(node, evidence, inside)
    claims = claims_of(found)
    for region in found.values():
        if region.evidence is Evidence.NAME and not region.node.is_whole:
            _take_epilogue(source, engine, found, claims, region, named)
    _settle_heavy(source, found, claims, named)
    _settle_duplicates(source, engine, found, claims, named)
    unnamed = UnnamedNodes(source, engine, found, claims)
    for node in engine.nodes.values():
        if node.runs and not node.is_layout and node.number not in found:
            unnamed.place(node)
    _place_nested(source, found, claims)
    _place_last(source, engine, found, claims)
    return found


def _behind(source: SourceGraph, own: Sequence[int], named: Set[int]) -> set[int]:
    """The operators, and what leads to them up to the anchors of others."""
    found, waiting = set(own), list(own)
    while waiting:
        for maker in source[waiting.pop()].feeds_from:
            if maker not in found and maker not in named:
                found.add(maker)
                waiting.append(maker)
    return found


def _take_epilogue(
    source: SourceGraph,
    engine: EngineGraph,
    regions: Mapping[int, Region],
    claims: dict[int, list[int]],
    region: Region,
    named: set[int],
) -> None:
    number = region.node.number
    waiting = sorted(region.operators)
    while waiting:
        for reader in source.readers(waiting.pop(0)):
            if reader in region.operators or reader in named or source[reader].is_heavy:
                continue
            if not _comes_from(source, engine, claims, region, reader):
                continue
            others = [each for each in claims[reader] if each != number]
            if not (
                len(others) > 1
                or any(
                    _lacks_edge(source, engine, regions[each], claims, reader) for each in others
                )
                or _is_its_activation(source, region, reader)
            ):
                continue
            move_operator(regions, claims, reader, number)
            waiting.append(reader)


def _settle_heavy(
    source: SourceGraph,
    regions: Mapping[int, Region],
    claims: dict[int, list[int]],
    named: Set[int],
) -> None:
    for operator in source.heavy:
        able = [each for each in claims.get(operator, ()) if regions[each].node.is_heavy]
        if len(able) == 1 < len(claims[operator]):
            move_operator(regions, claims, operator, able[0])
        if not all(_has_another(source, regions[each], operator) for each in able):
            continue
        doing = {
            each
            for twin in source.twins(operator)
            for each in claims.get(twin, ())
            if regions[each].node.is_heavy and each not in able
        }
        if len(doing) == 1:
            (kernel,) = doing
            move_operator(regions, claims, operator, kernel)
            # What the kernel does besides it does for both as well.
            for each in sorted(regions[kernel].operators):
                for twin in source.twins(each):
                    if twin not in named:
                        move_operator(regions, claims, twin, kernel)


def _settle_duplicates(
    source: SourceGraph,
    engine: EngineGraph,
    regions: Mapping[int, Region],
    claims: dict[int, list[int]],
    named: Set[int],
) -> None:
    """What another operator does as well, from the same operands, is in the node of that one if
    that feeds who reads it, and the node it would be in lacks an edge for it or for what leads to
    it. Readers come first: a chain that is computed once ends in one that feeds somebody else.
    """
    for operator in sorted(source.live - named, reverse=True):
        holding = claims.get(operator, ())
        twins = [each for each in source.twins(operator) if each in named]
        doing = {kernel for twin in twins for kernel in claims.get(twin, ())}
        if len(holding) == len(doing) == 1 and not source[operator].is_heavy:
            (holder,), (kernel,) = holding, doing
            reading = {
                each for reader in source.readers(operator) for each in claims.get(reader, ())
            }
            chain = _behind(source, [operator], named) & regions[holder].operators
            if any(kernel in engine.feeds(each) for each in reading) and any(
                _lacks_edge(source, engine, regions[holder], claims, each) for each in chain
            ):
                move_operator(regions, claims, operator, kernel)


def _has_another(source: SourceGraph, region: Region, operator: int) -> bool:
    """Does the node do such work for another operator, whose name it has or leads to?"""
    node = region.node
    return (
        operator not in (*node.makes, *node.holds)
        and not node.is_composite
        and sum(source[each].is_heavy for each in region.operators) > 1
    )


def _comes_from(
    source: SourceGraph,
    engine: EngineGraph,
    claims: Mapping[int, list[int]],
    region: Region,
    operator: int,
) -> bool:
    """Do its operands all come from the region, or from nodes that feed the region's? What is known
    from the sizes of tensors alone is no data.
    """
    feeds = engine.feeds(region.node.number)
    return all(
        maker in region.operators
        or any(each in feeds for each in claims.get(maker, ()))
        or source[maker].is_known_from_sizes
        for maker in source[operator].feeds_from
    )


def _lacks_edge(
    source: SourceGraph,
    engine: EngineGraph,
    region: Region,
    claims: Mapping[int, list[int]],
    operator: int,
) -> bool:
    """Would the operator, where it is now, need an edge that the engine's graph does not have?"""
    feeds = engine.feeds(region.node.number)
    return any(
        maker not in region.operators and not any(each in feeds for each in claims.get(maker, ()))
        for maker in source[operator].feeds_from
    )


def _is_its_activation(source: SourceGraph, region: Region, operator: int) -> bool:
    wanted = region.node.activation
    return source[operator].op == wanted and not any(
        source[each].op == wanted for each in region.operators
    )


def _place_nested(
    source: SourceGraph, regions: Mapping[int, Region], claims: dict[int, list[int]]
) -> None:
    """What stands in a nested graph, and no node has, is in the nodes of the operator that holds
    the graph.
    """
    for number in sorted(source.live):
        holder = source[number].holder
        if holder is None or source[number].stands_for is not None:
            continue
        if not claims.get(number):
            claims[number] = list(claims.get(holder, ()))
            for each in claims[number]:
                regions[each].operators.add(number)


def _place_last(
    source: SourceGraph,
    engine: EngineGraph,
    regions: Mapping[int, Region],
    claims: dict[int, list[int]],
) -> None:
    for number in sorted(source.live):
        if claims.get(number) or source[number].stands_for is not None:
            continue
        able = [
            each
            for maker in source[number].feeds_from
            for each in claims.get(maker, ())
            if regions[each].evidence is not Evidence.TENSOR
            and not regions[each].node.is_whole
            and _comes_from(source, engine, claims, regions[each], number)
        ]
        if len(set(able)) == 1:
            regions[able[0]].operators.add(number)
            claims[number] = [able[0]]
