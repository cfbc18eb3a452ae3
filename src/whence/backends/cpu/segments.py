"""Native steps that follow each other, as one call of the run-time library, and how their work is
handed to threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.building.backend import Lowered, LoweredStep
from whence.building.memory_layout import Location
from whence.building.native_code import TOGETHER, Library, NativeSlot, NativeStep
from whence.building.program import ReferenceStep, Segment, make_segment
from whence.building.program_parts import location_of, operand_locations
from whence.building.weights import Weights
from whence.graph.guards import Guard, Guards
from whence.kernels.ir import Kernel

# A work item that takes less than this is not worth waking another thread for.
_GRAIN_NS = 6_000
# A run that by this reckoning, which counts weights as far away, takes less finds the other threads
# asleep, and is over by the time they are awake.
_ALONE_NS = 400_000
_BYTES_PER_NS = 8


class Segments:
    """Puts native steps that follow each other into one segment."""

    def __init__(self, lowered: Lowered, weights: Weights, library: Library | None) -> None:
        self._lowered, self._weights, self._library = lowered, weights, library
        self._done: list[Segment | ReferenceStep] = []
        self._steps: list[NativeStep] = []
        self._slots: list[NativeSlot] = []
        self._symbols: list[str] = []
        self._conditional_steps: list[ReferenceStep] = []
        self._first = self._scratch = self.n_slots = 0
        self._work: dict[Guards, float] = {}

    def add(self, lowered: LoweredStep) -> None:
        number, step, code, guards = lowered
        symbol = "" if code is None else code.symbol
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
            self._slots += self._conditions(guards)
            self._steps.append(NativeStep(None, 1, 1, first, 0, len(guards), wanted))
            return
        kernel = step.kernel
        operands = [_slot(each) for each in operand_locations(self._lowered, step, self._weights)]
        self._slots += [*operands, *self._conditions(guards)]
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

    def _conditions(self, guards: Guards) -> list[NativeSlot]:
        return [
            _slot(location_of(self._lowered, guard.condition, self._weights)) for guard in guards
        ]

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
        self._steps, self._slots, self._symbols, self._conditional_steps = [], [], [], []
        self._scratch, self._work = 0, {}


def _slot(location: Location) -> NativeSlot:
    return NativeSlot(int(location.region), location.index, location.offset)


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
