"""The parts of a program that are the same for every backend: what it takes and gives, where its
operands lie, and what explains its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.building.allocate import is_planned
from whence.building.backend import Lowered, LoweredStep
from whence.building.chains import slices_of
from whence.building.kernel_programs import written_kernels
from whence.building.location import Location, MemoryRegion, written
from whence.building.memory_layout import MemoryLayout
from whence.building.packed_weights import Packing
from whence.building.program import Block, Chain, Copy, Details, ProgramStep
from whence.building.weights import Weights
from whence.extent import Dimensions, dimensions_of, is_symbolic
from whence.graph import Graph, Ref
from whence.kernels.ir import Buffer, Member
from whence.kernels.lower import Step
from whence.provenance import Origin
from whence.types import TensorType


def operand_locations(lowered: Lowered, step: Step, weights: Weights) -> list[Location]:
    """Where the inputs and then the outputs of a step with a kernel lie; its constants are packed
    into `weights` as the kernel wants them.
    """
    assert step.kernel is not None
    packings = step.kernel.packings
    return [
        *(
            location_of(lowered, ref, weights, packings.get(position), step.kernel.params[position])
            for position, ref in enumerate(step.inputs)
        ),
        *(written(location_of(lowered, ref, weights)) for ref in step.outputs),
    ]


def location_of(
    lowered: Lowered,
    ref: Ref,
    weights: Weights,
    packing: Packing | None = None,
    packed: Buffer | None = None,
) -> Location:
    """Where a value lies that a kernel reads, or a guard. `packed` is what the kernel takes for a
    constant that is packed.
    """
    node = lowered.graph[lowered.layout.owner(ref).node]
    if node.is_const:
        found = weights.place(node, packing, None if packed is None else _bytes_of(packed))
    else:
        found = lowered.layout.places[ref]
    assert found.region is not MemoryRegion.DYNAMIC
    return found


def _bytes_of(buffer: Buffer) -> int | None:
    """Of a parameter, where that is a number."""
    if is_symbolic(buffer.elements):
        return None
    return (buffer.elements * buffer.dtype.bits + 7) // 8


def details_of(
    lowered: Lowered, copies: Sequence[Copy] = (), more: Sequence[ProgramStep] = ()
) -> Details:
    """What explains the program; `more` are steps that are no operator's, after all others."""
    return Details(
        graph=lowered.graph,
        fused=lowered.fused,
        steps=(*(_described(each, lowered.chains) for each in lowered.steps), *more),
        layout=lowered.layout,
        copies=tuple(copies),
        units=lowered.rendered.units,
        kernels=written_kernels(
            {
                each.number: each.step.kernel
                for each in lowered.steps
                if each.code is not None and each.step.kernel is not None
            }
        ),
        tile=lowered.tile,
    )


def _described(lowered: LoweredStep, chains: Sequence[Chain]) -> ProgramStep:
    number, step, code, _ = lowered
    members = (
        step.kernel.members
        if step.kernel is not None
        else tuple(Member(node.id, node.op, 1, 1) for node in step.members)
    )
    origin = Origin().union(*(node.origin for node in step.members))
    reduced_precision = step.kernel is not None and step.kernel.reduced_precision
    nodes = tuple(node.id for node in step.members)
    is_interleaved = any(chain.first <= number <= chain.last for chain in chains)
    slices = slices_of(step) if is_interleaved else None
    return ProgramStep(
        number,
        step.name,
        "" if code is None else code.symbol,
        nodes,
        origin,
        members,
        step.why_reference,
        reduced_precision=reduced_precision,
        slices=1 if slices is None else len(slices.parts),
    )


def dimensions_of_graph(graph: Graph) -> Dimensions | None:
    """The dimensions that sizes of the graph's values are expressions over, if any are."""
    return dimensions_of(
        dim
        for node in graph
        for kind in node.outputs
        if isinstance(kind, TensorType)
        for dim in kind.shape or ()
    )


def input_blocks(graph: Graph, layout: MemoryLayout) -> tuple[Block | None, ...]:
    return tuple(
        block_of(graph, node.name, node.ref())
        if layout.places[node.ref()].region is MemoryRegion.INPUT
        else None
        for node in graph.inputs
    )


def output_blocks(graph: Graph, layout: MemoryLayout) -> tuple[Block | None, ...]:
    return tuple(
        block_of(graph, node.name, ref)
        if layout.places.get(ref := node.first_input) == Location(MemoryRegion.OUTPUT, index)
        else None
        for index, node in enumerate(graph.outputs)
    )


def block_of(graph: Graph, name: str, ref: Ref) -> Block:
    kind = graph.type_of(ref)
    assert isinstance(kind, TensorType)
    assert kind.static_shape is not None
    return Block(name, kind.dtype.numpy, kind.static_shape)


def copies_of(graph: Graph, layout: MemoryLayout, weights: Weights) -> Sequence[Copy]:
    """The outputs that no step writes where the caller wants them."""
    found = []
    for index, output in enumerate(graph.outputs):
        ref = output.first_input
        owner = layout.owner(ref)
        node = graph[owner.node]
        if is_planned(graph, ref) and layout.places.get(owner) != Location(
            MemoryRegion.OUTPUT, index
        ):
            found.append(
                Copy(
                    weights.place(node) if node.is_const else layout.places[ref],
                    index,
                    graph.nbytes(ref),
                )
            )
    return found
