"""The iterations of a loop in native code: conditions, carried values and rows are pointers that
change from iteration to iteration, and no iteration comes back to Python.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.building.aligned_memory import empty_array
from whence.building.location import Location, MemoryRegion
from whence.building.native_code import NativeSlot
from whence.building.program import Block, Segment, make_segment
from whence.graph.iterations import Iterations
from whence.runtime import native_library as native
from whence.runtime.faults import index_fault
from whence.runtime.host_arrays import dense
from whence.runtime.iteration_roles import BodyRoles, IterationResults
from whence.runtime.profiler import Profiler
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.backends.cpu.instance import Instance
    from whence.building.program import Program
    from whence.ops.definition import Value

_SLICE_NS = 50_000_000
"""Native code comes back after so long, so that a loop can be interrupted."""
_ROWS_BYTES = 1 << 20
"""Room for rows is made for so much at first, however many iterations a file claims, and doubled.
"""


def native_iterations(instance: Instance, roles: BodyRoles) -> NativeIterations | str:
    """What runs the iterations of a loop, or why nothing does, so that each iteration comes back to
    Python.
    """
    program, plan = instance.program, instance.program.plan
    if plan.references:
        step = program.steps[plan.references[0].number]
        ops = ", ".join(member.op for member in step.members)
        return f"its body comes back to Python for {ops}: {step.why_reference}"
    inputs = [block for block in plan.inputs if block is not None]
    outputs = [block for block in _output_blocks(program) if block is not None]
    if len(inputs) < len(plan.inputs) or len(outputs) < len(plan.outputs) or plan.variables:
        return "its body takes or makes what has no place before the run"
    for taken, made in roles.carried:
        before, after = inputs[taken], outputs[made]
        if before.shape != after.shape or before.dtype != after.dtype:
            return f"it carries {list(before.shape)}, and {list(after.shape)} after an iteration"
    if roles.number >= 0 and inputs[roles.number].dtype != np.int64:
        return "its iterations are not counted in 64 bits"
    if roles.condition >= 0:
        condition = outputs[roles.condition]
        if condition.dtype != np.bool_ or not condition.nbytes:
            return "its condition is not true or false"
    return NativeIterations(instance, roles, inputs, outputs)


class NativeIterations:
    """The iterations of a loop whose body is a program, in the memory of one instance of it."""

    def __init__(
        self,
        instance: Instance,
        roles: BodyRoles,
        inputs: Sequence[Block],
        outputs: Sequence[Block],
    ) -> None:
        program = instance.program
        self._instance = instance
        self._roles = roles
        self.inputs, self.outputs = inputs, outputs
        segments = [action for action in program.plan.actions if isinstance(action, Segment)]
        # A body that only hands on what it is given has none.
        (self._segment,) = segments or [make_segment([], (), [], 0, 0)]
        self._carried = (native.Carried * max(len(roles.carried), 1))(
            *(native.Carried(taken, made) for taken, made in roles.carried)
        )
        is_output = [0] * len(roles.rows) + [1] * len(roles.scanned)
        self._rows = (native.NativeRows * max(len(is_output), 1))(
            *(
                native.NativeRows(None, 0, kind, index)
                for kind, index in zip(is_output, (*roles.rows, *roles.scanned), strict=True)
            )
        )
        copies = _copies(program)
        self._copies = (native.OutputCopy * max(len(copies), 1))(*copies)
        # What iterations carry, each twice.
        self._buffers = [_pair(outputs[made]) for _, made in roles.carried]
        self._carry(self._buffers)
        if roles.condition >= 0:
            block = outputs[roles.condition]
            self._goes_on = np.ones(block.shape, block.dtype)
            instance.made[roles.condition] = native.address_of(self._goes_on)
        self._loop = native.NativeLoop(
            ctypes.pointer(self._segment.plan),
            ctypes.pointer(instance.memory),
            ctypes.addressof(instance.given),
            ctypes.addressof(instance.made),
            self._carried,
            self._rows,
            self._copies,
            len(roles.carried),
            len(is_output),
            len(copies),
            roles.condition,
            0,
        )

    # ---- iterations in the memory of whoever asks for them ----

    @property
    def done(self) -> int:
        """How many iterations there were."""
        return int(self._loop.iteration)

    def restart(self) -> None:
        """The next iteration is the first. What it is given has to be said again."""
        self._loop.iteration = 0
        if self._roles.number >= 0:
            number = ctypes.addressof(self._loop) + native.NativeLoop.iteration.offset
            self._instance.given[self._roles.number] = number

    def give(self, index: int, address: int) -> None:
        """Where an input lies, in the first iteration if it is carried, else in all of them."""
        self._instance.given[index] = address

    def place_rows(self, number: int, first: int, stride: int) -> None:
        """Where the first of rows lies, and how far it is to the next. Those of `BodyRoles.rows`
        are numbered before those of `BodyRoles.scanned`.
        """
        rows = self._rows[number]
        rows.first, rows.stride = first, stride

    def last(self, carried: int) -> int:
        """Where the last iteration left what it carries."""
        return native.address_of(self._buffers[carried][(self.done - 1) & 1])

    def advance(self, last: int, profiler: Profiler | None) -> bool:
        """Iterations until `last` of them are done, or there is no other: True then."""
        instance, loop = self._instance, self._loop
        choice, began = instance.choice, 0
        if choice is not None:
            threads, began = choice.begin() if profiler is None else (choice.threads, 0)
            instance.memory.threads = threads
        runtime, pool = instance.engine.runtime, instance.engine.pool
        pointer = None if profiler is None else profiler.pointer
        reached = native.GOES_ON
        while reached == native.GOES_ON and loop.iteration < last:
            until = time.monotonic_ns() + _SLICE_NS
            reached = runtime.run_iterations(loop, last, until, pool, pointer)
        if reached <= native.FAULT:
            number = self._segment.plan.first_step + native.FAULT - reached
            raise index_fault(instance.program, number)
        if choice is not None and profiler is None:
            choice.end(began)
        return reached == native.IS_OVER

    def _carry(self, buffers: Sequence[Sequence[np.ndarray]]) -> None:
        for carried, pair in zip(self._carried, buffers, strict=False):
            carried.buffers[:] = [native.address_of(each) for each in pair]

    # ---- iterations on arrays ----

    def run(
        self, inputs: Sequence[Value], iterations: Iterations, profiler: Profiler | None
    ) -> IterationResults:
        """All iterations, at least one; `inputs` are those of the first."""
        roles = self._roles
        given = [dense(block, each) for block, each in zip(self.inputs, inputs, strict=True)]
        for index, value in enumerate(given):
            self.give(index, native.address_of(value))
        self.restart()
        rows = [np.require(each, requirements=("C", "A")) for each in iterations.rows]
        for number, row in enumerate(rows):
            self.place_rows(number, native.address_of(row), row[0].nbytes)
        # The caller keeps what the last iteration carries.
        buffers = [_pair(self.outputs[made]) for _, made in roles.carried]
        self._carry(buffers)
        scanned = self._scanned(iterations.most, profiler)
        return IterationResults([pair[(self.done - 1) & 1] for pair in buffers], scanned)

    def _scanned(self, most: int | None, profiler: Profiler | None) -> list[np.ndarray]:
        """Iterations until they are over; the rows that they made."""
        blocks = [self.outputs[index] for index in self._roles.scanned]
        room = _capacity(blocks, most)
        scanned = [empty_array((room, *each.shape), each.dtype) for each in blocks]
        while True:
            for number, made in enumerate(scanned, len(self._roles.rows)):
                self.place_rows(number, native.address_of(made), made[0].nbytes)
            if self.advance(room, profiler) or room == most:
                return [each[: self.done] for each in scanned]
            room = 2 * room if most is None else min(2 * room, most)
            scanned = [_grown(each, room) for each in scanned]


def _pair(block: Block) -> list[np.ndarray]:
    return [empty_array(block.shape, block.dtype) for _ in range(2)]


def _capacity(blocks: Sequence[Block], most: int | None) -> int:
    """Iterations that there is room for rows of, at first."""
    row = max((each.nbytes for each in blocks), default=1)
    room = max(_ROWS_BYTES // max(row, 1), 1)
    return room if most is None else min(room, most)


def _grown(rows: np.ndarray, room: int) -> np.ndarray:
    larger = empty_array((room, *rows.shape[1:]), rows.dtype)
    larger[: len(rows)] = rows
    return larger


def _output_blocks(program: Program) -> list[Block | None]:
    """What each output is, those among them that no step writes in place; `None` for one that is
    not in planned memory.
    """
    planned = {copy.output for copy in program.copies}
    graph = program.graph
    blocks = list(program.plan.outputs)
    for index, output in enumerate(graph.outputs):
        (ref,) = output.inputs
        if blocks[index] is None and index in planned and ref is not None:
            kind = graph.type_of(ref)
            assert isinstance(kind, TensorType)
            blocks[index] = Block(output.name, kind.dtype.numpy, kind.static_shape or ())
    return blocks


def _copies(program: Program) -> list[native.OutputCopy]:
    return [
        native.OutputCopy(
            NativeSlot.of(_source(program, copy.output, copy.source)), copy.output, copy.size
        )
        for copy in program.copies
    ]


def _source(program: Program, output: int, known: Location) -> Location:
    """Where an output lies that is copied. Places in the arena depend on the sizes of the call,
    those of constants do not.
    """
    ref = program.graph.outputs[output].first_input
    return known if known.region is MemoryRegion.WEIGHTS else program.layout.places[ref]
