"""The memory of one run at a time, and the run itself."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.errors import InputError, ModelError, UnsupportedError
from whence.graph import Graph, Node, Ref
from whence.graph.interpreter import evaluate_node
from whence.ops.definition import Value
from whence.runtime.engine import Engine
from whence.runtime.layout import Place, Region
from whence.runtime.profiler import Profiler
from whence.runtime.program import Program, ReferenceStep, Segment
from whence.runtime.weights import aligned_bytes
from whence.types import TensorType


@dataclass(frozen=True, slots=True)
class _Array:
    """An array that native code reads or writes."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class Instance:
    """A program with an arena of its own. Two instances of one program may run at the same time, one does one run at a time."""

    def __init__(self, program: Program, engine: Engine) -> None:
        if program.native_steps and program.library is None:
            raise UnsupportedError("the program was compiled to be exported, and cannot run here")
        self.program = program
        self.engine = engine
        self._arena = aligned_bytes(program.memory.arena_bytes)
        self._pointers = (ctypes.c_void_p * max(program.n_slots, 1))()
        places = program.layout.places
        self._inputs = [
            _array(program.graph, node.name, node.ref()) if places[node.ref()].region is Region.INPUT else None for node in program.graph.inputs
        ]
        self._outputs = [
            _array(program.graph, node.name, ref) if ref is not None and places.get(ref) == Place(Region.OUTPUT, index) else None
            for index, node in enumerate(program.graph.outputs)
            for ref in node.inputs
        ]
        engine.runtime.reserve(engine.pool, program.scratch_bytes)

    def run(self, inputs: Sequence[Value], profiler: Profiler | None = None) -> list[Value]:
        """The outputs for these inputs. Outputs are new arrays, inputs are not kept."""
        given = [value if wanted is None else _dense(wanted, value) for wanted, value in zip(self._inputs, inputs, strict=True)]
        made = [None if wanted is None else np.empty(wanted.shape, wanted.dtype) for wanted in self._outputs]
        return _Run(self.program, self._arena, given, made).go(self.engine, self._pointers, profiler)


def _array(graph: Graph, name: str, ref: Ref) -> _Array:
    kind = graph.type_of(ref)
    assert isinstance(kind, TensorType)
    assert kind.static_shape is not None
    return _Array(name, kind.dtype.numpy, kind.static_shape)


def _dense(wanted: _Array, value: Value) -> np.ndarray:
    """The value as native code reads it: of exactly the size it expects, dense, no element straddling its alignment."""
    if not isinstance(value, np.ndarray) or value.dtype != wanted.dtype or value.shape != wanted.shape:
        found = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"input {wanted.name!r} is {found}, and was compiled for {wanted.dtype}{list(wanted.shape)}")
    return np.require(value, requirements=("C", "A"))


class _Run:
    """One run: the values that are not in the arena."""

    def __init__(self, program: Program, arena: np.ndarray, given: Sequence[Value], made: Sequence[np.ndarray | None]) -> None:
        self.program = program
        self.arena = arena
        self.given = given
        self.made = made
        """Room for the outputs that steps write in place; `None` for one that is collected afterwards."""
        self.dynamic: dict[Ref, Value] = {}

    def go(self, engine: Engine, pointers: object, profiler: Profiler | None) -> list[Value]:
        given, made = _addresses(self.given), _addresses(self.made)
        profile = None if profiler is None else profiler.pointer
        weights = self.program.weights.ctypes.data
        for action in self.program.actions:
            if isinstance(action, Segment):
                engine.runtime.run(action.plan, engine.pool, self.arena.ctypes.data, weights, given, made, pointers, profile)
            else:
                begin = time.monotonic_ns()
                self._do(action)
                if profiler is not None:
                    profiler.note(begin, time.monotonic_ns(), action.number)
        return [self._collect(index) for index in range(len(self.made))]

    # ---- reference steps ----

    def _do(self, step: ReferenceStep) -> None:
        node = step.node
        values = tuple(None if ref is None else self._value(ref) for ref in node.inputs)
        for index, value in enumerate(evaluate_node(node, values)[: len(node.outputs)]):
            ref = node.ref(index)
            place = self.program.layout.places[ref]
            if place.region is Region.DYNAMIC:
                self.dynamic[ref] = self._kept(value)
            else:
                self._memory(ref, place)[...] = _as_declared(node, index, value)

    def _value(self, ref: Ref) -> Value:
        owner = self.program.layout.owner(ref)
        node = self.program.graph[owner.node]
        value: Value
        if node.is_const:
            value = node.value
        else:
            place = self.program.layout.places[owner]
            if node.op == "Input":
                value = self.given[place.index]
            elif place.region is Region.DYNAMIC:
                value = self.dynamic[owner]
            else:
                return self._memory(ref, place)
        return value if ref == owner else value.reshape(self._type(ref).static_shape)

    def _memory(self, ref: Ref, place: Place) -> np.ndarray:
        """The planned memory of a value that a step makes, as an array."""
        kind = self._type(ref)
        if place.region is Region.OUTPUT:
            output = self.made[place.index]
            assert output is not None
            return output.reshape(kind.static_shape or ())
        size = (kind.elements or 0) * kind.dtype.numpy.itemsize
        return self.arena[place.offset : place.offset + size].view(kind.dtype.numpy).reshape(kind.static_shape or ())

    def _type(self, ref: Ref) -> TensorType:
        kind = self.program.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return kind

    def _kept(self, value: Value) -> Value:
        """A value that does not change when later steps reuse the arena: references hand out views of what they are given."""
        if isinstance(value, np.ndarray):
            return value.copy() if np.may_share_memory(value, self.arena) else value
        if isinstance(value, list):
            return [self._kept(item) for item in value]
        return value

    # ---- outputs ----

    def _collect(self, index: int) -> Value:
        made = self.made[index]
        if made is not None:
            return made
        (ref,) = self.program.graph.outputs[index].inputs
        assert ref is not None
        return _copied(self._value(ref))


def _as_declared(node: Node, index: int, value: Value) -> np.ndarray:
    """The result of a reference step, which must be what the graph says it is: memory was planned for nothing else."""
    kind, array = node.outputs[index], np.asarray(value)
    if not isinstance(kind, TensorType) or array.dtype != kind.dtype.numpy or array.shape != kind.static_shape:
        raise ModelError(f"operator '{node.name}' ({node.op}) made {TensorType.of(array)} where the model says {kind}")
    return array


def _copied(value: Value) -> Value:
    if isinstance(value, np.ndarray):
        return value.copy()
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _addresses(values: Sequence[Value]) -> object:
    pointers = [value.ctypes.data if isinstance(value, np.ndarray) and value.dtype != object else None for value in values]
    return (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
