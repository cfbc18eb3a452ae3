"""Steps that run by the reference implementation of their operator, in the host's memory, and the
values between them and kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.building.location import Location, MemoryRegion, written
from whence.building.program import Program, ReferenceStep
from whence.errors import ModelError
from whence.runtime.host_arrays import copied, dense
from whence.runtime.profiler import Profiler
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.graph import Node, Ref
    from whence.ops.definition import Value
    from whence.runtime.bodies import Bodies


class HostSteps:
    """What of a run kernels do not do: reference steps, and the values that are not in the arena.

    `bodies` gives what is compiled of nested graphs; without it, they are interpreted. `views` are
    values in the arena and constants, for those who run more than once in the same.
    """

    def __init__(
        self,
        program: Program,
        arena: np.ndarray,
        given: Sequence[Value],
        made: Sequence[np.ndarray | None],
        before: Sequence[np.ndarray] = (),
        after: Sequence[np.ndarray] = (),
        bodies: Callable[[], Bodies] | None = None,
        views: dict[Ref, np.ndarray] | None = None,
    ) -> None:
        self.program = program
        details = program.details
        self._graph, self._layout = details.graph, details.layout
        self._views = {} if views is None else views
        self._bodies = bodies
        self.arena = arena
        self.given = given
        self.made = made
        """Room for outputs that steps write in place; `None` for those collected afterwards."""
        self.before, self.after = before, after
        """The variables as they were, and as they will be."""
        self.dynamic: dict[Ref, Value] = {}

    @classmethod
    def for_run(cls, program: Program, arena: np.ndarray, inputs: Sequence[Value]) -> HostSteps:
        """Of a run in the host's memory: inputs as kernels read them, and room for outputs."""
        given = [
            value if block is None else dense(block, value)
            for block, value in zip(program.plan.inputs, inputs, strict=True)
        ]
        made = [
            None if block is None else np.empty(block.shape, block.dtype)
            for block in program.plan.outputs
        ]
        return cls(program, arena, given, made)

    def array(self, place: Location, dtype: np.dtype[Any], elements: int) -> np.ndarray:
        """So many elements of planned memory, as kernels get them: flat."""
        block: Value = self.program.weights if place.region is MemoryRegion.WEIGHTS else self.arena
        if place.region not in (MemoryRegion.ARENA, MemoryRegion.WEIGHTS):
            block = self._blocks(place.region)[place.index]
            assert block is not None
            block = block.reshape(-1).view(np.uint8)
        array: np.ndarray = block[place.offset : place.offset + elements * dtype.itemsize]
        return array.view(dtype)

    # ---- reference steps ----

    def do(self, step: ReferenceStep, profiler: Profiler | None) -> None:
        begin = time.monotonic_ns()
        written = 0 if profiler is None else profiler.written
        self._evaluate(step, profiler)
        if profiler is None:
            return
        end, others = time.monotonic_ns(), profiler.since(written)
        if others is None:
            profiler.note(begin, end, step.number)
        elif self._graph[step.node].op != "Continuation":
            # The iterations of a loop took samples of their own: it has what was before and after
            # them.
            profiler.note(begin, others[0], step.number)
            profiler.note(others[1], end, step.number)

    def _evaluate(self, step: ReferenceStep, profiler: Profiler | None) -> None:
        # A program that is native throughout never needs the operators' definitions, which take
        # longer to load than most models take to run.
        from whence.graph.interpreter import evaluate_node

        graph, layout = self._graph, self._layout
        node = graph[step.node]
        values = tuple(None if ref is None else self._value(ref) for ref in node.inputs)
        if node.op == "Assign":
            self._assign(node, values[0])
            return
        if node.bodies and self._bodies is not None:
            bodies, sizes = self._bodies(), self.program.sizes
            made = evaluate_node(
                node,
                values,
                run_nested=bodies.runner(node, sizes, profiler),
                run_iterations=lambda each: bodies.run_iterations(each, sizes, profiler),
            )
        else:
            made = evaluate_node(node, values)
        for index, value in enumerate(made[: len(node.outputs)]):
            ref = node.ref(index)
            place = layout.places[ref]
            # Loops hand on more than is read, and weights among it.
            if node.bodies and not graph.uses(ref):
                continue
            if place.region is MemoryRegion.DYNAMIC:
                self.dynamic[ref] = self._own_copy(value)
            else:
                self._memory(ref, place)[...] = as_declared(node, index, value)

    def _assign(self, node: Node, value: Value) -> None:
        from whence.graph.state import fitting

        variable = self._graph.variable(str(node.attrs["variable"]))
        place = written(self._layout.places[variable.ref()])
        self._memory(variable.ref(), place)[...] = fitting(node, value, variable.type)

    def _value(self, ref: Ref) -> Value:
        if (found := self._views.get(ref)) is not None:
            return found
        owner = self._layout.owner(ref)
        node = self._graph[owner.node]
        value: Value
        is_fixed = node.is_const
        if is_fixed:
            value = node.value
        elif node.op == "DimensionValue" and ref not in self._layout.places:
            # Kernels have such numbers in their code, so that no step makes them.
            from whence.graph.interpreter import evaluate_node

            is_fixed = True
            (value,) = evaluate_node(node, ())
        else:
            place = self._layout.places[ref]
            if place.region is not MemoryRegion.DYNAMIC:
                return self._memory(ref, place)
            value = self.given[place.index] if node.op == "Input" else self.dynamic[owner]
        value = value if ref == owner else value.reshape(self._type(ref).static_shape)
        if is_fixed and isinstance(value, np.ndarray):
            self._views[ref] = value
        return value

    def _memory(self, ref: Ref, place: Location) -> np.ndarray:
        """The planned memory of a value, as an array."""
        if (found := self._views.get(ref)) is not None:
            return found
        kind = self._type(ref)
        array = self.array(place, kind.dtype.numpy, kind.elements or 0)
        array = array.reshape(kind.static_shape or ())
        if place.region is MemoryRegion.ARENA:
            self._views[ref] = array
        return array

    def _blocks(self, region: MemoryRegion) -> Sequence[Value]:
        """What a place in this region is in, by number."""
        return {
            MemoryRegion.INPUT: self.given,
            MemoryRegion.OUTPUT: self.made,
            MemoryRegion.STATE: self.before,
            MemoryRegion.NEXT: self.after,
        }[region]

    def _type(self, ref: Ref) -> TensorType:
        kind = self._graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return kind

    def _own_copy(self, value: Value) -> Value:
        """A value that does not change when later steps reuse the arena: references hand out views
        of what they are given.
        """
        if isinstance(value, np.ndarray):
            reused = (self.arena, *self.before, *self.after)
            return (
                value.copy() if any(np.may_share_memory(value, each) for each in reused) else value
            )
        if isinstance(value, list):
            return [self._own_copy(item) for item in value]
        return value

    # ---- outputs ----

    def results(self) -> list[Value]:
        return [self.collect(index) for index in range(len(self.made))]

    def collect(self, index: int) -> Value:
        made = self.made[index]
        if made is not None:
            return made
        ref = self._graph.outputs[index].first_input
        return copied(self._value(ref))


def as_declared(node: Node, index: int, value: Value) -> np.ndarray:
    """The result of a reference step, of the type that memory was planned for."""
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
