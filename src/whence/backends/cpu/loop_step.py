"""A loop as a step of a program whose sizes are all known: its iterations read and write the
program's own memory, and Python does no more for it than for kernels.

Loops whose rows are as many as the run has iterations, or that change the order of axes, are left
to `runtime/bodies.py`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.backends.cpu.native_iterations import NativeIterations, native_iterations
from whence.building.location import Location, MemoryRegion
from whence.building.program import ReferenceStep
from whence.errors import ModelError, WhenceError
from whence.graph.display_name import display_name
from whence.graph.iterations import ITERATING, has_rows_in_order, loop_heads
from whence.runtime import native_library as native
from whence.types import TensorType, ValueType

if TYPE_CHECKING:
    from whence.backends.cpu.instance import Instance
    from whence.graph import Node, Ref
    from whence.runtime.bodies import IterationBody
    from whence.runtime.profiler import Profiler

_EVER = 1 << 62

Source = Location | np.ndarray
"""What is read: a place in the program's memory, or a constant."""


class _Result(NamedTuple):
    """A value that iterations carry, and somebody reads."""

    place: Location
    nbytes: int
    carried: int
    """Which of `BodyRoles.carried` it is; -1: every iteration hands on what it was before,"""
    initial: Source
    """which is this."""


class _Rows(NamedTuple):
    """Rows of the program's memory, one for each iteration."""

    number: int
    """As `NativeIterations.place_rows` counts."""
    place: Source
    nbytes: int
    """Of one; 0 for rows that nobody reads, which all lie in one place."""


def loop_step(instance: Instance, step: ReferenceStep) -> LoopStep | None:
    """The step as one that native code does; `None` if it is no loop, or none that it can do."""
    node = instance.program.graph[step.node]
    if node.op not in ITERATING or not has_rows_in_order(node):
        return None
    try:
        return LoopStep.found(instance, node, step.number)
    except WhenceError:
        # Whoever runs it in Python says why, if there is an iteration.
        return None


class LoopStep:
    """The iterations of a Loop or Scan, in the memory of one instance of the program around it."""

    def __init__(
        self,
        instance: Instance,
        node: Node,
        number: int,
        body: IterationBody,
        iterations: NativeIterations,
    ) -> None:
        self._instance, self._node, self._number = instance, node, number
        self._iterations = iterations
        self._body = body
        self._given: list[tuple[int, Source]] = []
        self._rows: list[_Rows] = []
        self._results: list[_Result] = []
        self._most: Source | int = _EVER
        self._goes_on: Source | None = None
        self._length: int | None = None
        """How many rows there are, where somebody reads them."""

    @classmethod
    def found(cls, instance: Instance, node: Node, number: int) -> LoopStep | None:
        program, engine = instance.program, instance.engine
        sources = [None if ref is None else _source(instance, ref) for ref in node.inputs]
        if any(
            ref is not None and source is None
            for ref, source in zip(node.inputs, sources, strict=True)
        ):
            return None
        types = [None if ref is None else program.graph.type_of(ref) for ref in node.inputs]
        found = engine.bodies(program).body(node.id)
        body = None if found is None else found.iteration_body(node, types, program.sizes)
        iterations = (
            None if body is None else native_iterations(engine.instance(body.program), body.roles)
        )
        if body is None or not isinstance(iterations, NativeIterations):
            return None
        step = cls(instance, node, number, body, iterations)
        return step if step._is_fed(sources, types) and step._has_results(sources, types) else None

    def _is_fed(self, sources: Sequence[Source | None], types: Sequence[ValueType | None]) -> bool:
        """Find what the body is given. False if it does not fit what it was compiled for."""
        roles, (first, _) = self._body.roles, loop_heads(self._node)
        heads = [*sources[:first], *[None] * (first - len(sources))]
        if first:
            wanted = (np.dtype(np.int64), np.dtype(np.bool_))
            for kind, dtype in zip(types, wanted, strict=False):
                if isinstance(kind, TensorType) and (
                    kind.dtype.numpy != dtype or not kind.elements
                ):
                    return False
            self._most, self._goes_on = _EVER if heads[0] is None else heads[0], heads[1]
        for index, place in enumerate(self._body.given):
            if place < first:
                # The body's own condition: it runs while that is true.
                if index != roles.number:
                    self._given.append((index, np.ones(1, np.bool_)))
                continue
            source, kind, block = sources[place], types[place], self._iterations.inputs[index]
            if source is None or not isinstance(kind, TensorType):
                return False
            shape = kind.static_shape or ()
            if index in roles.rows:
                self._rows.append(_Rows(roles.rows.index(index), source, block.nbytes))
                if self._most not in (_EVER, shape[0]):
                    return False
                self._most, shape = shape[0], shape[1:]
            else:
                self._given.append((index, source))
            if shape != block.shape or kind.dtype.numpy != block.dtype:
                return False
        for index, array in enumerate(self._body.dimensions, len(self._body.given)):
            self._given.append((index, array))
        return True

    def _has_results(
        self, sources: Sequence[Source | None], types: Sequence[ValueType | None]
    ) -> bool:
        """Find where results go. False if a place is not known before the run, or is for a value of
        another type: files may claim any.
        """
        node, roles, iterations = self._node, self._body.roles, self._iterations
        graph, places = self._instance.program.graph, self._instance.program.layout.places
        first, head = loop_heads(node)
        carried = {
            self._body.made[output]: which for which, (_, output) in enumerate(roles.carried)
        }
        states = len(node.bodies["body"].outputs) - head - len(roles.scanned)
        for output in range(states + len(roles.scanned)):
            is_read = output < len(node.outputs) and bool(graph.uses(node.ref(output)))
            kind = node.outputs[output] if is_read else None
            place = places[node.ref(output)] if is_read else None
            if place is not None and place.region is MemoryRegion.DYNAMIC:
                return False
            if output < states:
                initial = sources[first + output]
                if place is not None and initial is not None and isinstance(kind, TensorType):
                    if kind != types[first + output]:
                        return False
                    which = carried.get(head + output, -1)
                    self._results.append(_Result(place, kind.nbytes or 0, which, initial))
                continue
            block = iterations.outputs[roles.scanned[output - states]]
            number = len(roles.rows) + output - states
            if place is None or not isinstance(kind, TensorType):
                self._rows.append(_Rows(number, np.empty(block.shape, block.dtype), 0))
                continue
            length, *shape = kind.static_shape or ()
            if tuple(shape) != block.shape or kind.dtype.numpy != block.dtype:
                return False
            if self._length not in (None, length):
                return False
            self._length = length
            self._rows.append(_Rows(number, place, block.nbytes))
        return True

    # ---- running ----

    def run(self, profiler: Profiler | None) -> None:
        """All iterations; results are in the program's memory then. An error names the loop."""
        try:
            if profiler is None or profiler.notes_parts:
                part = nullcontext() if profiler is None else profiler.part(self._body.program)
                with part:
                    self._run(profiler)
                return
            begin = time.monotonic_ns()
            self._run(None)
            profiler.note(begin, time.monotonic_ns(), self._number)
        except WhenceError as error:
            raise type(error)(f"operator {display_name(self._node)}: {error}") from error

    def _run(self, profiler: Profiler | None) -> None:
        iterations, address = self._iterations, self._address
        most = self._most
        if not isinstance(most, int):
            most = ctypes.c_int64.from_address(address(most)).value
        if self._goes_on is not None:
            most *= ctypes.c_bool.from_address(address(self._goes_on)).value
        iterations.restart()
        for index, source in self._given:
            iterations.give(index, address(source))
        for number, place, nbytes in self._rows:
            iterations.place_rows(number, address(place), nbytes)
        limit = most if self._length is None else min(most, self._length)
        is_over = limit < 1 or iterations.advance(limit, profiler)
        done = iterations.done
        if self._length is not None and (done != self._length or (most > done and not is_over)):
            raise ModelError(
                f"it has {done} iterations or more, and the model says {self._length} rows"
            )
        for place, nbytes, carried, initial in self._results:
            made = iterations.last(carried) if carried >= 0 and done else address(initial)
            ctypes.memmove(address(place), made, nbytes)

    def _address(self, source: Source) -> int:
        if isinstance(source, np.ndarray):
            return native.address_of(source)
        return self._instance.address(source)


def _source(instance: Instance, ref: Ref) -> Source | None:
    """What an operand of the loop is, unless it has its size from the run."""
    graph, layout = instance.program.graph, instance.program.layout
    value = graph[layout.owner(ref).node].value
    if value is not None:
        return np.ascontiguousarray(value)
    place, kind = layout.places.get(ref), graph.type_of(ref)
    if place is not None:
        return None if place.region is MemoryRegion.DYNAMIC else place
    known = graph.known_value(ref)
    if known is None or not isinstance(kind, TensorType):
        return None
    # Kernels have such numbers in their code, so that no step makes them.
    return np.ascontiguousarray(known.astype(kind.dtype.numpy))
