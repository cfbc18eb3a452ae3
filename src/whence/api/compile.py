"""Compiling a model: a graph, or a file, which is compiled once and then starts from the cache."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.api.files import (
    Dims,
    Shapes,
    StatePairs,
    check_graph_argument,
    load,
    shapes_with,
    sized,
)
from whence.errors import InputError, ModelError, UnsupportedError
from whence.extent import is_symbolic
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.building.backend import CacheIdentity, Progress
    from whence.building.model_cache import CachedModel, Interface
    from whence.building.program import Program
    from whence.codegen.digest import FileDigest
    from whence.graph import Graph
    from whence.ops.binding import Port
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable


_WANTED = "what is compiled is a path or a graph, as whence.load gives it"
NO_STATE: StatePairs = MappingProxyType({})


def compile_model(
    model: str | Path | Graph | Any,
    args: Sequence[Any] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    state: StatePairs | None = None,
    fusion: str = "dominator",
    tune: bool = False,
    precise: bool = False,
    specialise: bool = False,
    progress: Progress | None = None,
) -> Executable:
    """A model ready to run. `threads` 0 is as many as turn out to be fastest, up to one for every
    core. A model with open shapes is compiled at its first call, and again only for sizes that what
    was compiled cannot serve. `shapes` fixes them by input, `dims` by the names of dimensions, as
    `{"batch": 4}`; `specialise` compiles for the sizes of each call by themselves.

    `precise` leaves out the processor's matrix units, whose float32 products are less exact: an
    error of 4e-6 of a layer's largest output where
    float32 has 1.4e-6. Without it, they are used where the model's outputs change by less than 3e-5
    of the largest.
    `tune` times candidates for its kernels on this machine, which takes minutes, and remembers the
    fastest: later compilations of any model
    use what is remembered. The model itself may be a path, a loaded graph, which is left as it is,
    or whatever `load` takes. A module of PyTorch is given with example inputs, `args` and `kwargs`,
    and with `dynamic_shapes` where sizes are open, all as `torch.export.export` takes them.
    `state` keeps values with the model from call to call, as `load` says.
    A file that was not compiled before is compiled by another process, which leaves nothing of the
    compiler in this one, unless this one has it
    already, or `progress` is to be told of it.

        >>> model = whence.compile("model.onnx")
        >>> model(np.zeros((1, 3, 32, 32), np.float32)).shape
        (1, 10)
    """
    if not isinstance(model, str | Path):
        from whence.interop.models import from_object

        found = from_object(model, args, kwargs, dynamic_shapes, shapes)
        if found is not None:
            compiled = compile_model(
                found.graph,
                threads=threads,
                engine=engine,
                shapes=shapes,
                dims=dims,
                state=state,
                fusion=fusion,
                tune=tune,
                precise=precise,
                specialise=specialise,
                progress=progress,
            )
            return found.finish(compiled)
    from whence.codegen.digest import FileDigest

    if precise and engine is not None:
        raise InputError("an engine is precise or not when it is made: Engine(precise=True)")
    if dims and not isinstance(model, str | Path):
        check_graph_argument(model, _WANTED)
        shapes = shapes_with(model, dims, shapes)
    options = CompileOptions(shapes or {}, fusion, tune, progress, specialise, state or {})
    if not isinstance(model, str | Path):
        check_graph_argument(model, _WANTED)
        if shapes:
            model = sized(model.copy(), shapes)
        if state:
            from whence.graph.bind_state import bind_state

            model = bind_state(model.copy(), state)
        engine = _engine(engine, threads, precise)
        return _rebound(_compile_graph(model, engine, options), model, engine, options)
    # The file is hashed while the engine starts.
    digest = FileDigest(Path(model))
    engine = _engine(engine, threads, precise)
    identity = engine.backend.cache_identity()
    if identity is None:
        graph = load(model, shapes=shapes, dims=dims, state=state)
        return _rebound(_compile_graph(graph, engine, options), graph, engine, options)
    if dims:
        options = options._replace(shapes=_file_shapes(digest, identity, dims, options))
    # A process that has the compiler would only wait for another to load it too; progress and
    # timings are had only here.
    has_compiler = "whence.building.build" in sys.modules
    executable = compile_file(
        digest,
        engine,
        identity,
        options,
        in_subprocess=not has_compiler and progress is None and not tune,
    )
    return _rebound(executable, model, engine, options)


def _rebound(
    executable: Executable, model: str | Path | Graph, engine: Engine, options: CompileOptions
) -> Executable:
    """The executable, which knows how to compile its model with inputs as state."""

    def with_state(state: StatePairs, shapes: Shapes) -> Executable:
        return compile_model(
            model,
            engine=engine,
            shapes={**options.shapes, **shapes},
            state={**options.state, **state} if isinstance(model, str | Path) else state,
            fusion=options.fusion,
            specialise=options.specialise,
        )

    executable.with_state = with_state
    return executable


def _file_shapes(
    digest: FileDigest, identity: CacheIdentity, dims: Dims, options: CompileOptions
) -> Shapes:
    """The shapes of a file's inputs that the sizes of its dimensions fix. What it takes is in the
    cache from the first time on.
    """
    from whence.building.model_cache import CachedModel
    from whence.ops.named_dimensions import sized_inputs

    cached = CachedModel(digest, identity, {}, options.fusion)
    found = cached.interface()
    if found is not None:
        return sized_inputs(found.inputs, dims, options.shapes)
    graph = load(digest.path)
    shapes = shapes_with(graph, dims, options.shapes)
    cached.note_files(graph)
    for node in graph:
        if node.is_const:
            node.value = None
    if cached.is_unchanged():
        cached.store_interface(graph)
    return shapes


CallShapes = Mapping[str, Sequence[int]]
"""Of the inputs of a call."""


class CompileOptions(NamedTuple):
    """How a model is compiled, besides for which engine."""

    shapes: Shapes
    """Of inputs that the file leaves open."""
    fusion: str = "dominator"
    tune: bool = False
    progress: Progress | None = None
    specialise: bool = False
    """For the sizes of each call, not for all that the model leaves open."""
    state: StatePairs = NO_STATE


def _opened(
    ports: Sequence[Port],
    inputs: CallShapes,
    engine: Engine,
    options: CompileOptions,
    closed: Collection[str] = (),
) -> CallShapes:
    """The shapes of a call, with the model's dimensions in place of sizes that it leaves open, if
    the engine can run what is compiled for that; those of `closed` are numbers.
    """
    from whence.ops.binding import Port
    from whence.ops.open_dimensions import open_dimensions

    if options.specialise or not engine.backend.opens_dimensions:
        return inputs
    opened = open_dimensions(ports, inputs)[1]
    if not closed:
        return opened
    fixed = [
        Port(name, replace(kind, shape=_closed(opened[name], inputs[name], closed)))
        if name in opened and isinstance(kind, TensorType)
        else Port(name, kind)
        for name, kind in ports
    ]
    return open_dimensions(fixed, inputs)[1]


def _closed(
    opened: Sequence[int], given: Sequence[int], closed: Collection[str]
) -> tuple[int | str, ...]:
    """What an input declares when these dimensions are numbers."""
    return tuple(
        size if not is_symbolic(dim) or str(dim) in closed else str(dim)
        for dim, size in zip(opened, given, strict=True)
    )


def _build_open(
    opened: Callable[[Collection[str]], CallShapes], build: Callable[[CallShapes], Program]
) -> tuple[Program, CallShapes, frozenset[str]]:
    """The program for as many sizes as can stay open; what it was built for, and the names of the
    dimensions that had to be numbers. `opened` gives the shapes with some of them closed.
    """
    from whence.building.build import PinnedSizesError

    closed: frozenset[str] = frozenset()
    while True:
        # Opened anew each time: dimensions remember what was asked about them.
        shapes = opened(closed)
        try:
            return build(shapes), shapes, closed
        except PinnedSizesError as error:
            closed |= error.names


def _engine(engine: Engine | None, threads: int, precise: bool) -> Engine:
    from whence.runtime.engine import Engine

    if engine is None:
        return Engine(threads=threads, precise=precise)
    if not isinstance(engine, Engine):
        raise InputError(f"an engine is made with whence.Engine(), not {type(engine).__name__}")
    return engine


def _compile_graph(model: Graph, engine: Engine, options: CompileOptions) -> Executable:
    from whence.api.prepare import is_static
    from whence.ops.binding import Port
    from whence.passes.shapes.propagate_types import fix_input_shapes
    from whence.runtime.executable import Executable

    ports = [Port(node.name, node.type) for node in model.inputs]

    def specialise(inputs: CallShapes) -> Program:
        def build(shapes: CallShapes) -> Program:
            return _build(fix_input_shapes(model.copy(), shapes), engine, options)

        return _build_open(partial(_opened, ports, inputs, engine, options), build)[0]

    executable = Executable(ports, engine, _explaining(specialise, lambda: model), lambda: model)
    if is_static(model):
        executable.prepare_static()
    return executable


def _explaining(
    specialise: Callable[[CallShapes], Program], read: Callable[[], Graph]
) -> Callable[[CallShapes], Program]:
    """As `specialise`; what does not work with the sizes of a call names the input, the dimension
    and a size that works. `read` gives the model with its sizes open.
    """

    def explained(inputs: CallShapes) -> Program:
        try:
            return specialise(inputs)
        except (ModelError, UnsupportedError) as error:
            from whence.building.prepare import check_sizes
            from whence.passes.shapes.working_sizes import explain_sizes

            found = explain_sizes(read(), inputs, error, check_sizes)
            if found is None:
                raise
            raise found from error

    return explained


def compile_file(
    digest: FileDigest,
    engine: Engine,
    identity: CacheIdentity,
    options: CompileOptions,
    *,
    in_subprocess: bool = False,
) -> Executable:
    """A model file as it was compiled before, or compiled now. With `in_subprocess`, another process
    does it: here, the compiler would take 30 MB for as long as this process lives.
    """
    from whence.building.model_cache import CachedModel
    from whence.runtime.executable import Executable

    cached = CachedModel(
        digest,
        identity,
        options.shapes,
        options.fusion,
        state=options.state,
        # Whoever asks for checks after every pass wants the passes to run.
        enabled=os.environ.get("WHENCE_CHECK", "0") == "0",
    )
    model = _ModelFile(cached, engine, options, identity.options if in_subprocess else None)
    interface = model.interface()
    explaining = _explaining(model.program, model.read_again)
    executable = Executable(interface.inputs, engine, explaining, interface.graph, interface.listed)
    if interface.is_static:
        executable.prepare_static()
    model.finish()
    return executable


class _ModelFile:
    """A model file and its programs: those in the cache, else made by another process, else here."""

    def __init__(
        self,
        cached: CachedModel,
        engine: Engine,
        options: CompileOptions,
        elsewhere: Mapping[str, Any] | None,
    ) -> None:
        self._cached, self._engine, self._options = cached, engine, options
        self._elsewhere = elsewhere
        """What opens the engine in another process; `None` where all is done here, and from when on
        another process could not do it.
        """
        self._inputs: Sequence[Port] = ()
        self._declared: CallShapes | None = None
        """The shapes of the inputs where all are known."""
        self._fresh: Graph | None = None
        """The model as it was read, until its programs are made."""

    def interface(self) -> Interface:
        """What the model takes; it is read only if the cache does not know."""
        from whence.building.model_cache import Interface

        found = self._cached.interface()
        if found is None and self._compiled_elsewhere({}):
            found = self._cached.interface()
        if found is None:
            self._fresh = self._load(self._options.shapes)
            self._cached.note_files(self._fresh)
            found = Interface.of(self._fresh)
        self._inputs = found.listed or found.inputs
        self._declared = found.shapes if found.is_static else None
        return found

    def program(self, inputs: CallShapes) -> Program:
        """The program for inputs of these shapes."""
        opened = _opened(self._inputs, inputs, self._engine, self._options)
        if not self._options.tune and (found := self._stored(opened, inputs)) is not None:
            return found
        if self._compiled_elsewhere(inputs) and (found := self._stored(opened, inputs)) is not None:
            return found
        program, shapes, closed = _build_open(
            partial(_opened, self._inputs, inputs, self._engine, self._options),
            lambda shapes: _build(self._graph(shapes), self._engine, self._options),
        )
        if self._cached.is_unchanged():
            if closed:
                self._cached.store_closed(opened, sorted(closed))
            self._cached.store_program(shapes, program, self._number(shapes))
        elif self._fresh is None or inputs != self._declared:
            raise ModelError(
                f"'{self._cached.path}' has changed since it was compiled; compile it again"
            )
        return program

    def _stored(self, opened: CallShapes, inputs: CallShapes) -> Program | None:
        """What was compiled before and serves inputs of these shapes."""
        opened = self._stored_as(opened, inputs)
        for number in itertools.count():
            program = self._cached.program(opened, number)
            if program is None or program.template is None:
                return program
            sizes = program.template.sizes_for(inputs)
            if sizes is not None:
                return program.at(sizes)
        return None

    def _stored_as(self, opened: CallShapes, inputs: CallShapes) -> CallShapes:
        """The shapes that programs for these are stored under."""
        closed = self._cached.closed(opened)
        return _opened(self._inputs, inputs, self._engine, self._options, closed)

    def _number(self, opened: CallShapes) -> int:
        """How many programs were stored for shapes that are open like this: the next one's."""
        if self._options.tune or not any(map(is_symbolic, itertools.chain(*opened.values()))):
            return 0
        return next(each for each in itertools.count() if not self._cached.has(opened, each))

    def finish(self) -> None:
        """The programs that are made at once are made: let go of the model as it was read, and store
        what it takes.
        """
        from whence.runtime.freed_memory import return_freed_memory

        fresh, self._fresh = self._fresh, None
        if fresh is None:
            return
        # Nobody else holds this graph, and programs have the constants in a form of their own.
        for node in fresh:
            if node.is_const:
                node.value = None
        return_freed_memory()
        if self._cached.is_unchanged():
            self._cached.store_interface(fresh)

    def _graph(self, inputs: CallShapes) -> Graph:
        shapes = self._options.shapes
        if self._declared is None or inputs != self._declared:
            # Reading again infers every type from the shapes given, nested graphs included.
            return self._load({**shapes, **inputs})
        return self._fresh.copy() if self._fresh is not None else self._load(shapes)

    def read_again(self) -> Graph:
        """The model with all sizes open that the file leaves open, and with its constants."""
        return self._load({})

    def _load(self, shapes: Shapes) -> Graph:
        return load(self._cached.path, shapes=shapes, state=self._options.state)

    def _compiled_elsewhere(self, inputs: CallShapes) -> bool:
        """Is the model in the cache now, by another process? Once one could not do it, all is done
        here.
        """
        from whence.building.subprocess_call import call_in_subprocess

        opened = _opened(self._inputs, inputs, self._engine, self._options)
        shapes = self._stored_as(opened, inputs)
        if self._elsewhere is None or not self._cached.can_store(shapes):
            self._elsewhere = None
            return False
        engine, options = self._engine, self._options
        if not call_in_subprocess(
            _compile_for_cache,
            self._cached.path,
            (engine.kind, engine.index, self._elsewhere),
            options.shapes,
            options.fusion,
            inputs,
            options.specialise,
            dict(options.state),
        ):
            self._elsewhere = None
        return self._elsewhere is not None


def _compile_for_cache(
    path: Path,
    device: tuple[str, int, Mapping[str, Any]],
    shapes: Shapes,
    fusion: str,
    inputs: CallShapes,
    specialise: bool,
    state: StatePairs,
) -> None:
    """Compile a model file for whoever starts it next; for inputs of these shapes, if it leaves
    them open and they are known.
    """
    from whence.codegen.digest import FileDigest
    from whence.runtime.engine import Engine

    kind, index, opened = device
    engine = Engine(kind, index, **opened)
    identity = engine.backend.cache_identity()
    assert identity is not None
    options = CompileOptions(shapes, fusion, specialise=specialise, state=state)
    executable = compile_file(FileDigest(path), engine, identity, options)
    if inputs:
        executable.prepare(inputs)


def _build(graph: Graph, engine: Engine, options: CompileOptions) -> Program:
    from whence.building.prepare import prepare_and_build
    from whence.runtime.freed_memory import return_freed_memory

    program = prepare_and_build(
        graph,
        engine.backend,
        fusion=options.fusion,
        tune=options.tune,
        progress=options.progress,
    )
    return_freed_memory()
    return program
