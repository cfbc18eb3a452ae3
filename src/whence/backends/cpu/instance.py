"""The memory of one run at a time, and the run itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from whence.building.aligned_memory import aligned_bytes, empty_array
from whence.building.location import MemoryRegion
from whence.building.program import Program, ReferenceStep, Segment
from whence.errors import UnsupportedError
from whence.runtime import native_library as native
from whence.runtime.faults import index_fault
from whence.runtime.host_arrays import dense
from whence.runtime.profiler import Profiler
from whence.runtime.state_memory import StateMemory
from whence.runtime.thread_choice import ThreadChoice

if TYPE_CHECKING:
    from whence.backends.cpu.backend import CpuBackend
    from whence.backends.cpu.loop_step import LoopStep
    from whence.backends.cpu.native_iterations import NativeIterations
    from whence.building.location import Location
    from whence.graph import Ref
    from whence.ops.definition import Value
    from whence.runtime.host_steps import HostSteps
    from whence.runtime.iteration_roles import BodyRoles

_NO_ARRAYS: tuple[np.ndarray, ...] = ()


class Instance:
    """A program with an arena of its own. Two instances of one program may run at the same time,
    one does one run at a time. What outlives a run is not here but in a `StateMemory`.
    """

    def __init__(self, program: Program, engine: CpuBackend) -> None:
        plan = program.plan
        if program.library is None and any(
            isinstance(action, Segment) and any(action.symbols) for action in plan.actions
        ):
            raise UnsupportedError("the program was compiled to be exported, and cannot run here")
        self.program = program
        self.engine = engine
        self._plan = plan
        if engine.toolchain.sanitize:
            from whence.building.redzones import used_ranges, watched_bytes

            self._arena = watched_bytes(plan.arena_bytes, used_ranges(program.details))
        else:
            self._arena = aligned_bytes(plan.arena_bytes)
        self._views: dict[Ref, np.ndarray] = {}
        """Values in the arena, as arrays, that reference steps read or make."""
        self._loop_steps: dict[int, LoopStep | None] = {}
        self.iterations: dict[BodyRoles, NativeIterations | str] = {}
        """What runs the iterations of a loop whose body this is, or why nothing does."""
        # Behind the inputs, what the sizes of open dimensions are.
        self._dims = np.array(plan.dims, np.int64)
        self.given, self.made = (
            native.address_array(len(plan.inputs) + bool(plan.dims)),
            native.address_array(len(plan.outputs)),
        )
        if plan.dims:
            self.given[len(plan.inputs)] = native.address_of(self._dims)
        self._pointers = native.address_array(plan.n_slots)
        self._state, self._next = (native.address_array(len(plan.variables)) for _ in range(2))
        # The arrays whose addresses these are.
        self._known_state: list[np.ndarray | None] = [None] * len(plan.variables)
        self._known_next: list[np.ndarray | None] = [None] * len(plan.variables)
        self._reads, self._writes = (
            [index for index, block in enumerate(blocks) if block is not None]
            for blocks in (plan.inputs, plan.outputs)
        )
        addresses = (
            ctypes.addressof(each)
            for each in (self.given, self.made, self._state, self._next, self._pointers)
        )
        self.memory = native.NativeMemory(
            self._arena.ctypes.data, program.weights.ctypes.data, *addresses
        )
        engine.runtime.reserve(engine.pool, plan.scratch_bytes)
        self.choice = ThreadChoice(engine.threads) if engine.chooses_threads else None

    def run(
        self,
        inputs: Sequence[Value],
        profiler: Profiler | None = None,
        state: StateMemory | None = None,
    ) -> list[Value]:
        """The outputs for these inputs. Outputs are new arrays, inputs are not kept.

        `state` is what the variables are, and has their new values afterwards; without it, this is
        a first run.
        """
        if not self._plan.variables:
            return self._run(inputs, profiler, _NO_ARRAYS, _NO_ARRAYS)
        state = state or StateMemory(self.program)
        before, after = state.begin(self._plan.variables)
        for addresses, known, arrays in (
            (self._state, self._known_state, before),
            (self._next, self._known_next, after),
        ):
            for index, array in enumerate(arrays):
                # Most variables stay where they are.
                if array is not known[index]:
                    addresses[index] = native.address_of(array)
                    known[index] = array
        made = self._run(inputs, profiler, before, after)
        state.finish(self._plan.variables)
        return made

    def _run(
        self,
        inputs: Sequence[Value],
        profiler: Profiler | None,
        before: Sequence[np.ndarray],
        after: Sequence[np.ndarray],
    ) -> list[Value]:
        plan, engine, memory = self._plan, self.engine, self.memory
        given = [
            value if wanted is None else dense(wanted, value)
            for wanted, value in zip(plan.inputs, inputs, strict=True)
        ]
        made = [
            None if wanted is None else empty_array(wanted.shape, wanted.dtype)
            for wanted in plan.outputs
        ]
        for index in self._reads:
            self.given[index] = native.address_of(given[index])
        for index in self._writes:
            self.made[index] = native.address_of(made[index])
        profile = None if profiler is None else profiler.pointer
        choice, began = self.choice, 0
        if choice is not None:
            # What a profile says is about one number of threads.
            memory.threads, began = choice.begin() if profile is None else (choice.threads, 0)
        others: HostSteps | None = None
        for action in plan.actions:
            if isinstance(action, Segment):
                steps, reached = action.plan, -1
                while (
                    reached := engine.runtime.run(steps, reached + 1, engine.pool, memory, profile)
                ) < len(action.symbols):
                    if reached <= native.FAULT:
                        raise index_fault(self.program, steps.first_step + native.FAULT - reached)
                    others = others or self._host_steps(given, made, before, after)
                    others.do(
                        next(
                            step
                            for step in action.conditional_steps
                            if step.number == steps.first_step + reached
                        ),
                        profiler,
                    )
            elif (loop := self._loop_step(action)) is not None:
                loop.run(profiler)
            else:
                others = others or self._host_steps(given, made, before, after)
                others.do(action, profiler)
        if choice is not None and profile is None:
            choice.end(began)
        if len(self._writes) == len(made):
            return made
        others = others or self._host_steps(given, made, before, after)
        return [others.collect(index) for index in range(len(made))]

    def address(self, place: Location) -> int:
        """Where a place is, in the run that is on its way."""
        blocks = {
            MemoryRegion.INPUT: self.given,
            MemoryRegion.OUTPUT: self.made,
            MemoryRegion.STATE: self._state,
            MemoryRegion.NEXT: self._next,
        }.get(place.region)
        if blocks is not None:
            return int(blocks[place.index] or 0) + place.offset
        base = self.memory.arena if place.region is MemoryRegion.ARENA else self.memory.weights
        return int(base or 0) + place.offset

    def _loop_step(self, step: ReferenceStep) -> LoopStep | None:
        if step.number not in self._loop_steps:
            from whence.backends.cpu.loop_step import loop_step

            self._loop_steps[step.number] = loop_step(self, step)
        return self._loop_steps[step.number]

    def _host_steps(
        self,
        given: Sequence[Value],
        made: Sequence[np.ndarray | None],
        before: Sequence[np.ndarray],
        after: Sequence[np.ndarray],
    ) -> HostSteps:
        # Most models are native throughout and need none of it.
        from whence.runtime.host_steps import HostSteps

        bodies = partial(self.engine.bodies, self.program)
        return HostSteps(self.program, self._arena, given, made, before, after, bodies, self._views)
