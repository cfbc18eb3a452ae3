"""Dividing groups in which something would be computed too often.

In a group a value is not stored but computed where it is read: again for every index map it is read
through (once directly and once transposed: two copies in the code), and again for every element it
is broadcast to. Both are fine for an addition and ruinous for a chain of exponentials, or where
copies breed copies. An operator past the limits becomes the exit of a part of its own: its result
is stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from whence.extent import estimate
from whence.fusion.partition import GroupLimits
from whence.fusion.wiring import Wiring
from whence.ops.definition import OpClass, Pattern
from whence.ops.registry import REGISTRY
from whence.ops.traits import Trait
from whence.types import TensorType, ValueType

_NAMED_SIZE = 64
"""What a dimension is taken for that only has a name. A compiled graph has none; this is for
looking at others.
"""

_COMPLEX_FLOPS = 8


class _Use(NamedTuple):
    reader: int
    output: int
    pattern: Pattern


class _Load(NamedTuple):
    """How often one element of an operator's result is computed, and in how many places of the
    code.
    """

    times: float
    copies: int


def divide(
    wiring: Wiring, parts: Sequence[Sequence[int]], limits: GroupLimits
) -> tuple[list[list[int]], set[int]]:
    """The parts, divided where they must be, and the operators that had to become exits. A part
    without moves and broadcasts stays whole.
    """
    divided: list[list[int]] = []
    cut: set[int] = set()
    for members in parts:
        inside = set(members)
        if len(members) == 1 or all(
            read.pattern is Pattern.ELEMWISE
            for member in members
            for read in wiring.reads[member]
            if read.producer in inside
        ):
            divided.append(list(members))
        else:
            divided += _divide(wiring, members, limits, cut)
    return divided, cut


def _divide(
    wiring: Wiring, members: Sequence[int], limits: GroupLimits, cut: set[int]
) -> list[list[int]]:
    inside = set(members)
    uses: dict[int, list[_Use]] = {member: [] for member in members}
    work: dict[int, float] = {}
    for member in members:
        producers = set()
        for read in wiring.reads[member]:
            if read.producer in inside:
                uses[read.producer].append(_Use(member, read.output, read.pattern))
                producers.add(read.producer)
        work[member] = _flops(wiring, member) + sum(work[producer] for producer in producers)
    part: dict[int, int] = {}
    load: dict[int, _Load] = {}
    for member in reversed(members):
        homes = {part[use.reader] for use in uses[member]}
        load[member] = _load(wiring, member, uses[member], load)
        too_much = bool(homes) and _too_much(wiring, member, load[member], work[member], limits)
        if too_much:
            cut.add(member)
        if too_much or len(homes) != 1:
            part[member], load[member] = member, _Load(1.0, 1)
        else:
            (part[member],) = homes
    found: dict[int, list[int]] = {}
    for member in members:
        found.setdefault(part[member], []).append(member)
    return list(found.values())


def _load(wiring: Wiring, member: int, uses: Sequence[_Use], load: dict[int, _Load]) -> _Load:
    """Readers that work by element at one place share one evaluation; every other read is an
    evaluation of its own.
    """
    times, copies = 1.0, 0
    for output in {use.output for use in uses}:
        shared, repeated = _Load(0.0, 0), _Load(0.0, 0)
        for use in uses:
            if use.output != output:
                continue
            theirs = load[use.reader]
            if use.pattern is Pattern.ELEMWISE:
                shared = _Load(max(shared.times, theirs.times), max(shared.copies, theirs.copies))
            else:
                times_read = theirs.times * _expansion(wiring, member, use)
                repeated = _Load(repeated.times + times_read, repeated.copies + theirs.copies)
        times = max(times, shared.times + repeated.times)
        copies += shared.copies + repeated.copies
    return _Load(times, max(copies, 1))


def _expansion(wiring: Wiring, member: int, use: _Use) -> float:
    """How many elements of the reader read one element of the member."""
    reader = wiring.nodes[use.reader]
    if use.pattern is not Pattern.BROADCAST and not REGISTRY[reader.op].is_(Trait.REPEATS):
        return 1.0
    theirs, ours = _elements(reader.type), _elements(wiring.nodes[member].outputs[use.output])
    # A single element does not change in the reader's loop, so the compiler takes it out of there.
    return max(1.0, theirs / ours) if ours > 1 else 1.0


def _too_much(wiring: Wiring, member: int, load: _Load, work: float, limits: GroupLimits) -> bool:
    if load.copies > limits.copies:
        return True
    repeated = (load.times - 1) * work
    return (
        repeated / load.times > limits.spare_flops
        and repeated * _elements(wiring.nodes[member].type) > limits.free_flops
    )


def _flops(wiring: Wiring, member: int) -> float:
    """Arithmetic for one element, roughly."""
    definition = REGISTRY.get(wiring.nodes[member].op)
    if definition is None or not isinstance(definition.flops, int):
        if definition is not None and OpClass.ELEMENTWISE in definition.classes:
            return 1
        return _COMPLEX_FLOPS
    return definition.flops


def _elements(kind: ValueType) -> int:
    shape = kind.shape if isinstance(kind, TensorType) else None
    return math.prod(estimate(dim) if isinstance(dim, int) else _NAMED_SIZE for dim in shape or ())
