"""A model ready to run: numpy in, numpy out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.errors import InputError
from whence.graph import Graph
from whence.graph.interpreter import bind_inputs
from whence.ops.definition import Value
from whence.runtime.engine import Engine
from whence.runtime.instance import Instance
from whence.runtime.profiler import Profiler
from whence.runtime.program import Program
from whence.runtime.stream import Stream
from whence.types import TensorType

Signature = tuple[tuple[int, ...] | None, ...]
"""The shape of each input; `None` for one that is not a tensor."""
Specialise = Callable[[Mapping[str, tuple[int, ...]]], Program]


class Pending:
    """A run that was submitted. `outputs` are there once its stream was waited for."""

    def __init__(self) -> None:
        self._outputs: list[Value] | None = None
        self._failure: BaseException | None = None

    @property
    def outputs(self) -> list[Value]:
        """What the run gave, in the order of the model's outputs. Raises what the run raised."""
        if self._failure is not None:
            raise self._failure
        if self._outputs is None:
            raise InputError("the run is not done: call stream.wait() first")
        return self._outputs


class Executable:
    """A compiled model. Shapes are fixed inside a program; a model with open shapes gets one per signature, on first use, and keeps it.

    Any number of threads may call it at the same time.
    """

    def __init__(self, graph: Graph, engine: Engine, specialise: Specialise) -> None:
        self.graph = graph
        """The model as loaded: its inputs and outputs."""
        self.engine = engine
        self._specialise = specialise
        self._programs: dict[Signature, Program] = {}
        self._free: dict[int, list[Instance]] = {}
        self._compiling = threading.Lock()
        self._lock = threading.Lock()

    def __call__(self, /, *args: Value, **kwargs: Value) -> Value:
        """Run the model. Inputs in order or by name; one output is returned as it is, several as a tuple."""
        outputs = self._run(bind_inputs(self.graph, _arguments(self.graph, args, kwargs)), None)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def execute(self, stream: Stream, /, *args: Value, **kwargs: Value) -> Pending:
        """Submit a run to a stream and return at once. The inputs must stay as they are until the stream was waited for."""
        if stream.engine is not self.engine:
            raise InputError("the stream belongs to another engine; make it with whence.Stream(model.engine)")
        inputs = bind_inputs(self.graph, _arguments(self.graph, args, kwargs))
        pending = Pending()

        def job(profiler: Profiler | None) -> None:
            try:
                pending._outputs = self._run(inputs, profiler)
            except BaseException as error:
                pending._failure = error
                raise

        stream.submit(job)
        return pending

    def prepare_static(self) -> Program:
        """Compile now, for a model whose input shapes are all known."""
        return self._program(tuple(node.type.static_shape if isinstance(node.type, TensorType) else None for node in self.graph.inputs))

    def program_for(self, inputs: Sequence[Value]) -> Program:
        """The program for inputs of these shapes, compiled on first use."""
        return self._program(tuple(tuple(value.shape) if isinstance(value, np.ndarray) else None for value in inputs))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs made so far."""
        with self._lock:
            return tuple(self._programs.values())

    def _run(self, inputs: Sequence[Value], profiler: Profiler | None) -> list[Value]:
        program = self.program_for(inputs)
        instance = self._take(program)
        try:
            if profiler is not None:
                profiler.begin(program)
            return instance.run(inputs, profiler)
        finally:
            self._give_back(instance)

    def _program(self, signature: Signature) -> Program:
        with self._lock:
            found = self._programs.get(signature)
        if found is not None:
            return found
        # Runs of other shapes go on meanwhile.
        with self._compiling:
            found = self._programs.get(signature)
            if found is None:
                shapes = {node.name: shape for node, shape in zip(self.graph.inputs, signature, strict=True) if shape is not None}
                found = self._specialise(shapes)
                found.release_constants()
                with self._lock:
                    self._programs[signature] = found
            return found

    def _take(self, program: Program) -> Instance:
        with self._lock:
            free = self._free.setdefault(id(program), [])
            if free:
                return free.pop()
        return Instance(program, self.engine)

    def _give_back(self, instance: Instance) -> None:
        with self._lock:
            self._free[id(instance.program)].append(instance)


def _arguments(graph: Graph, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Mapping[str, Value] | Sequence[Value]:
    if not kwargs:
        return args
    names = [node.name for node in graph.inputs]
    if len(args) > len(names):
        raise InputError(f"{len(args)} inputs given; the model takes {len(names)}: {', '.join(names)}")
    given = dict(zip(names, args, strict=False))
    twice = [name for name in kwargs if name in given]
    if twice:
        raise InputError(f"input '{twice[0]}' is given twice")
    return {**given, **kwargs}
