"""Building a program: fuse, lower, compile and plan a prepared graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whence.building.allocate import allocate, is_planned, nbytes
from whence.building.arena import ALIGNMENT, plan_arena, side_by_side
from whence.building.in_place_concat import concat_in_place
from whence.building.memory_layout import Location, MemoryLayout, Region, written
from whence.building.native_code import TOGETHER, Library, NativeSlot, NativeStep
from whence.building.program import (
    Block,
    Copy,
    Details,
    Plan,
    Program,
    ProgramStep,
    ReferenceStep,
    Segment,
    make_segment,
)
from whence.building.redzones import poison_gaps
from whence.building.reference_fallback import is_native, with_reference_steps
from whence.building.variables import assignments, variables_of
from whence.building.weights import Packing, Weights
from whence.codegen.emit import emit
from whence.codegen.target import Feature
from whence.codegen.toolchain import Toolchain
from whence.errors import ModelError
from whence.fusion import find_groups, fuse
from whence.fusion.contiguous import MAY_BE_CONTIGUOUS
from whence.graph import Graph, Ref
from whence.graph.display_name import display_name
from whence.graph.guards import Guard, Guards, Work, find_guards
from whence.graph.operands import why_it_fails
from whence.kernels.choice import NO_CHOICES, Choices
from whence.kernels.ir import Kernel, Member
from whence.kernels.lower import Step, lower
from whence.kernels.tile import AVX2, AVX512, NEON, SSE, Tile
from whence.provenance import Origin
from whence.types import TensorType

# A work item that takes less than this is not worth waking another thread for.
_GRAIN_NS = 6_000
# A run that by this reckoning, which counts weights as far away, takes less finds the other threads
# asleep, and is over by the time they are awake.
_ALONE_NS = 400_000
_BYTES_PER_NS = 8

Progress = Callable[[str, int, int], None]
"""Called with what was compiled, how many units are done, and how many there are."""


def tile_for(toolchain: Toolchain, threads: int = 1, *, halves: bool = False) -> Tile:
    """The register tile of the toolchain's target, for kernels that so many threads share; with
    `halves`, its matrix units too, if it has them.
    """
    narrow = NEON if toolchain.target.vector_registers == 32 else SSE
    base = {16: AVX512, 8: AVX2}.get(toolchain.target.lanes, narrow)
    has_units = toolchain.target.has(Feature.AMX_TILE, Feature.AMX_BF16, Feature.AVX512_BF16)
    return Tile(
        base.rows,
        base.vectors,
        base.lanes,
        toolchain.target.l2,
        bf16x2=halves and has_units,
        threads=threads,
    )


def build_program(
    graph: Graph,
    toolchain: Toolchain,
    *,
    threads: int = 1,
    fusion: str = "dominator",
    choices: Choices = NO_CHOICES,
    progress: Progress | None = None,
    load: bool = True,
    halves: bool = False,
) -> Program:
    """Fuse, lower, compile and plan a prepared graph. Without `load`, the code is made to be
    exported: it is neither linked nor loaded.

    With `halves`, float32 products may be made of bfloat16 ones (see `kernels/bf16x2.py`); whether
    the outputs show it is for the caller to see.
    Kernels are divided for `threads` threads; any number of them can run the program.
    `choices` says, by problem, which kernels to take; for other problems the cost model does.
    """
    check_graph_operands(graph)
    fused = fuse(graph, find_groups(graph, fusion))
    tile = tile_for(toolchain, threads, halves=halves)
    unshared = lower(fused, tile, choices)
    lowered, sharing = concat_in_place(graph, unshared)
    copies = assignments(graph, lowered, sharing)
    unshared, lowered = [*unshared, *copies], [*lowered, *copies]
    positions = [position for position, step in enumerate(lowered) if is_native(graph, step)]
    emitted = emit(
        [kernel_of(lowered[position]) for position in positions],
        [source_names(graph, lowered[position]) for position in positions],
    )
    refused = {
        position: emitted.refused[number]
        for number, position in enumerate(positions)
        if number in emitted.refused
    }
    symbols = {
        id(lowered[position]): symbol
        for position, symbol in zip(positions, emitted.symbols, strict=True)
    }
    steps = with_reference_steps(graph, lowered, refused)
    running = [step for step in steps if not step.is_view]
    library = (
        Library(toolchain.build_library(emitted.units, progress=progress))
        if emitted.units and load
        else None
    )
    watched = toolchain.sanitize
    layout = allocate(graph, steps, sharing, side_by_side if watched else plan_arena)
    weights = Weights(ALIGNMENT if watched else 0)
    builder = _Actions(layout, weights, graph, library)
    for number, (step, guards) in enumerate(
        zip(running, guards_of(graph, steps, unshared), strict=True)
    ):
        builder.add(number, step, symbols.get(id(step), ""), guards)
    plan = Plan(
        inputs=input_blocks(graph, layout),
        outputs=output_blocks(graph, layout),
        actions=builder.finish(),
        arena_bytes=layout.memory.arena_bytes,
        scratch_bytes=max(
            (step.kernel.scratch_bytes for step in running if step.kernel is not None), default=0
        ),
        n_slots=builder.n_slots,
        variables=variables_of(graph, layout, weights),
    )
    details = Details(
        graph=graph,
        fused=fused,
        steps=tuple(
            described(number, step, symbols.get(id(step), ""))
            for number, step in enumerate(running)
        ),
        layout=layout,
        copies=tuple(copies_of(graph, layout, weights)),
        units=emitted.units,
        tile=tile,
    )
    block = weights.finish()
    if not watched:
        return Program(plan, block, library, details)
    poison_gaps(block, weights.used)
    used = [
        (place.offset, place.offset + nbytes(graph, ref))
        for ref, place in layout.places.items()
        if place.region is Region.ARENA
    ]
    return Program(plan, block, library, details, used)


def check_graph_operands(graph: Graph) -> None:
    """Kernels trust the types of their operands: what was unknown when an operator was read is
    known now, and must fit.
    """
    for node in graph:
        why = why_it_fails(graph, node)
        if why:
            raise ModelError(f"operator {display_name(node)}: {why}")


def guards_of(graph: Graph, steps: Sequence[Step], unshared: Sequence[Step]) -> list[Guards]:
    """Under what conditions each of the steps runs that are no views.

    `unshared` has the concatenations and splits too that nothing is left of, or not all: what they
    read is needed where they are.
    """
    order = {ref: place for place, step in enumerate(unshared) for ref in step.outputs}
    entries = {step.entry: place for place, step in reversed(list(enumerate(unshared)))}
    placed: list[tuple[int, Step | None, Work]] = []
    for step in steps:
        # What a group was taken apart into makes values that no other step knows.
        place = min(
            (order[ref] for ref in step.outputs if ref in order), default=entries[step.entry]
        )
        # An assignment makes nothing for this run: a variable that is a condition is what it was.
        makes = () if step.members[0].op == "Assign" else step.outputs
        placed.append((place, step, Work(step.members, step.inputs, makes)))
    standing = {id(step) for step in steps}
    placed += [
        (place, None, Work(step.members, step.inputs, step.outputs))
        for place, step in enumerate(unshared)
        if id(step) not in standing
        and len(step.members) == 1
        and step.members[0].op in MAY_BE_CONTIGUOUS
    ]
    placed.sort(key=lambda each: each[0])
    found = find_guards(
        [work for _, _, work in placed],
        [ref for node in graph.results for ref in node.inputs if ref is not None],
    )
    return [
        guards
        for (_, step, _), guards in zip(placed, found, strict=True)
        if step is not None and not step.is_view
    ]


def input_blocks(graph: Graph, layout: MemoryLayout) -> tuple[Block | None, ...]:
    return tuple(
        _block(graph, node.name, node.ref())
        if layout.places[node.ref()].region is Region.INPUT
        else None
        for node in graph.inputs
    )


def output_blocks(graph: Graph, layout: MemoryLayout) -> tuple[Block | None, ...]:
    return tuple(
        _block(graph, node.name, ref)
        if ref is not None and layout.places.get(ref) == Location(Region.OUTPUT, index)
        else None
        for index, node in enumerate(graph.outputs)
        for ref in node.inputs
    )


def _block(graph: Graph, name: str, ref: Ref) -> Block:
    kind = graph.type_of(ref)
    assert isinstance(kind, TensorType)
    assert kind.static_shape is not None
    return Block(name, kind.dtype.numpy, kind.static_shape)


def kernel_of(step: Step) -> Kernel:
    assert step.kernel is not None
    return step.kernel


def source_names(graph: Graph, step: Step) -> list[str]:
    sources = sorted(Origin().union(*(node.origin for node in step.members)))
    return [graph.ledger.source(source).name for source in sources] or [
        node.name or node.op for node in step.members
    ]


def described(number: int, step: Step, symbol: str) -> ProgramStep:
    members = (
        step.kernel.members
        if step.kernel is not None
        else tuple(Member(node.id, node.op, 1, 1) for node in step.members)
    )
    origin = Origin().union(*(node.origin for node in step.members))
    reduced_precision = step.kernel is not None and step.kernel.reduced_precision
    nodes = tuple(node.id for node in step.members)
    return ProgramStep(
        number,
        step.name,
        symbol,
        nodes,
        origin,
        members,
        step.why_reference,
        reduced_precision=reduced_precision,
    )


def copies_of(graph: Graph, layout: MemoryLayout, weights: Weights) -> Sequence[Copy]:
    """The outputs that no step writes where the caller wants them."""
    found = []
    for index, output in enumerate(graph.outputs):
        (ref,) = output.inputs
        assert ref is not None
        owner = layout.owner(ref)
        node = graph[owner.node]
        if is_planned(graph, ref) and layout.places.get(owner) != Location(Region.OUTPUT, index):
            found.append(
                Copy(
                    weights.place(node) if node.is_const else layout.places[ref],
                    index,
                    nbytes(graph, ref),
                )
            )
    return found


class _Actions:
    """Puts native steps that follow each other into one segment."""

    def __init__(
        self, layout: MemoryLayout, weights: Weights, graph: Graph, library: Library | None
    ) -> None:
        self._layout, self._weights, self._graph, self._library = layout, weights, graph, library
        self._done: list[Segment | ReferenceStep] = []
        self._steps: list[NativeStep] = []
        self._slots: list[NativeSlot] = []
        self._symbols: list[str] = []
        self._conditional_steps: list[ReferenceStep] = []
        self._first = self._scratch = self.n_slots = 0
        self._work: dict[Guards, float] = {}

    def add(self, number: int, step: Step, symbol: str, guards: Guards) -> None:
        if step.kernel is None and not guards:
            self._flush()
            self._done.append(ReferenceStep(number, step.members[0].id))
            return
        if not self._steps:
            self._first = number
        first, wanted = (
            len(self._slots),
            sum(guard.wanted << bit for bit, guard in enumerate(guards)),
        )
        self._symbols.append(symbol)
        if step.kernel is None:
            # Most runs may never come by: it does not end the segment.
            self._conditional_steps.append(ReferenceStep(number, step.members[0].id))
            self._slots += [self._slot(guard.condition) for guard in guards]
            self._steps.append(NativeStep(None, 1, 1, first, 0, len(guards), wanted))
            return
        kernel, operands = step.kernel, (*step.inputs, *step.outputs)
        self._slots += [
            self._slot(ref, kernel.packings.get(position), is_written=position >= len(step.inputs))
            for position, ref in enumerate(operands)
        ]
        self._slots += [self._slot(guard.condition) for guard in guards]
        address = None if self._library is None else self._library.address(symbol)
        self._steps.append(
            NativeStep(
                address, kernel.tasks, grain(kernel), first, len(operands), len(guards), wanted
            )
        )
        self._scratch = max(self._scratch, kernel.scratch_bytes)
        self._work[guards] = self._work.get(guards, 0.0) + work_ns(kernel)

    def finish(self) -> tuple[Segment | ReferenceStep, ...]:
        self._flush()
        return tuple(self._done)

    def _slot(
        self, ref: Ref, packing: Packing | None = None, *, is_written: bool = False
    ) -> NativeSlot:
        node = self._graph[self._layout.owner(ref).node]
        place = self._weights.place(node, packing) if node.is_const else self._layout.places[ref]
        place = written(place) if is_written else place
        assert place.region is not Region.DYNAMIC
        return NativeSlot(int(place.region), place.index, place.offset)

    def _flush(self) -> None:
        if not self._steps:
            return
        if longest_ns(self._work) < _ALONE_NS:
            for step in self._steps:
                step.grain = step.tasks
        self._done.append(
            make_segment(
                self._steps,
                tuple(self._symbols),
                self._slots,
                self._scratch,
                self._first,
                tuple(self._conditional_steps),
            )
        )
        self.n_slots = max(self.n_slots, len(self._slots))
        (
            self._steps,
            self._slots,
            self._symbols,
            self._conditional_steps,
            self._scratch,
            self._work,
        ) = (
            [],
            [],
            [],
            [],
            0,
            {},
        )


def longest_ns(work: Mapping[Guards, float]) -> float:
    """What a run takes that takes the longer side of every choice, given what the steps under the
    same guards take.
    """
    below: dict[Guards, float] = dict(work)
    for depth in range(max(map(len, work), default=0), 0, -1):
        sides = {guards: ns for guards, ns in below.items() if len(guards) == depth}
        for outer, condition in dict.fromkeys(
            (guards[:-1], guards[-1].condition) for guards in sides
        ):
            longer = max(
                sides.get((*outer, Guard(condition, wanted)), 0.0) for wanted in (False, True)
            )
            below[outer] = below.get(outer, 0.0) + longer
    return below.get((), 0.0)


def grain(kernel: Kernel) -> int:
    """How many work items make a piece that is worth handing to another thread."""
    if kernel.together:
        return TOGETHER
    per_item = max(work_ns(kernel) / max(kernel.tasks, 1), 0.01)
    return max(1, int(_GRAIN_NS / per_item))


def work_ns(kernel: Kernel) -> float:
    """What the kernel takes on one thread, roughly."""
    return sum(
        member.flops / kernel.flops_per_ns + member.bytes / _BYTES_PER_NS
        for member in kernel.members
    )
