"""Compiling a model file: once, by a process of its own, and from then on it starts from the
cache.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.api.files import Dims, Shapes, load, shapes_with
from whence.api.open_sizes import CompileOptions, build, explaining_sizes, opened_shapes
from whence.building.build_open import CallShapes, build_open
from whence.errors import ModelError
from whence.extent import is_symbolic

if TYPE_CHECKING:
    from whence.building.backend import CacheIdentity
    from whence.building.model_cache import CachedModel, Interface
    from whence.building.program import Program
    from whence.building.subprocess_call import Subprocess
    from whence.codegen.digest import FileDigest
    from whence.codegen.expected_entries import WrittenEntry
    from whence.graph import Graph
    from whence.ops.binding import Port
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable


# What nobody waits for gets the time that others leave.
_BACKGROUND = 10


def compile_file(
    digest: FileDigest,
    engine: Engine,
    identity: CacheIdentity,
    options: CompileOptions,
    *,
    in_subprocess: bool = False,
    process: Subprocess | None = None,
) -> Executable:
    """A model file as it was compiled before, or compiled now. With `in_subprocess`, another
    process does it: here, the compiler would take 30 MB for as long as this process lives. That may
    be one that was started before.
    """
    from whence.building.model_cache import CachedModel
    from whence.runtime.executable import Executable

    cached = CachedModel(
        digest,
        identity,
        options.shapes,
        options.fusion,
        state=options.state,
        only_last=options.only_last,
        # Whoever asks for checks after every pass wants the passes to run.
        enabled=os.environ.get("WHENCE_CHECK", "0") == "0",
    )
    model = _ModelFile(
        cached, engine, options, identity.options if in_subprocess else None, process
    )
    interface = model.interface()
    executable = Executable(
        interface.inputs,
        engine,
        explaining_sizes(model.program, model.read_again),
        interface.graph,
        interface.listed,
        model.for_hot_shapes(identity.options) if options.hot else None,
    )
    executable.has_state = interface.has_state
    if interface.is_static:
        executable.prepare_static()
    model.finish()
    return executable


class _ModelFile:
    """A model file and its programs: those in the cache, else made by another process, else
    here.
    """

    def __init__(
        self,
        cached: CachedModel,
        engine: Engine,
        options: CompileOptions,
        elsewhere: Mapping[str, Any] | None,
        process: Subprocess | None = None,
    ) -> None:
        self._cached, self._engine, self._options = cached, engine, options
        self._process = process
        self._elsewhere = elsewhere
        """What opens the engine in another process; `None` where all is done here, and from when on
        another process could not do it.
        """
        self._inputs: Sequence[Port] = ()
        self._declared: CallShapes | None = None
        """The shapes of the inputs where all are known."""
        self._fresh: Graph | None = None
        """The model as it was read, until its programs are made."""
        self._niceness = 0
        """How far behind others the process stands that compiles."""

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
        if not self._options.tune and (found := self._stored(inputs)) is not None:
            return found
        if self._compiled_elsewhere(inputs) and (found := self._stored(inputs)) is not None:
            return found
        program, shapes, closed = build_open(
            partial(self._opened, inputs),
            lambda shapes: build(
                self._graph(shapes), self._engine, self._options, self._cached.store_weights
            ),
        )
        if self._cached.is_unchanged():
            if closed:
                self._cached.store_closed(self._opened(inputs), sorted(closed))
            self._cached.store_program(shapes, program, self._number(shapes))
        elif self._fresh is None or inputs != self._declared:
            raise ModelError(
                f"'{self._cached.path}' has changed since it was compiled; compile it again"
            )
        return program

    def for_hot_shapes(self, elsewhere: Mapping[str, Any]) -> Callable[[CallShapes], Program]:
        """What compiles for the shapes of a call alone. Another process does it, so that calls go
        on here meanwhile.
        """
        options = self._options._replace(specialise=True, hot=False, progress=None)

        def program(inputs: CallShapes) -> Program:
            model = _ModelFile(self._cached, self._engine, options, elsewhere, None)
            model._inputs, model._declared = self._inputs, self._declared
            model._niceness = _BACKGROUND
            return model.program(inputs)

        return program

    def _opened(self, inputs: CallShapes, closed: Collection[str] = ()) -> CallShapes:
        return opened_shapes(self._inputs, inputs, self._engine, self._options, closed)

    def _stored(self, inputs: CallShapes) -> Program | None:
        """What was compiled before and serves inputs of these shapes."""
        opened = self._stored_as(inputs)
        for number in itertools.count():
            program = self._cached.program(opened, number)
            if program is None or program.template is None:
                return program
            sizes = program.template.sizes_for(inputs)
            if sizes is not None:
                return program.at(sizes)
        return None

    def _stored_as(self, inputs: CallShapes) -> CallShapes:
        """The shapes that programs for these are stored under."""
        return self._opened(inputs, self._cached.closed(self._opened(inputs)))

    def _number(self, opened: CallShapes) -> int:
        """How many programs were stored for shapes that are open like this: the next one's."""
        if self._options.tune or not any(map(is_symbolic, itertools.chain(*opened.values()))):
            return 0
        return next(each for each in itertools.count() if not self._cached.has(opened, each))

    def finish(self) -> None:
        """The programs that are made at once are made: let go of the model as it was read, and
        store what it takes.
        """
        from whence.runtime.freed_memory import return_freed_memory

        fresh, self._fresh = self._fresh, None
        if fresh is None:
            return
        _store_interface(self._cached, fresh)
        return_freed_memory()

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
        options = self._options
        return load(
            self._cached.path, shapes=shapes, state=options.state, only_last=options.only_last
        )

    def _compiled_elsewhere(self, inputs: CallShapes) -> bool:
        """Is the model in the cache now, by another process? Once one could not do it, all is done
        here.
        """
        from whence.building.subprocess_call import call_in_subprocess

        if self._elsewhere is None or not self._cached.can_store(self._stored_as(inputs)):
            self._elsewhere = None
            return False
        engine, options = self._engine, self._options
        process, self._process = self._process, None
        answer = (call_in_subprocess if process is None else process.call)(
            _compile_for_cache,
            self._cached.file,
            (engine.kind, engine.index, self._elsewhere),
            # As it can be pickled.
            options._replace(
                hot=False, state=dict(options.state), only_last=dict(options.only_last)
            ),
            inputs,
            self._niceness,
        )
        if answer is None:
            self._elsewhere = None
            return False
        self._cached.note_compiled(*answer.value)
        return True


def _compile_for_cache(
    digest: FileDigest,
    device: tuple[str, int, Mapping[str, Any]],
    options: CompileOptions,
    inputs: CallShapes,
    niceness: int = 0,
) -> tuple[Sequence[WrittenEntry], Mapping[str, FileDigest]]:
    """Compile a model file for whoever starts it next; for inputs of these shapes, if it leaves
    them open and they are known. Returns what was put into the cache for it, and the digests of the
    files beside it.
    """
    if niceness:
        os.nice(niceness)
    from whence.runtime.engine import Engine

    kind, index, opened = device
    engine = Engine(kind, index, **opened)
    identity = engine.backend.cache_identity()
    assert identity is not None
    executable = compile_file(digest, engine, identity, options)
    if inputs:
        executable.prepare(inputs)
    return identity.cache.written, digest.beside


def file_shapes(
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
    _store_interface(cached, graph)
    return shapes


def _store_interface(cached: CachedModel, graph: Graph) -> None:
    """Store what a model takes. Nobody else holds its graph, and programs have its constants in a
    form of their own.
    """
    for node in graph:
        if node.is_const:
            node.value = None
    if cached.is_unchanged():
        cached.store_interface(graph)
