"""The memory of one run at a time, and the run itself."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.building.memory_layout import Location, Region, written
from whence.building.program import Block, Program, ReferenceStep, Segment
from whence.building.redzones import poison_gaps
from whence.building.weights import aligned_bytes
from whence.errors import InputError, ModelError, UnsupportedError
from whence.ops.definition import Value
from whence.runtime import native_library as native
from whence.runtime.engine import CpuEngine
from whence.runtime.faults import index_fault
from whence.runtime.profiler import Profiler
from whence.runtime.state_memory import StateMemory
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.graph import Node, Ref

_NO_ARRAYS: tuple[np.ndarray, ...] = ()


class Instance:
    """A program with an arena of its own. Two instances of one program may run at the same time,
    one does one run at a time. What outlives a run is not here but in a `StateMemory`.
    """

    def __init__(self, program: Program, engine: CpuEngine) -> None:
        plan = program.plan
        if program.library is None and any(
            isinstance(action, Segment) and any(action.symbols) for action in plan.actions
        ):
            raise UnsupportedError("the program was compiled to be exported, and cannot run here")
        self.program = program
        self.engine = engine
        self._plan = plan
        self._arena = aligned_bytes(plan.arena_bytes)
        if program.used is not None:
            poison_gaps(self._arena, program.used)
        self._given, self._made = (
            native.room_for(len(plan.inputs)),
            native.room_for(len(plan.outputs)),
        )
        self._pointers = native.room_for(plan.n_slots)
        self._state, self._next = (native.room_for(len(plan.variables)) for _ in range(2))
        self._reads, self._writes = (
            [index for index, block in enumerate(blocks) if block is not None]
            for blocks in (plan.inputs, plan.outputs)
        )
        addresses = (
            ctypes.addressof(each)
            for each in (self._given, self._made, self._state, self._next, self._pointers)
        )
        self._memory = native.Memory(
            self._arena.ctypes.data, program.weights.ctypes.data, *addresses
        )
        engine.runtime.reserve(engine.pool, plan.scratch_bytes)

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
        for addresses, arrays in ((self._state, before), (self._next, after)):
            for index, array in enumerate(arrays):
                addresses[index] = native.address_of(array)
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
        plan, engine, memory = self._plan, self.engine, self._memory
        given = [
            value if wanted is None else dense(wanted, value)
            for wanted, value in zip(plan.inputs, inputs, strict=True)
        ]
        made = [
            None if wanted is None else np.empty(wanted.shape, wanted.dtype)
            for wanted in plan.outputs
        ]
        for index in self._reads:
            self._given[index] = native.address_of(given[index])
        for index in self._writes:
            self._made[index] = native.address_of(made[index])
        profile = None if profiler is None else profiler.pointer
        others: _Others | None = None
        for action in plan.actions:
            if isinstance(action, Segment):
                steps, reached = action.plan, -1
                while (
                    reached := engine.runtime.run(steps, reached + 1, engine.pool, memory, profile)
                ) < len(action.symbols):
                    if reached <= native.FAULT:
                        raise index_fault(self.program, steps.first_step + native.FAULT - reached)
                    others = others or _Others(
                        self.program, engine, self._arena, given, made, before, after
                    )
                    others.do(
                        next(
                            step
                            for step in action.conditional_steps
                            if step.number == steps.first_step + reached
                        ),
                        profiler,
                    )
            else:
                others = others or _Others(
                    self.program, engine, self._arena, given, made, before, after
                )
                others.do(action, profiler)
        if len(self._writes) == len(made):
            return made
        others = others or _Others(self.program, engine, self._arena, given, made, before, after)
        return [others.collect(index) for index in range(len(made))]


def dense(wanted: Block, value: Value) -> np.ndarray:
    """The value as native code reads it: of exactly the size it expects, dense, no element
    straddling its alignment.
    """
    if (
        not isinstance(value, np.ndarray)
        or value.dtype != wanted.dtype
        or value.shape != wanted.shape
    ):
        found = (
            f"{value.dtype}{list(value.shape)}"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise InputError(
            f"input {wanted.name!r} is {found}, and was compiled for"
            f" {wanted.dtype}{list(wanted.shape)}"
        )
    # Nearly all arrays are, and can be written as well: one look tells.
    return value if value.flags.carray else np.require(value, requirements=("C", "A"))


class _Others:
    """What of a run native code does not do: reference steps, and the values that are not in the
    arena.
    """

    def __init__(
        self,
        program: Program,
        engine: CpuEngine,
        arena: np.ndarray,
        given: Sequence[Value],
        made: Sequence[np.ndarray | None],
        before: Sequence[np.ndarray],
        after: Sequence[np.ndarray],
    ) -> None:
        self.program = program
        self.engine = engine
        self.arena = arena
        self.given = given
        self.made = made
        """Room for the outputs that steps write in place; `None` for one that is collected
        afterwards.
        """
        self.before, self.after = before, after
        """The variables as they were, and as they will be."""
        self.dynamic: dict[Ref, Value] = {}

    # ---- reference steps ----

    def do(self, step: ReferenceStep, profiler: Profiler | None) -> None:
        begin = time.monotonic_ns()
        self._evaluate(step)
        if profiler is not None:
            profiler.note(begin, time.monotonic_ns(), step.number)

    def _evaluate(self, step: ReferenceStep) -> None:
        # A program that is native throughout never needs the operators' definitions, which take
        # longer to load than most models take to run.
        from whence.graph.interpreter import evaluate_node

        node = self.program.graph[step.node]
        values = tuple(None if ref is None else self._value(ref) for ref in node.inputs)
        if node.op == "Assign":
            self._assign(node, values[0])
            return
        run_nested = self.engine.bodies(self.program).runner(node) if node.bodies else None
        for index, value in enumerate(
            evaluate_node(node, values, run_nested=run_nested)[: len(node.outputs)]
        ):
            ref = node.ref(index)
            place = self.program.layout.places[ref]
            if place.region is Region.DYNAMIC:
                self.dynamic[ref] = self._kept(value)
            else:
                self._memory(ref, place)[...] = as_declared(node, index, value)

    def _assign(self, node: Node, value: Value) -> None:
        from whence.graph.state import fitting

        variable = self.program.graph.variable(str(node.attrs["variable"]))
        place = written(self.program.layout.places[variable.ref()])
        self._memory(variable.ref(), place)[...] = fitting(node, value, variable.type)

    def _value(self, ref: Ref) -> Value:
        owner = self.program.layout.owner(ref)
        node = self.program.graph[owner.node]
        value: Value
        if node.is_const:
            value = node.value
        else:
            place = self.program.layout.places[ref]
            if place.region is not Region.DYNAMIC:
                return self._memory(ref, place)
            value = self.given[place.index] if node.op == "Input" else self.dynamic[owner]
        return value if ref == owner else value.reshape(self._type(ref).static_shape)

    def _memory(self, ref: Ref, place: Location) -> np.ndarray:
        """The planned memory of a value, as an array."""
        kind = self._type(ref)
        block: Value = self.arena
        if place.region is not Region.ARENA:
            block = self._blocks(place.region)[place.index]
            assert block is not None
            block = block.reshape(-1).view(np.uint8)
        size = (kind.elements or 0) * kind.dtype.numpy.itemsize
        array: np.ndarray = block[place.offset : place.offset + size].view(kind.dtype.numpy)
        return array.reshape(kind.static_shape or ())

    def _blocks(self, region: Region) -> Sequence[Value]:
        """What a place in this region is in, by number."""
        return {
            Region.INPUT: self.given,
            Region.OUTPUT: self.made,
            Region.STATE: self.before,
            Region.NEXT: self.after,
        }[region]

    def _type(self, ref: Ref) -> TensorType:
        kind = self.program.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return kind

    def _kept(self, value: Value) -> Value:
        """A value that does not change when later steps reuse the arena: references hand out views
        of what they are given.
        """
        if isinstance(value, np.ndarray):
            reused = (self.arena, *self.before, *self.after)
            return (
                value.copy() if any(np.may_share_memory(value, each) for each in reused) else value
            )
        if isinstance(value, list):
            return [self._kept(item) for item in value]
        return value

    # ---- outputs ----

    def collect(self, index: int) -> Value:
        made = self.made[index]
        if made is not None:
            return made
        (ref,) = self.program.graph.outputs[index].inputs
        assert ref is not None
        return copied(self._value(ref))


def as_declared(node: Node, index: int, value: Value) -> np.ndarray:
    """The result of a reference step, which must be what the graph says it is: memory was planned
    for nothing else.
    """
    kind, array = node.outputs[index], np.asarray(value)
    if (
        not isinstance(kind, TensorType)
        or array.dtype != kind.dtype.numpy
        or array.shape != kind.static_shape
    ):
        # As above: only what goes wrong needs graphs here.
        from whence.graph.display_name import display_name

        raise ModelError(
            f"operator {display_name(node)} made {TensorType.of(array)} where the model says {kind}"
        )
    return array


def copied(value: Value) -> Value:
    if isinstance(value, np.ndarray):
        return value.copy()
    return [copied(item) for item in value] if isinstance(value, list) else value
