"""Laying out the values of a program: which lie with the caller, and where in the arena the others do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.errors import UnsupportedError
from whence.graph import Graph, Ref
from whence.kernels.lower import Step
from whence.runtime.memory import Lifetime, plan_memory
from whence.runtime.places import Layout, Place, Region
from whence.types import DType, TensorType

_LARGEST = 1 << 48


def is_planned(graph: Graph, ref: Ref) -> bool:
    """Does the value have a fixed size, in elements of a fixed size?"""
    kind = graph.type_of(ref)
    return isinstance(kind, TensorType) and kind.is_static and kind.dtype not in (DType.STRING, DType.UNDEFINED) and kind.dtype.bits >= 8


def nbytes(graph: Graph, ref: Ref) -> int:
    """Of a planned value."""
    kind = graph.type_of(ref)
    assert isinstance(kind, TensorType)
    return (kind.elements or 0) * kind.dtype.numpy.itemsize


def lay_out(graph: Graph, steps: Sequence[Step]) -> Layout:
    """Place all values. `steps` are in order, views among them; every view is of a planned value or a constant."""
    owners: dict[Ref, Ref] = {}
    for step in steps:
        if step.is_view:
            owners[step.outputs[0]] = owners.get(step.inputs[0], step.inputs[0])
    running = [step for step in steps if not step.is_view]
    places: dict[Ref, Place] = {}
    for index, node in enumerate(graph.inputs):
        places[node.ref()] = Place(Region.INPUT if is_planned(graph, node.ref()) else Region.DYNAMIC, index)
    made = {ref: is_planned(graph, ref) for step in running for ref in step.outputs}
    places.update((ref, Place(Region.DYNAMIC)) for ref, planned in made.items() if not planned)
    # An output that some step makes is made in place; one that is an input, a constant or a second name is copied at the end.
    for index, output in enumerate(graph.outputs):
        (ref,) = output.inputs
        assert ref is not None
        owner = owners.get(ref, ref)
        if made.get(owner) and owner not in places:
            places[owner] = Place(Region.OUTPUT, index)
    lives = _lifetimes(running, owners)
    blocks = [ref for ref in lives if ref not in places]
    _check_sizes(graph, [*places, *lives])
    memory = plan_memory([Lifetime(nbytes(graph, ref), *lives[ref]) for ref in blocks])
    places.update((ref, Place(Region.ARENA, offset=offset)) for ref, offset in zip(blocks, memory.offsets, strict=True))
    places.update((view, places[owner]) for view, owner in owners.items() if owner in places)
    return Layout(places, owners, memory)


def _check_sizes(graph: Graph, refs: Sequence[Ref]) -> None:
    """Sizes and offsets must fit the integers that native code counts with, all of them together."""
    total = 0
    for ref in refs:
        if is_planned(graph, ref):
            total += nbytes(graph, ref)
            if total > _LARGEST:
                node = graph[ref.node]
                raise UnsupportedError(f"'{node.name}' ({node.op}) is {graph.type_of(ref)}: no machine has that much memory")


def _lifetimes(running: Sequence[Step], owners: Mapping[Ref, Ref]) -> dict[Ref, tuple[int, int]]:
    """The first and the last step that needs each value that a step makes. What the caller gets lies elsewhere and needs no end."""
    first: dict[Ref, int] = {}
    last: dict[Ref, int] = {}
    for number, step in enumerate(running):
        for ref in step.outputs:
            first[ref] = last[ref] = number
        for ref in step.inputs:
            owner = owners.get(ref, ref)
            if owner in first:
                last[owner] = number
    return {ref: (first[ref], last[ref]) for ref in first}
