"""What a kernel moves between memory and itself, and where that is likely to lie."""

from __future__ import annotations

from collections.abc import Iterator

from whence.attribution.cost_model import Traffic
from whence.attribution.executed_work import ExecutedWork
from whence.building.program import Program, ProgramStep
from whence.graph import Graph, Node, Ref


def traffic_of(graph: Graph, step: ProgramStep, executed: ExecutedWork | None = None) -> Traffic:
    """Each tensor that the step reads or makes for others counts once; where its kernel moves less,
    as with a slice of a large tensor, that counts.
    """
    far = near = 0
    for ref, is_far in _tensors(graph, step):
        size = graph.nbytes(ref)
        far, near = (far + size, near) if is_far else (far, near + size)
    if not step.symbol:
        return Traffic(near, far)
    counted = sum(member.bytes for member in step.members)
    if executed is not None:
        counted = min(counted, executed.bytes)
    if counted < near + far:
        # Who reads a part of a tensor reads that part.
        part = counted * near // (near + far)
        return Traffic(part, counted - part, step.slices)
    return Traffic(near, far, step.slices)


def footprint(program: Program) -> int:
    """The bytes that a run touches: weights, arena, inputs and outputs."""
    graph = program.graph
    ends = [ref for node in graph.outputs for ref in node.inputs if ref is not None]
    ends += [node.ref(0) for node in graph.inputs]
    weights, arena = int(program.packed.nbytes), program.plan.arena_bytes
    return weights + arena + sum(graph.nbytes(ref) for ref in ends)


def made_for_others(graph: Graph, step: ProgramStep) -> list[Ref]:
    """What a step makes that other steps read, or results of the model are."""
    inside = frozenset(step.nodes)
    return [
        node.ref(index)
        for node in map(graph.get, step.nodes)
        if node is not None
        for index in range(len(node.outputs))
        if any(reader.id not in inside for reader in _readers(graph, node.ref(index)))
    ]


def _readers(graph: Graph, ref: Ref) -> list[Node]:
    return [reader for reader in graph.consumers(graph[ref.node]) if ref in reader.inputs]


def _tensors(graph: Graph, step: ProgramStep) -> Iterator[tuple[Ref, bool]]:
    """What the step reads and makes, and whether it is used by another run before it is used
    again.
    """
    nodes, inside = map(graph.get, step.nodes), frozenset(step.nodes)
    inputs = (ref for node in nodes if node is not None for ref in node.inputs)
    for ref in dict.fromkeys(inputs):
        if ref is not None and ref.node not in inside:
            maker = graph[ref.node]
            yield ref, maker.is_const or not maker.inputs
    for ref in made_for_others(graph, step):
        yield ref, any(not reader.outputs for reader in _readers(graph, ref))
