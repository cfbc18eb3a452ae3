"""The plan of a program before its sizes are known: what `plan_at` turns into the plan of one call.

Sizes in it may be expressions over the model's dimensions: how many work items a step has, how
large the values in the arena are, where in a value another begins. Nothing in it needs graphs or
kernels, so a program that comes from the cache gets the plan for new sizes without loading the
compiler.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from whence.building.arena import LARGEST, Lifetime, Planner, plan_arena
from whence.building.arena import Block as ArenaBlock
from whence.building.location import Location, MemoryRegion
from whence.building.native_code import GANG, Library, NativeSlot, NativeStep
from whence.building.program import (
    Block,
    Chain,
    Plan,
    ReferenceStep,
    Segment,
    Variable,
    make_segment,
)
from whence.errors import UnsupportedError
from whence.extent import evaluate


class WorkRates(NamedTuple):
    """How long work takes on one thread, roughly, and how much of it is worth sharing."""

    flops_per_ns: Mapping[str, float]
    """By the arithmetic unit."""
    bytes_per_ns: float
    piece_ns: float
    """What a piece of work takes that is worth handing to another thread."""
    alone_ns: float
    """A run that takes less is not worth waking other threads for."""


class StepGuard(NamedTuple):
    """A condition that a step runs under."""

    condition: Location
    value: tuple[int, int]
    """Which value the condition is: the node that makes it, and which of its outputs."""
    wanted: bool


@dataclass(frozen=True, slots=True)
class StepTemplate:
    """A step: a kernel, or an operator by its reference."""

    number: int
    symbol: str = ""
    """The kernel's function; empty for a reference step."""
    node: int = -1
    """Of a reference step: the operator."""
    tasks: int = 1
    flops: int = 0
    bytes: int = 0
    unit: str = "f32"
    """What does its arithmetic, by the name of an `ArithmeticUnit`."""
    is_gang: bool = False
    scratch_bytes: int = 0
    operands: tuple[Location, ...] = ()
    guards: tuple[StepGuard, ...] = ()

    @property
    def is_reference(self) -> bool:
        return self.node >= 0

    def work_ns(self, rates: WorkRates) -> float:
        """What it takes on one thread, roughly."""
        return self.flops / rates.flops_per_ns[self.unit] + self.bytes / rates.bytes_per_ns

    def grain(self, rates: WorkRates) -> int:
        """How many work items make a piece that is worth handing to another thread."""
        if self.is_gang:
            return GANG
        return max(1, int(rates.piece_ns / max(self.work_ns(rates) / max(self.tasks, 1), 0.01)))


@dataclass(frozen=True, slots=True)
class PlanTemplate:
    """What a run needs, except the sizes and the run's own memory."""

    inputs: tuple[Block | None, ...]
    outputs: tuple[Block | None, ...]
    steps: tuple[StepTemplate, ...]
    rates: WorkRates
    arena: tuple[ArenaBlock, ...]
    """What lies in the arena: the `index` of a place there is a number of this list. Empty where
    places in the arena are known already, and `arena_bytes` is how much they take.
    """
    arena_bytes: int = 0
    variables: tuple[Variable, ...] = ()
    dimensions: tuple[str, ...] = ()
    """In the order in which kernels get their sizes."""
    chains: tuple[Chain, ...] = ()


def dims_location(inputs: int) -> Location:
    """Where a run has the sizes of the dimensions: behind its inputs."""
    return Location(MemoryRegion.INPUT, inputs)


def plan_at(
    template: PlanTemplate,
    sizes: Mapping[str, int],
    library: Library | None,
    planner: Planner = plan_arena,
) -> Plan:
    """The plan for one set of sizes. Without a library, the code is for another machine."""
    size = _Sizes(sizes)
    arena_bytes, offsets = template.arena_bytes, (0,) * len(template.arena)
    if template.arena:
        planned = planner([[size.lifetime(each) for each in block] for block in template.arena])
        arena_bytes, offsets = planned.arena_bytes, planned.offsets
        if arena_bytes > LARGEST:
            raise UnsupportedError(f"{arena_bytes} bytes: no machine has that much memory")
    address = functools.cache(lambda symbol: None if library is None else library.address(symbol))
    steps = [size.step(step, offsets) for step in template.steps]
    actions = tuple(_actions(template, steps, address))
    segments = [action for action in actions if isinstance(action, Segment)]
    return Plan(
        inputs=tuple(size.block(block) for block in template.inputs),
        outputs=tuple(size.block(block) for block in template.outputs),
        actions=actions,
        arena_bytes=arena_bytes,
        scratch_bytes=max((step.scratch_bytes for step in steps), default=0),
        n_slots=max((segment.plan.n_slots for segment in segments), default=0),
        variables=template.variables,
        dims=tuple(sizes[name] for name in template.dimensions),
    )


class _Sizes:
    """Expressions as the numbers that they are for one set of sizes; each is computed once."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._known: dict[int, int] = {}

    def __call__(self, size: int) -> int:
        if type(size) is int:
            return size
        found = self._known.get(id(size))
        if found is None:
            found = self._known[id(size)] = evaluate(size, self._sizes)
        return found

    def block(self, block: Block | None) -> Block | None:
        return None if block is None else replace(block, shape=tuple(map(self, block.shape)))

    def lifetime(self, lifetime: Lifetime) -> Lifetime:
        return Lifetime(self(lifetime.size), lifetime.first, lifetime.last, self(lifetime.offset))

    def location(self, location: Location, arena: Sequence[int]) -> Location:
        region, index, offset = location.region, location.index, self(location.offset)
        if region is MemoryRegion.ARENA and arena:
            return Location(region, 0, arena[index] + offset)
        return Location(region, index, offset)

    def step(self, step: StepTemplate, arena: Sequence[int]) -> StepTemplate:
        return replace(
            step,
            tasks=self(step.tasks),
            flops=self(step.flops),
            bytes=self(step.bytes),
            scratch_bytes=self(step.scratch_bytes),
            operands=tuple(self.location(each, arena) for each in step.operands),
            guards=tuple(
                guard._replace(condition=self.location(guard.condition, arena))
                for guard in step.guards
            ),
        )


# ---- segments ----


def _actions(
    template: PlanTemplate,
    steps: Sequence[StepTemplate],
    address: Callable[[str], int | None],
) -> Iterator[Segment | ReferenceStep]:
    """Native steps that follow each other as one call of the run-time library. Most runs may never
    take the path of a reference step under a guard: it does not end the call.
    """
    for is_apart, found in itertools.groupby(steps, lambda s: s.is_reference and not s.guards):
        if is_apart:
            yield from (ReferenceStep(step.number, step.node) for step in found)
        else:
            yield _segment(template, list(found), address)


def _segment(
    template: PlanTemplate,
    steps: Sequence[StepTemplate],
    address: Callable[[str], int | None],
) -> Segment:
    rates = template.rates
    native: list[NativeStep] = []
    slots: list[NativeSlot] = []
    work: dict[tuple[_Condition, ...], float] = {}
    for step in steps:
        first = len(slots)
        slots += [NativeSlot.of(each) for each in step.operands]
        slots += [NativeSlot.of(guard.condition) for guard in step.guards]
        wanted = sum(guard.wanted << bit for bit, guard in enumerate(step.guards))
        at = None if step.is_reference else address(step.symbol)
        grain = 1 if step.is_reference else step.grain(rates)
        native.append(
            NativeStep(at, step.tasks, grain, first, len(step.operands), len(step.guards), wanted)
        )
        if not step.is_reference:
            under = tuple((guard.value, guard.wanted) for guard in step.guards)
            work[under] = work.get(under, 0.0) + step.work_ns(rates)
    if longest_ns(work) < rates.alone_ns:
        for each in native:
            each.grain = each.tasks
    return make_segment(
        native,
        tuple(step.symbol for step in steps),
        slots,
        max((step.scratch_bytes for step in steps), default=0),
        steps[0].number,
        tuple(ReferenceStep(step.number, step.node) for step in steps if step.is_reference),
        [
            _counted_from(steps[0].number, chain)
            for chain in template.chains
            if steps[0].number <= chain.first <= steps[-1].number
        ],
    )


def _counted_from(first: int, chain: Chain) -> Chain:
    ranges = (each._replace(step=each.step - first) for each in chain.ranges)
    return Chain(chain.first - first, chain.last - first, tuple(ranges))


_Condition = tuple[tuple[int, int], bool]


def longest_ns(work: Mapping[tuple[_Condition, ...], float]) -> float:
    """What a run takes that takes the longer side of every choice, given what the steps under the
    same guards take.
    """
    below = dict(work)
    for depth in range(max(map(len, work), default=0), 0, -1):
        sides = {guards: ns for guards, ns in below.items() if len(guards) == depth}
        for outer, value in dict.fromkeys((guards[:-1], guards[-1][0]) for guards in sides):
            longer = max(sides.get((*outer, (value, wanted)), 0.0) for wanted in (False, True))
            below[outer] = below.get(outer, 0.0) + longer
    return below.get((), 0.0)
