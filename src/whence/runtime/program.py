"""A compiled graph: native code, where every value lies, and the steps in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whence.codegen.emit import KernelUnit, emit
from whence.codegen.toolchain import Toolchain
from whence.fusion import FusedGraph, find_groups, fuse
from whence.graph import Graph, Node, Ref
from whence.kernels.ir import Kernel, Member
from whence.kernels.lower import Step, lower
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.provenance import Origin
from whence.runtime import native_library as native
from whence.runtime.layout import Layout, Place, Region, is_planned, lay_out, nbytes
from whence.runtime.memory import MemoryPlan
from whence.runtime.runnable import is_native, runnable
from whence.runtime.weights import Weights

# A work item that takes less than this is not worth waking another thread for.
_GRAIN_NS = 20_000
_BYTES_PER_NS = 8
_FLOPS_PER_NS = 40


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One step as the profile knows it."""

    number: int
    name: str
    symbol: str
    """The native function, or empty for a reference implementation."""
    nodes: tuple[int, ...]
    origin: Origin
    members: tuple[Member, ...]
    why_reference: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Native steps that run in one call."""

    plan: native.Plan
    keep: tuple[object, ...]
    """What the plan points into."""


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """A step that the reference implementation of its operator does."""

    number: int
    node: Node


@dataclass(frozen=True, slots=True)
class Copy:
    """An output that no step makes in place, but that native code could reach."""

    source: Place
    output: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """Everything a run needs, except the run's own memory. Shared by all runs, never changed by one."""

    graph: Graph
    fused: FusedGraph
    steps: tuple[ProgramStep, ...]
    actions: tuple[Segment | ReferenceStep, ...]
    layout: Layout
    copies: tuple[Copy, ...]
    weights: np.ndarray
    library: native.Library | None
    """The native code; `None` when there is none, or when it is for another machine."""
    units: tuple[KernelUnit, ...]
    scratch_bytes: int
    """What each worker needs."""
    n_slots: int

    @property
    def memory(self) -> MemoryPlan:
        return self.layout.memory

    @property
    def native_steps(self) -> int:
        return sum(bool(step.symbol) for step in self.steps)

    def release_constants(self) -> None:
        """Drop the constants that only native code reads from the graph, which keeps their types: `weights` holds them as that code wants them."""
        steps = [action.node for action in self.actions if isinstance(action, ReferenceStep)]
        read = {self.layout.owner(ref).node for node in (*steps, *self.graph.outputs) for ref in node.inputs if ref is not None}
        for node in self.graph:
            if node.is_const and node.id not in read:
                node.value = None


Progress = Callable[[str, int, int], None]
"""Called with what was compiled, how many units are done, and how many there are."""


def tile_for(toolchain: Toolchain) -> Tile:
    """The register tile of the toolchain's target."""
    base = {16: AVX512, 8: AVX2}.get(toolchain.target.lanes, NEON)
    return Tile(base.rows, base.vectors, base.lanes, toolchain.target.l2)


def build_program(graph: Graph, toolchain: Toolchain, *, fusion: str = "dominator", progress: Progress | None = None, load: bool = True) -> Program:
    """Fuse, lower, compile and plan a prepared graph. Without `load`, the code is made to be exported: it is neither linked nor loaded."""
    fused = fuse(graph, find_groups(graph, fusion))
    lowered = lower(fused, tile_for(toolchain))
    positions = [position for position, step in enumerate(lowered) if is_native(graph, step)]
    emitted = emit([_kernel(lowered[position]) for position in positions], [_names(graph, lowered[position]) for position in positions])
    refused = {position: emitted.refused[number] for number, position in enumerate(positions) if number in emitted.refused}
    symbols = {id(lowered[position]): symbol for position, symbol in zip(positions, emitted.symbols, strict=True)}
    steps = runnable(graph, lowered, refused)
    running = [step for step in steps if not step.is_view]
    library = native.Library(toolchain.build_library(emitted.units, progress=progress)) if emitted.units and load else None
    layout = lay_out(graph, steps)
    weights = Weights()
    builder = _Actions(layout, weights, graph, library)
    for number, step in enumerate(running):
        builder.add(number, step, symbols.get(id(step), ""))
    return Program(
        graph=graph,
        fused=fused,
        steps=tuple(_described(number, step, symbols.get(id(step), "")) for number, step in enumerate(running)),
        actions=builder.finish(),
        layout=layout,
        copies=tuple(_copies(graph, layout, weights)),
        weights=weights.finish(),
        library=library,
        units=emitted.units,
        scratch_bytes=max((step.kernel.scratch_bytes for step in running if step.kernel is not None), default=0),
        n_slots=builder.n_slots,
    )


def _kernel(step: Step) -> Kernel:
    assert step.kernel is not None
    return step.kernel


def _names(graph: Graph, step: Step) -> list[str]:
    sources = sorted(Origin().union(*(node.origin for node in step.members)))
    return [graph.ledger.source(source).name for source in sources] or [node.name or node.op for node in step.members]


def _described(number: int, step: Step, symbol: str) -> ProgramStep:
    members = step.kernel.members if step.kernel is not None else tuple(Member(node.id, node.op, 1, 1) for node in step.members)
    origin = Origin().union(*(node.origin for node in step.members))
    return ProgramStep(number, step.name, symbol, tuple(node.id for node in step.members), origin, members, step.why_reference)


def _copies(graph: Graph, layout: Layout, weights: Weights) -> Sequence[Copy]:
    found = []
    for index, output in enumerate(graph.outputs):
        (ref,) = output.inputs
        assert ref is not None
        owner = layout.owner(ref)
        node = graph[owner.node]
        if is_planned(graph, ref) and layout.places.get(owner) != Place(Region.OUTPUT, index):
            found.append(Copy(weights.place(node) if node.is_const else layout.places[owner], index, nbytes(graph, ref)))
    return found


class _Actions:
    """Puts native steps that follow each other into one segment."""

    def __init__(self, layout: Layout, weights: Weights, graph: Graph, library: native.Library | None) -> None:
        self._layout, self._weights, self._graph, self._library = layout, weights, graph, library
        self._done: list[Segment | ReferenceStep] = []
        self._steps: list[native.Step] = []
        self._slots: list[native.Slot] = []
        self._first = self._scratch = self.n_slots = 0

    def add(self, number: int, step: Step, symbol: str) -> None:
        if step.kernel is None:
            self._flush()
            self._done.append(ReferenceStep(number, step.members[0]))
            return
        if not self._steps:
            self._first = number
        kernel, first = step.kernel, len(self._slots)
        self._slots += [self._slot(ref, kernel, position) for position, ref in enumerate((*step.inputs, *step.outputs))]
        address = None if self._library is None else self._library.address(symbol)
        self._steps.append(native.Step(address, kernel.tasks, _grain(kernel), first, len(self._slots) - first))
        self._scratch = max(self._scratch, kernel.scratch_bytes)

    def finish(self) -> tuple[Segment | ReferenceStep, ...]:
        self._flush()
        return tuple(self._done)

    def _slot(self, ref: Ref, kernel: Kernel, position: int) -> native.Slot:
        node = self._graph[self._layout.owner(ref).node]
        place = self._weights.place(node, kernel.packings.get(position)) if node.is_const else self._layout.places[ref]
        assert place.region is not Region.DYNAMIC
        return native.Slot(int(place.region), place.index, place.offset)

    def _flush(self) -> None:
        if not self._steps:
            return
        steps = (native.Step * len(self._steps))(*self._steps)
        slots = (native.Slot * max(len(self._slots), 1))(*self._slots)
        self._done.append(Segment(native.Plan(steps, slots, len(steps), len(self._slots), self._scratch, self._first), (steps, slots)))
        self.n_slots = max(self.n_slots, len(self._slots))
        self._steps, self._slots, self._scratch = [], [], 0


def _grain(kernel: Kernel) -> int:
    """How many work items make a piece that is worth handing to another thread."""
    work = sum(member.flops / _FLOPS_PER_NS + member.bytes / _BYTES_PER_NS for member in kernel.members)
    per_item = max(work / max(kernel.tasks, 1), 0.01)
    return max(1, int(_GRAIN_NS / per_item))
