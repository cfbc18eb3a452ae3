"""A compiled graph: native code, the steps in order, and what explains them.

What a run needs is plain data and here at once. What explains a program (its graph, its groups, its
C) is asked for by profiles, reports and reference steps only, so a program that comes from the
cache loads it when somebody asks.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.building.native_code import (
    Library,
    NativeChain,
    NativePlan,
    NativeRange,
    NativeSlot,
    NativeStep,
)

if TYPE_CHECKING:
    from whence.building.arena import ArenaPlan
    from whence.building.kernel_programs import KernelPrograms
    from whence.building.location import Location
    from whence.building.memory_layout import MemoryLayout
    from whence.building.packed_weights import PackedWeights
    from whence.building.program_template import ProgramTemplate
    from whence.codegen.emit import KernelUnit
    from whence.fusion import FusedGraph
    from whence.graph import Graph
    from whence.kernels.ir import Member
    from whence.kernels.tile import Tile
    from whence.provenance import Origin


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
    residual: str = ""
    """For a step that is no operator's: what its time is called."""
    reduced_precision: bool = False
    """Are its products made by matrix units, less exact than those of float32 and quicker?"""
    slices: int = 1
    """In which it is interleaved with its neighbours, where one thread runs them."""


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """A step that the reference implementation of its operator does."""

    number: int
    node: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Native steps that run in one call."""

    plan: NativePlan
    keep: tuple[object, ...]
    """What the plan points into."""
    symbols: tuple[str, ...]
    """The function of each step; empty for one of `conditional_steps`."""
    conditional_steps: tuple[ReferenceStep, ...] = ()
    """Reference steps on conditional paths: native code returns to Python to run them."""
    chains: tuple[Chain, ...] = ()


class WorkRange(NamedTuple):
    """Work items of one step of a chain."""

    step: int
    begin: int
    end: int


class Chain(NamedTuple):
    """Steps that are interleaved where one thread runs them: all their work items, in order."""

    first: int
    last: int
    ranges: tuple[WorkRange, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """An output that no step makes in place, but that native code could reach."""

    source: Location
    output: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """An array of the caller that native code reads or writes."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that outlives a run, and how a run treats it."""

    block: Block
    initial_offset: int
    """Where its initial value lies in the weights: so many bytes, repeated until it is full."""
    initial_bytes: int
    """0 when it begins with zeros."""
    is_assigned: bool
    in_place: bool
    """Is the new value written over the old one? Else it is written elsewhere, and the two change
    places when the run is done.
    """

    @property
    def nbytes(self) -> int:
        return self.block.nbytes


@dataclass(frozen=True, slots=True)
class Details:
    """What explains a program."""

    graph: Graph
    fused: FusedGraph
    steps: tuple[ProgramStep, ...]
    layout: MemoryLayout
    copies: tuple[Copy, ...]
    units: tuple[KernelUnit, ...]
    kernels: KernelPrograms
    """What the units were rendered from."""
    tile: Tile
    """What its kernels were divided for."""

    @property
    def reduced_precision(self) -> bool:
        """Are products of any of its kernels less exact than those of float32?"""
        return any(step.reduced_precision for step in self.steps)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run needs, except the run's own memory."""

    inputs: tuple[Block | None, ...]
    """`None` for an input that native code does not read where it is given."""
    outputs: tuple[Block | None, ...]
    """`None` for an output that no step writes in place."""
    actions: tuple[Segment | ReferenceStep, ...]
    arena_bytes: int
    scratch_bytes: int = 0
    """What each worker needs."""
    n_slots: int = 0
    """The most operands that the kernels of a segment have, taken together: room for their
    addresses.
    """
    variables: tuple[Variable, ...] = ()
    dims: tuple[int, ...] = ()
    """The sizes of the model's dimensions, in the order in which kernels read them."""

    @property
    def is_native(self) -> bool:
        """Does native code do everything, so that a run needs nothing of what explains the
        program?
        """
        return None not in self.outputs and all(
            isinstance(action, Segment) and not action.conditional_steps for action in self.actions
        )

    @property
    def references(self) -> tuple[ReferenceStep, ...]:
        """The steps that native code does not do."""
        return tuple(
            step
            for action in self.actions
            for step in (action.conditional_steps if isinstance(action, Segment) else (action,))
        )


class HasLazyDetails:
    """Has details, which are loaded on first use."""

    __slots__ = ("_details", "_loading")

    def __init__(self, details: Details | Callable[[], Details]) -> None:
        self._details = details
        self._loading = threading.Lock()

    @property
    def details(self) -> Details:
        with self._loading:
            if not isinstance(self._details, Details):
                self._details = self._details()
            return self._details


class Program(HasLazyDetails):
    """Everything a run needs, except the run's own memory. Shared by all runs, never changed by
    one.
    """

    __slots__ = (
        "__weakref__",
        "compile_ns",
        "library",
        "packed",
        "plan",
        "template",
    )

    def __init__(
        self,
        plan: Plan,
        weights: PackedWeights,
        library: Library | None,
        details: Details | Callable[[], Details],
        template: ProgramTemplate | None = None,
    ) -> None:
        super().__init__(details)
        self.template = template
        """What programs for other sizes are made of, if the model's dimensions are open."""
        self.compile_ns = 0
        """How long it took to compile, by whoever compiled it; 0 if nobody said."""
        self.plan = plan
        self.packed = weights
        self.library = library
        """The native code; `None` when there is none, or when it is for another machine."""

    def at(self, sizes: Mapping[str, int]) -> Program:
        """The same program for other sizes of the model's dimensions, which its guards must allow.
        Code and weights are shared.
        """
        assert self.template is not None
        made = self.template.program(sizes, self.packed, self.library)
        made.compile_ns = self.compile_ns
        return made

    @property
    def weights(self) -> np.ndarray:
        """All constants that native code reads, packed now if nobody needed them before."""
        return self.packed.block

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the model's open dimensions, by name: what it was made for."""
        names = () if self.template is None else self.template.plan.dimensions
        return dict(zip(names, self.plan.dims, strict=True))

    @property
    def actions(self) -> tuple[Segment | ReferenceStep, ...]:
        return self.plan.actions

    @property
    def graph(self) -> Graph:
        return self.details.graph

    @property
    def fused(self) -> FusedGraph:
        return self.details.fused

    @property
    def steps(self) -> tuple[ProgramStep, ...]:
        return self.details.steps

    @property
    def layout(self) -> MemoryLayout:
        return self.details.layout

    @property
    def copies(self) -> tuple[Copy, ...]:
        return self.details.copies

    @property
    def units(self) -> tuple[KernelUnit, ...]:
        return self.details.units

    @property
    def memory(self) -> ArenaPlan:
        return self.layout.memory

    def release_constants(self) -> None:
        """Drop the constants that only kernels read from the graph, which keeps their types:
        `weights` holds them as kernels want them.
        """
        details = self.details if self.template is None else self.template.details
        _release_constants(details)


def _release_constants(details: Details) -> None:
    graph, layout = details.graph, details.layout
    by_reference = [graph[step.nodes[0]] for step in details.steps if not step.symbol]
    read = {
        layout.owner(ref).node
        for node in (*by_reference, *graph.results)
        for ref in node.inputs
        if ref is not None
    }
    # Guards may ask the host for their conditions.
    read |= {
        layout.owner(ref).node
        for node in graph
        if node.op == "Choose" and (ref := node.inputs[0]) is not None
    }
    for node in graph:
        if node.is_const and node.id not in read:
            node.value = None


def make_segment(
    steps: list[NativeStep],
    symbols: tuple[str, ...],
    slots: list[NativeSlot],
    scratch_bytes: int,
    first_step: int,
    conditional_steps: tuple[ReferenceStep, ...] = (),
    chains: Sequence[Chain] = (),
) -> Segment:
    """Native steps that follow each other as one plan for the run-time library. Those of the chains
    are counted from the first.
    """
    step_array = (NativeStep * len(steps))(*steps)
    slot_array = (NativeSlot * max(len(slots), 1))(*slots)
    ranges = [NativeRange(*each) for chain in chains for each in chain.ranges]
    range_array = (NativeRange * max(len(ranges), 1))(*ranges)
    firsts = itertools.accumulate((len(chain.ranges) for chain in chains), initial=0)
    chain_array = (NativeChain * max(len(chains), 1))(
        *(
            NativeChain(chain.first, chain.last, first, len(chain.ranges))
            for chain, first in zip(chains, firsts, strict=False)
        )
    )
    return Segment(
        NativePlan(
            step_array,
            slot_array,
            len(steps),
            len(slots),
            scratch_bytes,
            first_step,
            chain_array,
            range_array,
            len(chains),
        ),
        (step_array, slot_array, chain_array, range_array),
        symbols,
        conditional_steps,
        tuple(chains),
    )
