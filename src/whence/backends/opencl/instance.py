"""The device memory of one run at a time, and of the variables between runs; and the run itself.

A value lives on the device, on the host, or on both: it is copied when the other side needs it, and
every copy is noted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.backends.opencl.devices import require_pyopencl
from whence.backends.opencl.profiler import DeviceProfiler
from whence.backends.opencl.program import HostStep, LaunchStep, OpenClProgram
from whence.building.aligned_memory import empty_array
from whence.building.location import Location, MemoryRegion, written
from whence.errors import InputError
from whence.graph import Node, Ref
from whence.graph.guards import holds
from whence.graph.interpreter import evaluate_node
from whence.graph.state import fitting
from whence.ops.definition import Value
from whence.runtime.device_memory import DeviceMemory
from whence.runtime.faults import index_fault
from whence.runtime.host_arrays import copied, dense
from whence.runtime.host_steps import as_declared
from whence.runtime.state_memory import VariableMemory, filled
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.backends.opencl.backend import OpenClBackend
    from whence.building.program import Program, Variable

_FAULT = np.dtype(np.int32)


class DeviceState(VariableMemory[Any]):
    """The present value of every variable, in buffers that stay on the device between runs."""

    def __init__(self, program: Program, engine: OpenClBackend) -> None:
        self._engine = engine
        # A queue of its own: nothing of a run is on its way while the lock is held.
        self._queue = engine.queue(profiling=False)
        super().__init__(program)

    def room(self, variable: Variable) -> Any:
        return self._engine.buffer(variable.nbytes)

    def write(self, room: Any, variable: Variable, pattern: np.ndarray) -> None:
        if variable.nbytes:
            require_pyopencl().enqueue_copy(self._queue, room, filled(variable, pattern))

    def read(self, room: Any, variable: Variable) -> np.ndarray:
        array = np.empty(variable.block.shape, variable.block.dtype)
        if array.nbytes:
            require_pyopencl().enqueue_copy(self._queue, array, room)
        return array


class OpenClInstance:
    """A program with device memory of its own. Two instances of one program may run at the same
    time, one does one run at a time.
    """

    def __init__(self, program: OpenClProgram, engine: OpenClBackend) -> None:
        cl = require_pyopencl()
        self.program = program
        self.engine = engine
        plan = program.plan
        self.arena = engine.buffer(plan.arena_bytes)
        self.inputs, self.outputs = (
            [None if block is None else engine.buffer(block.nbytes) for block in blocks]
            for blocks in (plan.inputs, plan.outputs)
        )
        scratch = max((step.launch.scratch_bytes for step in program.launches), default=0)
        self.before: Sequence[Any] = ()
        self.after: Sequence[Any] = ()
        """The variables of the run that is on its way, as they were and as they will be."""
        self._given: dict[tuple[MemoryRegion, int], DeviceMemory] = {}
        """What of the run that is on its way lies in memory of the application."""
        self._bound: frozenset[tuple[MemoryRegion, int]] = frozenset()
        self._scratch = engine.buffer(scratch) if scratch else None
        self.fault = engine.buffer(_FAULT.itemsize) if program.checks else None
        """Where kernels note the number of a step that read an index outside its axis."""
        # A kernel object holds its arguments, so every step has one of its own and they are set
        # once.
        self.kernels: dict[int, Any] = {}
        for step in program.launches:
            kernel = cl.Kernel(program.built, step.launch.symbol)
            arguments: list[Any] = []
            for place in step.places:
                # Where variables lie changes from run to run.
                moves = place.region in (MemoryRegion.STATE, MemoryRegion.NEXT)
                room = self.arena if moves else self.memory(place)
                arguments += [room, np.int64(place.offset)]
            if step.launch.scratch_bytes:
                arguments.append(self._scratch)
            if step.launch.checks:
                arguments += [self.fault, _FAULT.type(step.number + 1)]
            kernel.set_args(*arguments)
            self.kernels[step.number] = kernel

    def memory(self, place: Location) -> Any:
        """The device's memory that a place is in."""
        numbered = {
            MemoryRegion.INPUT: self.inputs,
            MemoryRegion.OUTPUT: self.outputs,
            MemoryRegion.STATE: self.before,
            MemoryRegion.NEXT: self.after,
        }.get(place.region)
        if numbered is not None:
            return numbered[place.index]
        return self.arena if place.region is MemoryRegion.ARENA else self.program.device_weights

    def room(self, place: Location) -> tuple[Any, int]:
        """The memory that a place is in during this run, and how many bytes into it."""
        given = self._given.get((place.region, place.index))
        if given is not None:
            return given.buffer, given.offset + place.offset
        return self.memory(place), place.offset

    def _bind(self) -> None:
        """Set the arguments of kernels that lie in memory of the application."""
        for step in self.program.launches:
            for position, place in enumerate(step.places):
                if (place.region, place.index) in self._bound:
                    buffer, offset = self.room(place)
                    self.kernels[step.number].set_arg(2 * position, buffer)
                    self.kernels[step.number].set_arg(2 * position + 1, np.int64(offset))

    def run(
        self,
        inputs: Sequence[Value],
        queue: Any,
        profiler: DeviceProfiler | None = None,
        state: DeviceState | None = None,
        out: Sequence[DeviceMemory | None] = (),
    ) -> list[Value]:
        """The outputs for these inputs. Outputs are new arrays, or in the memory given by `out`;
        inputs are not kept. `state` is what the variables are, and has their new values afterwards;
        without it, this is a first run.
        """
        placed = [
            *((MemoryRegion.INPUT, index, value) for index, value in enumerate(inputs)),
            *((MemoryRegion.OUTPUT, index, value) for index, value in enumerate(out)),
        ]
        self._given = {
            (region, index): value
            for region, index, value in placed
            if isinstance(value, DeviceMemory) and value.nbytes
        }
        if not self._given:
            return self._run(inputs, queue, profiler, state, out)
        self._bound = frozenset(self._given)
        try:
            self._bind()
            return self._run(inputs, queue, profiler, state, out)
        finally:
            # Nothing of the application's is kept.
            self._given = {}
            self._bind()

    def _run(
        self,
        inputs: Sequence[Value],
        queue: Any,
        profiler: DeviceProfiler | None,
        state: DeviceState | None,
        out: Sequence[DeviceMemory | None],
    ) -> list[Value]:
        variables = self.program.plan.variables
        if variables:
            state = state or DeviceState(self.program, self.engine)
            self.before, self.after = state.begin(variables)
            for step in self.program.launches:
                for position, place in enumerate(step.places):
                    if place.region in (MemoryRegion.STATE, MemoryRegion.NEXT):
                        self.kernels[step.number].set_arg(2 * position, self.memory(place))
        given = [
            value if wanted is None or isinstance(value, DeviceMemory) else dense(wanted, value)
            for wanted, value in zip(self.program.plan.inputs, inputs, strict=True)
        ]
        run = _Run(self, given, queue, profiler, out)
        try:
            made = run.go()
        finally:
            # Whatever happened, nothing of this run may still be on its way when its memory is used
            # again.
            try:
                queue.finish()
            finally:
                if profiler is not None:
                    profiler.settle()
        if state is not None:
            state.finish(variables)
        return made


class _Run:
    """One run: what is on the host, and what is on the device."""

    def __init__(
        self,
        instance: OpenClInstance,
        given: Sequence[Value],
        queue: Any,
        profiler: DeviceProfiler | None,
        out: Sequence[DeviceMemory | None],
    ) -> None:
        self._cl = require_pyopencl()
        self._instance, self._program = instance, instance.program
        self._queue, self._profiler = queue, profiler
        self._host: dict[Ref, Value] = {}
        self._given = given
        self._out = out

    def go(self) -> list[Value]:
        if self._instance.fault is None:
            return self._all_steps()
        note = np.zeros((), _FAULT)
        self._copy(self._program.to_device, self._instance.fault, note, is_blocking=False)
        made = self._all_steps()
        self._copy(self._program.to_host, note, self._instance.fault, is_blocking=False).wait()
        if note:
            raise index_fault(self._program, int(note) - 1)
        return made

    def _all_steps(self) -> list[Value]:
        program = self._program
        for node, value in zip(program.graph.inputs, self._given, strict=True):
            if isinstance(value, DeviceMemory):
                if not value.nbytes:
                    self._host[node.ref()] = np.empty(value.shape, value.dtype)
                continue
            self._host[node.ref()] = value
            if node.ref() in program.read_by_device:
                self._upload(node.ref(), value)
        for action in program.sequence:
            if not all(holds(guard, self._value(guard.condition)) for guard in action.guards):
                continue
            if isinstance(action, LaunchStep):
                geometry = action.launch.geometry
                if 0 in geometry.items:
                    # Empty tensors: nothing runs, and the profile does not say that something did.
                    continue
                began = time.monotonic_ns()
                event = self._cl.enqueue_nd_range_kernel(
                    self._queue,
                    self._instance.kernels[action.number],
                    geometry.items,
                    geometry.group,
                )
                self._note(action.number, event, began)
            else:
                self._do(action)
        wanted = self._out or [None] * len(program.graph.outputs)
        return [
            self._collect(node.inputs[0]) if memory is None else self._deliver(node, memory)
            for node, memory in zip(program.graph.outputs, wanted, strict=True)
        ]

    # ---- the host's side ----

    def _do(self, step: HostStep) -> None:
        node = self._program.graph[step.node]
        values = tuple(None if ref is None else self._value(ref) for ref in node.inputs)
        if node.op == "Assign":
            self._assign(node, values[0])
            return
        began = time.monotonic_ns()
        made = evaluate_node(node, values)[: len(node.outputs)]
        if self._profiler is not None:
            self._profiler.note_host(began, time.monotonic_ns(), step.number)
        for index, value in enumerate(made):
            ref = node.ref(index)
            planned = self._program.layout.places[ref].region is not MemoryRegion.DYNAMIC
            self._host[ref] = (
                np.require(as_declared(node, index, value), requirements="C") if planned else value
            )
            if planned and (
                ref in self._program.read_by_device
                or self._program.layout.places[ref].region is MemoryRegion.NEXT
            ):
                self._upload(ref, self._host[ref])

    def _assign(self, node: Node, value: Value) -> None:
        """Copy to a variable what only the host has."""
        variable = self._program.graph.variable(str(node.attrs["variable"]))
        self._upload(
            variable.ref(), np.require(fitting(node, value, variable.type), requirements="C"), True
        )

    def _value(self, ref: Ref) -> Value:
        """A value on the host, fetched from the device if it is only there."""
        owner = self._program.layout.owner(ref)
        node = self._program.graph[owner.node]
        if node.is_const:
            value: Value = node.value
        else:
            if owner not in self._host:
                self._host[owner] = self._download(owner)
            value = self._host[owner]
        return value if ref == owner else value.reshape(self._type(ref).static_shape)

    def _collect(self, ref: Ref | None) -> Value:
        assert ref is not None
        owner = self._program.layout.owner(ref)
        if owner in self._host or self._program.graph[owner.node].is_const:
            return copied(self._value(ref))
        # Nobody else has it: what was fetched is the caller's.
        return self._value(ref)

    def _deliver(self, output: Node, memory: DeviceMemory) -> Value:
        """An output in memory of the application. Most are there already: kernels wrote them."""
        ref = output.first_input
        owner = self._program.layout.owner(ref)
        if not memory.nbytes:
            return memory.given
        if owner in self._host or self._program.graph[owner.node].is_const:
            value = np.require(self._value(ref), requirements="C")
            if (value.shape, value.dtype) != (memory.shape, memory.dtype):
                raise InputError(
                    f"output {output.name!r} is {value.dtype} of shape {list(value.shape)}, and"
                    f" out= has room for {memory.dtype} of shape {list(memory.shape)}"
                )
            event = self._copy(
                self._program.to_device,
                memory.buffer,
                value,
                dst_offset=memory.offset,
                is_blocking=False,
            )
            # The array may be nobody's but ours.
            event.wait()
            return memory.given
        buffer, offset = self._instance.room(self._program.layout.places[ref])
        if (buffer, offset) != (memory.buffer, memory.offset):
            self._copy(
                self._program.to_host,
                memory.buffer,
                buffer,
                src_offset=offset,
                dst_offset=memory.offset,
                byte_count=memory.nbytes,
            )
        return memory.given

    def _type(self, ref: Ref) -> TensorType:
        kind = self._program.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return kind

    # ---- copies ----

    def _upload(self, ref: Ref, value: Value, is_assigned: bool = False) -> None:
        place = self._program.layout.places[ref]
        place = written(place) if is_assigned else place
        if value.nbytes:
            buffer, offset = self._instance.room(place)
            to_device = self._program.to_device
            self._copy(to_device, buffer, value, dst_offset=offset, is_blocking=False)

    def _download(self, ref: Ref) -> np.ndarray:
        kind, place = self._type(ref), self._program.layout.places[ref]
        array = empty_array(kind.static_shape or (), kind.dtype.numpy)
        if array.nbytes:
            buffer, offset = self._instance.room(place)
            to_host = self._program.to_host
            self._copy(to_host, array, buffer, src_offset=offset, is_blocking=False).wait()
        return array

    def _copy(self, step: int, target: Any, source: Any, **where: Any) -> Any:
        """Give the queue a copy, which the profile has as this step."""
        began = time.monotonic_ns()
        event = self._cl.enqueue_copy(self._queue, target, source, **where)
        self._note(step, event, began)
        return event

    def _note(self, step: int, event: Any, began: int) -> None:
        if self._profiler is not None:
            self._profiler.note_event(event, began, step, is_kernel=step < self._program.to_device)
