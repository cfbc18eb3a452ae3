"""Laying out the values of a program: which lie with the caller, and where in the arena the others
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.building.arena import LARGEST, ArenaPlan, Lifetime, Planner, plan_arena
from whence.building.location import Location, MemoryRegion
from whence.building.memory_layout import Aliasing, MemoryLayout, SubBuffer
from whence.errors import UnsupportedError
from whence.extent import estimate, is_symbolic
from whence.graph import Graph, Ref
from whence.graph.display_name import display_name
from whence.kernels.lower import Step
from whence.types import DType


def is_planned(graph: Graph, ref: Ref) -> bool:
    """Does the value have a fixed size, in elements of a fixed size?"""
    kind = graph.tensor_type(ref)
    return (
        kind is not None
        and kind.is_static
        and kind.dtype not in (DType.STRING, DType.UNDEFINED)
        and kind.dtype.bits >= 8
    )


def allocate(
    graph: Graph,
    steps: Sequence[Step],
    aliasing: Aliasing | None = None,
    plan: Planner = plan_arena,
    together: Sequence[tuple[int, int]] = (),
) -> MemoryLayout:
    """Place all values. `steps` are in order, views among them; every view is of a planned value or
    a constant. Steps from and to the numbers in `together`, views not counted, are interleaved.
    """
    aliasing = aliasing or Aliasing()
    views = _views(steps, aliasing)
    within = values_within(steps, aliasing)
    owners = {view: root(views, view).parent for view in views}
    running = [step for step in steps if not step.is_view]
    places: dict[Ref, Location] = {}
    for index, node in enumerate(graph.inputs):
        places[node.ref()] = Location(
            MemoryRegion.INPUT if is_planned(graph, node.ref()) else MemoryRegion.DYNAMIC, index
        )
    numbers = {node.name: index for index, node in enumerate(graph.variables)}
    for index, node in enumerate(graph.variables):
        places[node.ref()] = Location(MemoryRegion.STATE, index)
    made = {ref: is_planned(graph, ref) for step in running for ref in step.outputs} | {
        part.parent: True for part in aliasing.parts.values()
    }
    places.update(
        (ref, Location(MemoryRegion.DYNAMIC)) for ref, planned in made.items() if not planned
    )
    # An output that some step makes is made in place; one that is an input, a constant or a second
    # name is copied at the end.
    for index, output in enumerate(graph.outputs):
        ref = output.first_input
        owner = owners.get(ref, ref)
        if made.get(owner) and owner not in places:
            places[owner] = Location(MemoryRegion.OUTPUT, index)
    # What is assigned to a variable is made there, unless a step of its own copies it.
    copied = {node.id for step in running for node in step.members if node.op == "Assign"}
    for node in graph.assigns:
        ref = node.first_input
        owner = owners.get(ref, ref)
        if node.id not in copied:
            assert made.get(owner)
            assert owner not in places
            places[owner] = Location(MemoryRegion.NEXT, numbers[str(node.attrs["variable"])])
    lives = _joined(_lifetimes(running, owners, aliasing.parts), together)
    _check_sizes(graph, [*places, *lives])
    blocks: dict[Ref, list[Lifetime]] = {}
    for ref, (first, last) in lives.items():
        lies = root(within, ref)
        if lies.parent not in places:
            blocks.setdefault(lies.parent, []).append(
                Lifetime(graph.nbytes(ref), first, last, lies.offset)
            )
    is_open = any(
        is_symbolic(each.size) or is_symbolic(each.offset)
        for block in blocks.values()
        for each in block
    )
    if is_open:
        memory = ArenaPlan((), 0, 0)
        places.update(
            (ref, Location(MemoryRegion.ARENA, number)) for number, ref in enumerate(blocks)
        )
    else:
        memory = plan(list(blocks.values()))
        places.update(
            (ref, Location(MemoryRegion.ARENA, offset=offset))
            for ref, offset in zip(blocks, memory.offsets, strict=True)
        )
    for ref in within:
        lies = root(within, ref)
        if lies.parent in places:
            place = places[lies.parent]
            places[ref] = Location(place.region, place.index, place.offset + lies.offset)
    return MemoryLayout(
        places,
        owners,
        memory,
        _in_place(graph, running, within, places, lives),
        tuple(map(tuple, blocks.values())) if is_open else (),
    )


def values_within(steps: Sequence[Step], aliasing: Aliasing) -> dict[Ref, SubBuffer]:
    """All values that lie within others: views, and parts of what is put together."""
    return {**_views(steps, aliasing), **aliasing.parts}


def _views(steps: Sequence[Step], aliasing: Aliasing) -> dict[Ref, SubBuffer]:
    views = {step.outputs[0]: SubBuffer(step.inputs[0]) for step in steps if step.is_view}
    return {**aliasing.views, **views}


def _joined(
    lives: Mapping[Ref, tuple[int, int]], together: Sequence[tuple[int, int]]
) -> dict[Ref, tuple[int, int]]:
    """Lifetimes when steps that are interleaved begin with the first of them and end with the last."""
    begins = {number: first for first, last in together for number in range(first, last + 1)}
    ends = {number: last for first, last in together for number in range(first, last + 1)}
    return {
        ref: (begins.get(first, first), ends.get(last, last))
        for ref, (first, last) in lives.items()
    }


def _in_place(
    graph: Graph,
    running: Sequence[Step],
    within: Mapping[Ref, SubBuffer],
    places: Mapping[Ref, Location],
    lives: Mapping[Ref, tuple[int, int]],
) -> frozenset[int]:
    """The variables that nothing reads any more when the first step writes their new value; the
    step itself may, if its kernel changes what it reads where it lies.
    """
    end = len(running)
    last_read: dict[Ref, int] = {}
    for number, step in enumerate(running):
        changed = _changed_in_place(step, within, places)
        for ref in step.inputs:
            if ref not in changed:
                last_read[root(within, ref).parent] = number
    for output in graph.outputs:
        given = output.first_input
        last_read[root(within, given).parent] = end
    # Conditions are asked again by every step that they guard.
    for node in graph if "Choose" in graph.op_counts else ():
        if node.op == "Choose" and node.inputs[0] is not None:
            last_read[root(within, node.inputs[0]).parent] = end
    first_write = dict.fromkeys(range(len(graph.variables)), end)
    for ref, (first, _) in lives.items():
        # A step that copies to a variable counts as making it.
        place = places[root(within, ref).parent]
        if place.region in (MemoryRegion.NEXT, MemoryRegion.STATE):
            first_write[place.index] = min(first_write[place.index], first)
    return frozenset(
        index
        for index, node in enumerate(graph.variables)
        if last_read.get(node.ref(), -1) < first_write[index]
    )


def _changed_in_place(
    step: Step, within: Mapping[Ref, SubBuffer], places: Mapping[Ref, Location]
) -> frozenset[Ref]:
    """The variables that a step reads only to write their next value over them."""
    pairs = () if step.kernel is None else step.kernel.in_place
    found = set()
    for output, given in pairs:
        source, made = step.inputs[given], step.outputs[output - len(step.inputs)]
        from_, to = (places.get(root(within, ref).parent) for ref in (source, made))
        if (
            from_ is not None
            and to is not None
            and (from_.region, to.region) == (MemoryRegion.STATE, MemoryRegion.NEXT)
            and from_.index == to.index
        ):
            found.add(source)
    return frozenset(found)


def root(within: Mapping[Ref, SubBuffer], ref: Ref) -> SubBuffer:
    """Where a value lies in the outermost one that it lies in, which may be itself."""
    offset = 0
    while ref in within:
        ref, offset = within[ref].parent, offset + within[ref].offset
    return SubBuffer(ref, offset)


def _check_sizes(graph: Graph, refs: Sequence[Ref]) -> None:
    """Sizes and offsets must fit the integers that native code counts with, all of them
    together.
    """
    total = 0
    for ref in refs:
        if is_planned(graph, ref):
            total += graph.nbytes(ref)
            if estimate(total) > LARGEST:
                node = graph[ref.node]
                raise UnsupportedError(
                    f"{display_name(node)} is {graph.type_of(ref)}: no machine has that much memory"
                )


def _lifetimes(
    running: Sequence[Step], owners: Mapping[Ref, Ref], parts: Mapping[Ref, SubBuffer]
) -> dict[Ref, tuple[int, int]]:
    """The first and the last step that needs each value that a step makes. What the caller gets
    lies elsewhere and needs no end.
    """
    first: dict[Ref, int] = {}
    last: dict[Ref, int] = {}
    for number, step in enumerate(running):
        for ref in step.outputs:
            first[ref] = last[ref] = number
        for ref in step.inputs:
            last[owners.get(ref, ref)] = number
    # A part is needed as long as the whole, which may be part of another that comes after it here.
    for part, lies in reversed(list(parts.items())):
        last[part] = max(last.get(part, 0), last.get(lies.parent, 0))
    return {ref: (first[ref], last[ref]) for ref in first}
