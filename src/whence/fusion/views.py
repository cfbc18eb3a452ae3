"""Views that an attention reads and writes through: transposes, reshapes and slices around it
become strides in its kernel.

Attention stands alone otherwise. What only moves elements on the way into its queries, keys and
values, and is read by nothing else, joins it; so does what only rearranges its result.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from whence.fusion.wiring import Wiring
from whence.ops.definition import Pattern
from whence.ops.registry import operators
from whence.ops.traits import Trait

_VIEWING = frozenset({"Attention"})
_OPERANDS = 3
_INTO = operators(Trait.STRIDED)
_OUT_OF = operators(Trait.STRIDED, Trait.PERMUTES)


def absorb_views(wiring: Wiring, parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The parts, with views moved from where they were into the part of the attention that reads or
    makes them.
    """
    taken: dict[int, int] = {}
    for position, node in enumerate(wiring.nodes):
        if node.op in _VIEWING and wiring.patterns[position] is Pattern.OPAQUE:
            for member in (*_before(wiring, position), *_after(wiring, position)):
                taken.setdefault(member, position)
    if not taken:
        return [list(part) for part in parts]
    found: list[list[int]] = []
    for part in parts:
        left = [member for member in part if member not in taken]
        own = [member for member, owner in taken.items() if owner in part]
        if len(left) < len(part) and len(wiring.exits(left)) > 1:
            # What held it together went away.
            found += [[member] for member in left]
        elif left:
            found.append(sorted(left + own))
    return found


def _before(wiring: Wiring, position: int) -> list[int]:
    """The views into an operator, latest first: a view is taken only after all that read it."""
    inside = {position}
    operands = {ref.node for ref in wiring.nodes[position].inputs[:_OPERANDS] if ref is not None}
    waiting = [
        -read.producer
        for read in wiring.reads[position]
        if wiring.nodes[read.producer].id in operands
    ]
    heapq.heapify(waiting)
    found: list[int] = []
    while waiting:
        member = -heapq.heappop(waiting)
        fits = (
            wiring.nodes[member].op in _INTO
            and wiring.patterns[member] <= Pattern.INJECTIVE
            and not wiring.is_output[member]
        )
        if member in inside or not fits or not wiring.readers[member].keys() <= inside:
            continue
        inside.add(member)
        found.append(member)
        for read in wiring.reads[member]:
            heapq.heappush(waiting, -read.producer)
    return found


def _after(wiring: Wiring, position: int) -> list[int]:
    found: list[int] = []
    while len(wiring.readers[position]) == 1 and not wiring.is_output[position]:
        (position,) = wiring.readers[position]
        if (
            wiring.nodes[position].op not in _OUT_OF
            or wiring.patterns[position] > Pattern.INJECTIVE
        ):
            break
        found.append(position)
    return found
