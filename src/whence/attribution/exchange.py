"""A program whose steps can be exchanged for variants of themselves, while it runs as a whole.

A variant meets what its step meets in the model: operands where they lie, and caches as the steps
before it left them. When it is done, the step that it stood in for runs after all. So the rest of
the model reads what it always reads, whatever the variant wrote: no value becomes infinite, no
index leaves its range, no loop runs longer.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.attribution.input_buffers import copy_elsewhere
from whence.attribution.variants import Variant
from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import grain, work_rates
from whence.backends.cpu.instance import Instance
from whence.backends.cpu.step_timing import ordinary_numbers
from whence.building.aligned_memory import aligned_bytes
from whence.building.location import MemoryRegion
from whence.building.native_code import Library, NativePlan, NativeSlot, NativeStep
from whence.building.packed_weights import Packing
from whence.building.program import Block, Program, ReferenceStep, Segment, make_segment
from whence.graph import Ref
from whence.kernels.ir import Buffer
from whence.ops.definition import Value

# For what is timed, and for what runs after a variant: a step that it spared, and the step that it
# stood in for.
_PLACES = 3
# Places in memory that values lie in, one after another.
_HELD, _MOST_HELD_BYTES = 16, 1 << 28


@dataclass(frozen=True, slots=True)
class Offer:
    """A variant that may stand in for a step."""

    step: int
    symbol: str
    """Its native function."""
    variant: Variant
    whole: Variant
    """The step itself, operand by operand."""
    spared: int | None = None
    """A step of the same segment that only prepares what the variant does not read, and has no
    variants itself: it runs after the variant.

    What it reads must still be there then.
    """


class Exchange:
    """The program, its inputs, and the variants on offer, whose functions are in `library`."""

    def __init__(
        self,
        program: Program,
        engine: CpuBackend,
        inputs: Sequence[Value],
        library: Library,
        offers: Sequence[Offer],
    ) -> None:
        self._engine, self._library = engine, library
        self._n_steps = len(program.steps)
        self.outputs: list[Value] = []
        """What the last run gave."""
        self._profiler = engine.profiler()
        self._profiler.notes_parts = False
        self._homes: dict[int, NativePlan] = {}
        self._originals: dict[int, NativeStep] = {}
        self._variants: list[NativeStep] = [NativeStep()] * len(offers)
        self._offers = offers
        self._rates = work_rates(engine.toolchain)
        operands = _Operands(program, inputs)
        actions = tuple(self._with_variants(action, operands) for action in program.actions)
        plan = dataclasses.replace(
            program.plan,
            inputs=tuple(operands.blocks),
            actions=actions,
            scratch_bytes=max(
                [
                    program.plan.scratch_bytes,
                    *(offer.variant.kernel.scratch_bytes for offer in offers),
                ]
            ),
            n_slots=max(
                (int(action.plan.n_slots) for action in actions if isinstance(action, Segment)),
                default=0,
            ),
        )
        self._given = operands.values
        size = plan.arena_bytes + sum(
            value.nbytes for value in self._given if isinstance(value, np.ndarray)
        )
        self._held: deque[tuple[list[Value], Instance]] = deque(
            maxlen=max(1, min(_HELD, _MOST_HELD_BYTES // max(1, size)))
        )
        self._program = Program(plan, program.packed, program.library, program.details)
        self.move()

    def move(self) -> None:
        """Let all values, inputs too, lie elsewhere from now on: where they happen to lie decides
        how they meet in the caches. Where they lay is held for a while: what is freed is given out
        again, and they would lie in two places in turns.
        """
        self._given = [copy_elsewhere(value) for value in self._given]
        self._instance = Instance(self._program, self._engine)
        self._held.append((self._given, self._instance))

    def run(self, variants: Sequence[int] = ()) -> np.ndarray:
        """Run once, with these variants in place of their steps. Nanoseconds of each step, or of
        its variant; 0 if it did not run.
        """
        replaced: list[int] = []
        for number in variants:
            offer = self._offers[number]
            later = [offer.step] if offer.spared is None else [offer.spared, offer.step]
            for step in later:
                self._set(step)
            self._set(
                offer.step, self._variants[number], *(self._originals[step] for step in later)
            )
            replaced += later
        try:
            return self._timed()
        finally:
            for step in replaced:
                self._set(step, self._originals[step])

    def _set(self, step: int, *running: NativeStep) -> None:
        """What runs in the places of a step; nothing where nothing is given."""
        plan, idle = self._homes[step], [NativeStep()] * (_PLACES - len(running))
        first = _PLACES * step - int(plan.first_step)
        for place, each in enumerate((*running, *idle), first):
            plan.steps[place] = each

    def _timed(self) -> np.ndarray:
        profiler = self._profiler
        profiler.reset()
        profiler.begin(self._program)
        # Nobody holds the results of earlier runs, so that the next ones may get their memory, as
        # in a profile.
        self.outputs.clear()
        self.outputs.extend(self._instance.run(self._given, profiler))
        samples = profiler.samples()
        samples = samples[samples["step"] % _PLACES == 0]
        times = np.zeros(self._n_steps, np.int64)
        times[samples["step"] // _PLACES] = samples["end"] - samples["begin"]
        return times

    def _with_variants(
        self, action: Segment | ReferenceStep, operands: _Operands
    ) -> Segment | ReferenceStep:
        """The same steps, each with places behind it where nothing runs as long as nothing stands
        in for it.
        """
        if isinstance(action, ReferenceStep):
            return _moved(action)
        old = action.plan
        first = int(old.first_step)
        steps = [NativeStep.from_buffer_copy(old.steps[index]) for index in range(old.n_steps)]
        slots = [NativeSlot.from_buffer_copy(old.slots[index]) for index in range(old.n_slots)]
        scratch = int(old.scratch_bytes)
        for number, offer in enumerate(self._offers):
            if not first <= offer.step < first + len(steps):
                continue
            own, kernel = steps[offer.step - first], offer.variant.kernel
            # What is too small to be shared out among threads stays so.
            pieces = kernel.tasks if own.grain >= own.tasks else grain(kernel, self._rates)
            address, guards = self._library.address(offer.symbol), own.first_slot + own.n_slots
            self._variants[number] = NativeStep(
                address,
                kernel.tasks,
                pieces,
                len(slots),
                len(kernel.params),
                own.n_guards,
                own.wanted,
            )
            slots += operands.slots(offer.variant, offer.whole, slots[own.first_slot : guards])
            slots += slots[guards : guards + own.n_guards]
            scratch = max(scratch, kernel.scratch_bytes)
        room = _PLACES - 1
        made = make_segment(
            [each for step in steps for each in (step, *[NativeStep()] * room)],
            tuple(each for symbol in action.symbols for each in (symbol, *[""] * room)),
            slots,
            scratch,
            _PLACES * first,
            tuple(_moved(each) for each in action.conditional_steps),
        )
        self._originals.update((first + index, step) for index, step in enumerate(steps))
        self._homes.update((first + index, made.plan) for index in range(len(steps)))
        return made


class _Operands:
    """Where the operands of variants lie: where their steps have them, else in further inputs of
    the program.
    """

    def __init__(self, program: Program, inputs: Sequence[Value]) -> None:
        self.blocks: list[Block | None] = list(program.plan.inputs)
        self.values: list[Value] = list(inputs)
        self._rng = np.random.default_rng(0)

    def slots(
        self, variant: Variant, whole: Variant, own: Sequence[NativeSlot]
    ) -> list[NativeSlot]:
        """Of a variant of the step `whole`, whose operands lie in its `own` slots."""
        known = dict(zip(_operands(whole), own, strict=True))
        return [
            known.get((ref, packing))
            or self._add_slot(self._filling(variant, ref, packing, buffer))
            for (ref, packing), buffer in zip(
                _operands(variant), variant.kernel.params, strict=True
            )
        ]

    def _filling(
        self, variant: Variant, ref: Ref, packing: Packing | None, buffer: Buffer
    ) -> np.ndarray:
        value = variant.consts.get(ref)
        if value is None:
            # What is made and read within a step lies nowhere.
            return ordinary_numbers(buffer, self._rng)
        return value if packing is None else packing(value)

    def _add_slot(self, value: np.ndarray) -> NativeSlot:
        block = aligned_bytes(value.nbytes).view(value.dtype)
        block[:] = np.ascontiguousarray(value).reshape(-1)
        self.blocks.append(Block("operand", block.dtype, block.shape))
        self.values.append(block)
        return NativeSlot(int(MemoryRegion.INPUT), len(self.values) - 1, 0)


def _moved(step: ReferenceStep) -> ReferenceStep:
    """In the first of its places."""
    return ReferenceStep(_PLACES * step.number, step.node)


def _operands(variant: Variant) -> list[tuple[Ref, Packing | None]]:
    """Each operand of a kernel, and how it was packed for it."""
    return [
        (ref, variant.kernel.packings.get(position))
        for position, ref in enumerate((*variant.inputs, *variant.outputs))
    ]
