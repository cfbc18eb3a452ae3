"""A model ready to run: numpy in, numpy out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.building.program import Program
from whence.errors import InputError, WhenceError
from whence.ops.binding import Binder, Port
from whence.plural import counted
from whence.runtime.bound_state import (
    ModelState,
    WithState,
    check_buffers,
    paired_outputs,
    writable_array,
)
from whence.runtime.device_memory import DeviceMemory
from whence.runtime.engine import Engine
from whence.runtime.hot_shapes import HotShapes
from whence.runtime.program_set import ProgramSet, Signature, Specialise
from whence.runtime.stream import Stream, check_stream
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.graph import Graph
    from whence.graph.iterations import Iterations
    from whence.ops.definition import Value
    from whence.runtime.iteration_roles import BodyRoles, IterationResults
    from whence.runtime.profiler import Profiler


class Pending:
    """A run that was submitted. `outputs` are there once its stream was waited for."""

    def __init__(self) -> None:
        self._outputs: list[Value] | None = None
        self._failure: BaseException | None = None
        self.began = self.ended = 0
        """When it was taken up and done, in nanoseconds of the monotonic clock."""

    @property
    def outputs(self) -> list[Value]:
        """What the run gave, in the order of the model's outputs. Raises what the run raised."""
        if self._failure is not None:
            raise self._failure
        if self._outputs is None:
            raise InputError("the run is not done: call stream.wait() first")
        return self._outputs


class Executable:
    """A compiled model. One with open shapes is compiled at its first call, and what was compiled
    serves calls with other sizes too, as far as it can (`compilations` says how often it could
    not).

    Any number of threads may call it at the same time. A model with state (variables that outlive a
    run) has one state, whatever stream or thread runs it: its runs take turns, each sees what the
    one before it left, and `clone` makes a model with a state of its own for another sequence of
    calls. A run that raises may leave variables that it wrote in place already: `reset` before
    going on.

        >>> model = whence.compile("model.onnx", threads=1)
        >>> model
        <Executable(x: f32[1,3,32,32]) on cpu, 1 thread, compiled 1 time, for 1 shape>
        >>> model(np.zeros((1, 3, 32, 32), np.float32)).shape
        (1, 10)
    """

    def __init__(
        self,
        inputs: Sequence[Port],
        engine: Engine,
        specialise: Specialise,
        graph: Callable[[], Graph],
        listed: Sequence[Port] = (),
        hot: Specialise | None = None,
    ) -> None:
        """`specialise` compiles for the shapes of a call and as many others as can be, `hot` for
        those of a call alone, in another thread, once much time was spent in them.
        """
        self.inputs = tuple(inputs)
        """What it takes."""
        self._listed = tuple(listed)
        """All that the file lists as inputs, where some have a default: they may be given too."""
        self._overriding: dict[frozenset[str], Executable] = {}
        self.engine = engine
        self._binder = Binder(self.inputs, engine.backend.adopt)
        self._tensors = tuple(isinstance(port.type, TensorType) for port in self.inputs)
        self._specialise = specialise
        self._graph: Graph | Callable[[], Graph] = graph
        self._hot = hot
        self._programs = ProgramSet(
            self.inputs, specialise, None if hot is None else HotShapes(hot)
        )
        self._state = ModelState(engine.backend)
        self.has_state = False
        """Is it known to have variables? Else its programs tell, when there are any."""
        self._stateful: dict[object, Executable] = {}
        """The same model with inputs as state."""
        self.with_state: WithState | None = None
        """Compiles the same model with inputs as state; set by whoever compiled it."""

    def reset(self) -> None:
        """Give the model's variables their initial values, as before its first run. Waits for a run
        that is on its way. A model without variables is as it always is.

            >>> model = whence.compile("counter.onnx", state={"total": "next"})
            >>> one = np.ones(1, np.float32)
            >>> [float(model(one)[0]) for _ in range(3)]
            [1.0, 2.0, 3.0]
            >>> model.reset()
            >>> float(model(one)[0])
            1.0
        """
        self._state.reset()

    def clone(self) -> Executable:
        """The same compiled model with a state of its own, which begins with the initial values.
        Everything else is shared.

            >>> model = whence.compile("counter.onnx", state={"total": "next"})
            >>> other, one = model.clone(), np.ones(1, np.float32)
            >>> float(model(one)[0]), float(model(one)[0]), float(other(one)[0])
            (1.0, 2.0, 1.0)
        """
        twin = Executable(
            self.inputs, self.engine, self._specialise, lambda: self.graph, self._listed
        )
        twin._programs, twin.has_state = self._programs, self.has_state
        twin.with_state = self.with_state
        return twin

    def bind(
        self, buffers: Mapping[str, Any], outputs: Mapping[str, str] | None = None
    ) -> Executable:
        """The same model with state in the caller's memory: arrays of NumPy, or anything with
        DLPack in memory of the host, by the name of the variable or input. What they hold is what
        the state is; each run changes them where they lie, by the new rows of a cache alone where a
        kernel can.

        A variable is one that the model was compiled with (`state=`). An input of a model without
        becomes one, whose next value is the output that `outputs` names for it, by default the one
        of the same name with `present` in place of `past` or `past_key_values`; it is no longer
        given, and its output no longer returned. The model is compiled for the sizes of the buffers
        then.

            cache = {name: np.zeros((1, 8, 2048, 64), np.float32) for name in names}
            model = whence.compile("decoder.onnx").bind(cache)
        """
        if not isinstance(buffers, Mapping):
            raise InputError(f"buffers are a dictionary by name, not {type(buffers).__name__}")
        arrays = {name: writable_array(name, value) for name, value in buffers.items()}
        own = {port.name for port in self.inputs}
        given = {name: array for name, array in arrays.items() if name in own}
        if given or outputs:
            if self.with_state is None:
                raise InputError("this model cannot be compiled again: compile it with state=")
            pairs = paired_outputs(list(given), [n.name for n in self.graph.outputs], outputs or {})
            shapes = {name: each.shape for name, each in given.items()}
            key = frozenset(pairs.items()), frozenset(shapes.items())
            if key not in self._stateful:
                self._stateful[key] = self.with_state(pairs, shapes)
            return self._stateful[key].bind(buffers)
        check_buffers(arrays, self._variables)
        twin = self.clone()
        twin._state = ModelState(self.engine.backend, arrays)
        return twin

    @property
    def _variables(self) -> dict[str, TensorType]:
        """What the model's variables are, by name."""
        return {
            node.name: node.type
            for node in self.graph.variables
            if isinstance(node.type, TensorType)
        }

    @property
    def state(self) -> dict[str, np.ndarray]:
        """A copy of what the model's variables are now, by name. A model that has not run yet, and
        was not compiled for known shapes, has none to show.

            >>> model = whence.compile("counter.onnx", state={"total": "next"})
            >>> _ = model(np.ones(1, np.float32))
            >>> model.state
            {'total': array([1.], dtype=float32)}
        """
        programs = self.programs
        if not programs or not programs[0].plan.variables:
            return {name: array.copy() for name, array in self._state.bound.items()}
        state = self._state.memory(programs[0])
        with state.lock:
            values: dict[str, np.ndarray] = state.values()
            return values

    @property
    def graph(self) -> Graph:
        """The model as loaded; one from the cache is loaded when first asked for."""
        with self._programs.lock:
            if callable(self._graph):
                self._graph = self._graph()
            return self._graph

    def __call__(self, /, *args: Value, **kwargs: Value) -> Value:
        """Run the model. Inputs in order, by name, or as a dictionary by name; one output is
        returned as it is, several as a tuple.

            >>> model, x = whence.compile("model.onnx"), np.zeros((1, 3, 32, 32), np.float32)
            >>> model(x).shape, model(x=x).shape, model({"x": x}).shape
            ((1, 10), (1, 10), (1, 10))
        """
        if self._listed and (overriding := self._overriding_call(args, kwargs)) is not None:
            other, given = overriding
            return other(**given)
        outputs = self._run(self._binder.call(args, kwargs), None)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __repr__(self) -> str:
        takes = ", ".join(f"{port.name}: {port.type}" for port in self.inputs)
        count, times = len(self._programs), self.compilations
        threads = counted(self.engine.threads, "thread")
        return (
            f"<Executable({takes}) on {self.engine.kind}, {threads}, compiled"
            f" {counted(times, 'time')}, for {counted(count, 'shape')}"
            f"{f', {self.specialised} of them specialised' if self.specialised else ''}>"
        )

    def _repr_html_(self) -> str:
        from whence.graph.as_html import line, table

        return line(repr(self)) + table(
            ("input", "type"), [(port.name, str(port.type)) for port in self.inputs]
        )

    def run_many(
        self, calls: Iterable[Value | Sequence[Value] | Mapping[str, Value]], *, streams: int = 0
    ) -> Iterator[Value]:
        """The outputs for each of the calls, in their order, `streams` of them running at a time
        (0: one for every core). A call is an input, a tuple of them, or a dictionary by name.

            >>> model = whence.compile("model.onnx", threads=1)
            >>> images = [np.full((1, 3, 32, 32), each, np.float32) for each in range(5)]
            >>> len([scores for scores in model.run_many(images, streams=2)])
            5

        Callers share the weights. Most is done in a second with a model compiled for one thread.
        """
        if not hasattr(streams, "__index__") or streams < 0:
            raise InputError(f"{streams} streams make no sense; 0 has one for every core")
        if self.has_state or any(program.plan.variables for program in self.programs):
            raise InputError(
                "the model has state, so its runs follow each other: call it, or call a clone() for"
                " each sequence"
            )
        from whence.codegen.target import usable_cores
        from whence.runtime.run_many import run_in_order

        return run_in_order(self._one_of_many, calls, streams or usable_cores())

    def _one_of_many(self, call: Value | Sequence[Value] | Mapping[str, Value]) -> Value:
        if isinstance(call, Mapping):
            return self(**call)
        return self(*call) if isinstance(call, tuple | list) else self(call)

    def execute(self, stream: Stream, /, *args: Value, **kwargs: Value) -> Pending:
        """Submit a run to a stream and return at once. The inputs must stay as they are until the
        stream was waited for.

        On an OpenCL engine, inputs may be in memory of its context (`pyopencl.Buffer`,
        `pyopencl.array.Array`), and so may outputs: `out` has one such for each output, or `None`
        for a new array of the host. They are used where they are, and nothing is copied. A model
        that has an input called `out` takes no such argument.

            >>> model = whence.compile("model.onnx")
            >>> stream = whence.Stream(model.engine)
            >>> runs = [model.execute(stream, np.zeros((1, 3, 32, 32), np.float32)) for _ in "ab"]
            >>> stream.wait()
            >>> [run.outputs[0].shape for run in runs]
            [(1, 10), (1, 10)]
        """
        check_stream(stream)
        out = None if any(port.name == "out" for port in self.inputs) else kwargs.pop("out", None)
        if stream.engine is not self.engine:
            raise InputError(
                "the stream belongs to another engine; make it with whence.Stream(model.engine)"
            )
        if self._listed and (overriding := self._overriding_call(args, kwargs)) is not None:
            other, given = overriding
            return other.execute(stream, **given, **({} if out is None else {"out": out}))
        inputs = self._binder.call(args, kwargs)
        pending = Pending()
        stream.submit(lambda _: self._fulfil(pending, time.monotonic_ns(), inputs, stream, out))
        return pending

    def perform(self, stream: Stream, /, *args: Value, **kwargs: Value) -> Pending:
        """A run as a stream does it, profiled if it profiles, but in this thread and at once, as
        when the model is called. Runs like this are compared: all use the program that the first
        did.
        """
        check_stream(stream)
        stream.wait()
        pending = Pending()
        inputs = self._binder.call(args, kwargs)
        self._fulfil(pending, time.monotonic_ns(), inputs, stream, is_measured=True)
        return pending

    def run_part(self, inputs: Sequence[Value], profiler: Profiler | None) -> list[Value]:
        """A run that is part of another, whose profiler notes its steps as well."""
        return self._run(
            self._binder.call(inputs, {}), None, profiler=profiler, is_measured=profiler is not None
        )

    def run_iterations(
        self,
        inputs: Sequence[Value],
        roles: BodyRoles,
        iterations: Iterations,
        profiler: Profiler | None,
    ) -> IterationResults | str:
        """All iterations of a loop whose body this is, given the inputs of the first; or why the
        engine cannot, and nothing was run.
        """
        bound = self._binder.call(inputs, {})
        prepared = self._programs.find(self._signature(bound))
        try:
            instance = prepared.free.pop()
        except IndexError:
            instance = self._instance(prepared.program)
        try:
            native = self.engine.backend.native_iterations(instance, roles)
            if isinstance(native, str):
                return native
            with nullcontext() if profiler is None else profiler.part(prepared.program):
                results: IterationResults = native.run(bound, iterations, profiler)
                return results
        except MemoryError as error:
            raise WhenceError(f"there is no memory for what a loop makes: {error}") from error
        finally:
            prepared.free.append(instance)

    def _fulfil(
        self,
        pending: Pending,
        began: int,
        inputs: Sequence[Value],
        stream: Stream,
        out: Sequence[Value] | None = None,
        *,
        is_measured: bool = False,
    ) -> None:
        pending.began = began
        try:
            pending._outputs = self._run(inputs, stream, out, is_measured=is_measured)
        except BaseException as error:
            pending._failure = error
            raise
        finally:
            pending.ended = time.monotonic_ns()

    def _overriding_call(
        self, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> tuple[Executable, dict[str, Value]] | None:
        """Of a call that gives inputs which have a default: the same model with these as inputs,
        and what it is given, by name.
        """
        if (
            len(args) == 1
            and not kwargs
            and isinstance(args[0], Mapping)
            and all(self._tensors[:1])
        ):
            args, kwargs = args[:0], args[0]
        own = [port.name for port in self.inputs]
        wanted = {port.name for port in self._listed if port.name not in own}.intersection(kwargs)
        if not wanted:
            return None
        # Whatever is wrong with the other inputs is said as always.
        self._binder.call(args, {n: value for n, value in kwargs.items() if n not in wanted})
        key = frozenset(wanted)
        with self._programs.lock:
            if key not in self._overriding:
                ports = [port for port in self._listed if port.name in {*own, *wanted}]
                other = self._overriding[key] = Executable(
                    ports, self.engine, self._specialise, lambda: self.graph, hot=self._hot
                )
                other._state = self._state
            return self._overriding[key], {**dict(zip(own, args, strict=False)), **kwargs}

    def prepare_static(self) -> Program:
        """Compile now, for a model whose input shapes are all known."""
        kinds = {p.name: p.type for p in self.inputs if isinstance(p.type, TensorType)}
        return self.prepare({name: kind.static_shape or () for name, kind in kinds.items()})

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> Program:
        """Compile now, for tensors of these shapes, by the names of the inputs."""
        return self._programs.find(
            tuple(tuple(shapes[port.name]) if port.name in shapes else None for port in self.inputs)
        ).program

    def program_for(self, inputs: Sequence[Value]) -> Program:
        """The program for inputs of these shapes, compiled on first use."""
        return self._programs.find(self._signature(inputs)).program

    def serves(self, inputs: Sequence[Value]) -> bool:
        """Can inputs of these shapes be run by what is compiled?"""
        return self._programs.serves(self._signature(inputs))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs made so far, for the shapes that were used last."""
        return self._programs.programs

    @property
    def compilations(self) -> int:
        """How often the model was compiled, now or by an earlier process. With open shapes, what is
        compiled serves other sizes too; only what its code cannot serve is compiled again.
        """
        return self._programs.compilations

    @property
    def specialised(self) -> int:
        """How many shapes were compiled for by themselves because much time was spent in them. Such
        a program replaces, between two calls, the one for open sizes; see `compile`.
        """
        return self._programs.specialised

    def _run(
        self,
        inputs: Sequence[Value],
        stream: Stream | None,
        out: Sequence[Value] | None = None,
        profiler: Profiler | None = None,
        *,
        is_measured: bool = False,
    ) -> list[Value]:
        """`is_measured`: one of several runs that are compared, which use one program."""
        programs, signature = self._programs, self._signature(inputs)
        if not is_measured:
            programs.take_specialised()
        prepared = programs.find(signature)
        program, free = prepared.program, prepared.free
        began = 0 if is_measured else programs.begin(prepared)
        try:
            instance = free.pop()
        except IndexError:
            instance = self._instance(program)
        try:
            if profiler is not None:
                with profiler.part(program):
                    return self.engine.backend.run(instance, inputs, profiler=profiler)
            if not program.plan.variables:
                return self._run_on(instance, program, inputs, stream, None, out)
            state = self._state.memory(program)
            with state.lock:
                return self._run_on(instance, program, inputs, stream, state, out)
        except MemoryError as error:
            raise WhenceError(f"there is no memory for the outputs of a run: {error}") from error
        finally:
            free.append(instance)
            programs.end(signature, prepared, began)

    def _instance(self, program: Program) -> Any:
        try:
            return self.engine.backend.instance(program)
        except MemoryError as error:
            needed = program.plan.arena_bytes
            raise WhenceError(
                f"there is no memory for a run, which needs {needed} bytes besides its outputs"
            ) from error

    def _run_on(
        self,
        instance: Any,
        program: Program,
        inputs: Sequence[Value],
        stream: Stream | None,
        state: Any,
        out: Sequence[Value] | None,
    ) -> list[Value]:
        queue, profiler = (None, None) if stream is None else (stream.queue, stream.profiler)
        if profiler is not None:
            profiler.begin(program)
        return self.engine.backend.run(
            instance, inputs, queue=queue, profiler=profiler, state=state, out=out
        )

    def _signature(self, inputs: Sequence[Value]) -> Signature:
        return tuple(
            [
                value.shape if is_tensor and isinstance(value, np.ndarray | DeviceMemory) else None
                for value, is_tensor in zip(inputs, self._tensors, strict=True)
            ]
        )
