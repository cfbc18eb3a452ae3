"""Concatenations split off from the operators that compute their inputs.

A result that must be stored anyway can be stored where it belongs in a concatenation, and then
nothing is left to do for it. In one kernel with the operators that compute its other inputs, a
concatenation would copy it instead. So the end of such a group is a part of its own, and each of
its inputs is computed by a part that writes to its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.fusion.contiguous import input_offsets
from whence.fusion.wiring import Wiring


def split_off_concats(
    wiring: Wiring, parts: Sequence[Sequence[int]]
) -> tuple[list[list[int]], set[int]]:
    """The parts, divided before concatenations that would copy stored values, and the positions of
    these concatenations.
    """
    found: list[list[int]] = []
    split: set[int] = set()
    promised: set[int] = set()
    for part in sorted(parts, key=max):
        *before, end = sorted(part)
        node = wiring.nodes[end]
        if node.op != "Concat" or input_offsets(wiring.graph, node) is None:
            found.append(list(part))
            continue
        inside = set(before)
        stored = {
            read.producer
            for read in wiring.reads[end]
            if read.producer not in inside and not wiring.is_output[read.producer]
        }
        if stored <= promised:
            found.append(list(part))
            continue
        divided = _components(wiring, before)
        if all(_is_group(wiring, component) for component in divided):
            found += [*divided, [end]]
            promised.update(stored)
            if divided:
                split.add(end)
        else:
            found.append(list(part))
    return found, split


def _components(wiring: Wiring, members: Sequence[int]) -> list[list[int]]:
    """The members in groups that read nothing of each other."""
    home = {member: [member] for member in members}
    for member in members:
        for read in wiring.reads[member]:
            ours, theirs = home[member], home.get(read.producer)
            if theirs is not None and theirs is not ours:
                ours += theirs
                home.update((each, ours) for each in theirs)
    return [
        sorted(component)
        for component in {id(component): component for component in home.values()}.values()
    ]


def _is_group(wiring: Wiring, members: Sequence[int]) -> bool:
    """Does one value leave the members, at their end?"""
    exits = wiring.exits(members)
    return len(exits) == 1 and (len(members) == 1 or len(wiring.nodes[exits[0]].outputs) == 1)
