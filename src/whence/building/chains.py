"""Chains: kernels of neighbouring layers that are interleaved, slice by slice of the image, which
is known as depth-first execution or cross-layer tiling.

A layer whose result is larger than the cache writes it to memory, and the next one reads it back.
Interleaved, each reads what the one before it made a moment ago. Where several threads share each
kernel, the steps run one after the other, as they stand in the plan: memory is laid out for both
orders.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from whence.building.allocate import is_planned, root
from whence.building.memory_layout import SubBuffer
from whence.building.native_code import LONGEST_CHAIN
from whence.building.program import Chain, WorkRange
from whence.extent import is_symbolic
from whence.graph import Graph, Ref
from whence.graph.guards import Guards
from whence.kernels.ir.slices import Slices
from whence.kernels.ir.statements import Micro
from whence.kernels.lower import Step
from whence.kernels.tile import Tile


def find_chains(
    graph: Graph,
    steps: Sequence[Step],
    guards: Sequence[Guards],
    tile: Tile,
    within: Mapping[Ref, SubBuffer],
) -> tuple[Chain, ...]:
    """The chains among steps that run one after the other, views left out; `within` says which
    values lie in others.
    """
    if not tile.interleaved:
        return ()
    found: list[Chain] = []
    begin = 0
    for number in range(1, len(steps) + 1):
        if (
            number < len(steps)
            and number - begin < LONGEST_CHAIN
            and not guards[number]
            and not guards[number - 1]
            and _is_link(graph, steps[number - 1], steps[number], tile)
        ):
            continue
        if number - begin > 1:
            found += _parts(begin, tuple(_interleaved(steps, begin, number, within)))
        begin = number
    return tuple(found)


def slices_of(step: Step) -> Slices | None:
    """The work items of a step's kernel by rows of the image, if they are so divided."""
    kernel = step.kernel
    if kernel is None or len(kernel.body) != 1 or not isinstance(kernel.body[0], Micro):
        return None
    return kernel.body[0].slices


def _is_link(graph: Graph, before: Step, after: Step, tile: Tile) -> bool:
    """Does a step read, slice by slice, a large value that the one before it makes so?"""
    made, read = slices_of(before), slices_of(after)
    if made is None or read is None or min(len(made.parts), len(read.parts)) < 2:
        return False
    ref = _source(after, read)
    if before.outputs != (ref,) or not is_planned(graph, ref):
        return False
    size = graph.nbytes(ref)
    return not is_symbolic(size) and tile.is_large(size)


def _source(step: Step, slices: Slices) -> Ref:
    assert step.kernel is not None
    names = [param.name for param in step.kernel.params]
    return step.inputs[names.index(slices.source)]


def _interleaved(
    steps: Sequence[Step], begin: int, end: int, within: Mapping[Ref, SubBuffer]
) -> Iterator[WorkRange]:
    """The work items of steps from `begin` to before `end`: each slice of the last as early as can
    be, and those that it reads as late as can be.
    """
    slices = {number: found for number in range(begin, end) if (found := slices_of(steps[number]))}
    wholes = {
        number: {root(within, ref).parent for ref in steps[number].outputs} for number in slices
    }
    done = dict.fromkeys(slices, 0)

    def makers(number: int, ref: Ref) -> list[int]:
        """The steps before this one that make the value, or what it is a view or the whole of."""
        before = range(begin, number)
        own = [maker for maker in before if ref in steps[maker].outputs]
        return own or [maker for maker in before if root(within, ref).parent in wholes[maker]]

    # What is read as a whole comes first: until that is done, slices of others would wait.
    reads = {
        number: sorted(
            (_is_read_by_slices(steps[number], found, ref), maker)
            for ref in steps[number].inputs
            for maker in makers(number, ref)
        )
        for number, found in slices.items()
    }

    def until(number: int, count: int) -> Iterator[WorkRange]:
        parts = slices[number].parts
        while done[number] < count:
            part = parts[done[number]]
            for by_slices, maker in reads[number]:
                needed = _needed(slices[maker], part.read if by_slices else None)
                yield from until(maker, needed)
            yield from (WorkRange(number, *tasks) for tasks in part.tasks)
            done[number] += 1

    for number in reversed(slices):
        yield from until(number, len(slices[number].parts))


def _parts(begin: int, ranges: tuple[WorkRange, ...]) -> Iterator[Chain]:
    """The chain, divided behind each step that is done, with all before it, when those after it
    begin: what lies in memory together is only what is interleaved.
    """
    counts = Counter(each.step for each in ranges)
    start = done = 0
    for number in sorted(counts):
        done += counts[number]
        if all(each.step <= number for each in ranges[start:done]):
            if number > begin:
                yield Chain(begin, number, ranges[start:done])
            begin, start = number + 1, done


def _is_read_by_slices(step: Step, slices: Slices, ref: Ref) -> bool:
    """Does nothing in the step read the value but what goes over it slice by slice?"""
    reads = sum(node.inputs.count(ref) for node in step.members)
    return reads == 1 and ref == _source(step, slices)


def _needed(slices: Slices, pixels: int | None) -> int:
    """How many slices make so many pixels, or everything."""
    if pixels is None:
        return len(slices.parts)
    # There may be ten thousand slices, each of which asks.
    last = len(slices.parts) - 1
    return bisect_left(slices.parts, pixels, hi=last, key=lambda part: part.made) + 1
