"""Compiling a model: a graph, or a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.api.compile_file import compile_file, file_shapes
from whence.api.files import (
    Dims,
    OutputAxes,
    Shapes,
    StatePairs,
    bound_graph,
    check_sizes_and_names,
    load,
    shapes_with,
    sized,
)
from whence.api.open_sizes import CompileOptions, build, explaining_sizes, opened_shapes
from whence.building.build_open import CallShapes, build_open
from whence.errors import InputError

if TYPE_CHECKING:
    from whence.building.backend import Progress
    from whence.building.program import Program
    from whence.graph import Graph
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable


_COMPILER = (
    "whence.api.compile_file",
    "whence.backends.cpu.generator",
    "whence.building.prepare",
    "whence.frontends.files",
)
"""Modules that compile a model for the processor, for the most part."""


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
    only_last: OutputAxes | None = None,
    fusion: str = "dominator",
    tune: bool = False,
    precise: bool = False,
    specialise: bool | None = None,
    progress: Progress | None = None,
) -> Executable:
    """A model ready to run. `threads` 0 is as many as turn out to be fastest, up to one for every
    core. A model with open shapes is compiled at its first call, and again only for sizes that what
    was compiled cannot serve. `shapes` fixes them by input, `dims` by the names of dimensions, as
    `{"batch": 4}`. Sizes in which the model has run for as long as it took to compile are compiled
    for by themselves, by another thread, and calls with them use that when it is there
    (`model.specialised`), which may change the last digits of outputs; not so with
    `specialise=False` or WHENCE_SPECIALISE=never in the environment. `specialise=True` compiles for
    the sizes of each call before it runs.

    `precise` leaves out the processor's matrix units, whose float32 products are less exact: an
    error of 4e-6 of a layer's largest output where float32 has 1.4e-6. Without it, they are used
    where the model's outputs change by less than 3e-5 of the largest. `tune` times candidates for
    its kernels on this machine, which takes minutes, and remembers the fastest: later compilations
    of any model use what is remembered. The model itself may be a path, a loaded graph, which is
    left as it is, or whatever `load` takes. A module of PyTorch is given with example inputs,
    `args` and `kwargs`, and with `dynamic_shapes` where sizes are open, all as
    `torch.export.export` takes them. `state` keeps values with the model from call to call, and
    `only_last` leaves out what is not last in an output, as `load` says. A file that was not
    compiled before is compiled by another process, which leaves nothing of the compiler in this
    one, unless this one has it already, or `progress` is to be told of it.

        >>> model = whence.compile("model.onnx")
        >>> model(np.zeros((1, 3, 32, 32), np.float32)).shape
        (1, 10)
    """
    if precise and engine is not None:
        raise InputError("an engine is precise or not when it is made: Engine(precise=True)")
    check_sizes_and_names(shapes, dims, state, only_last)
    found = None
    examples = (args, kwargs, dynamic_shapes)
    if not isinstance(model, str | Path) or any(each is not None for each in examples):
        from whence.interop.models import from_object

        found = from_object(model, *examples, shapes)
        if dims:
            shapes = shapes_with(found.graph, dims, shapes)
    from whence.codegen.cache import default_folder
    from whence.codegen.digest import FileDigest
    from whence.codegen.expected_entries import ExpectedEntries
    from whence.runtime.hot_shapes import is_wanted

    hot = specialise is None and not tune and is_wanted()
    options = CompileOptions(
        shapes or {}, fusion, tune, progress, bool(specialise), hot, state or {}, only_last or {}
    )
    if found is not None:
        graph = found.graph
        if shapes or state or only_last:
            graph = bound_graph(sized(graph.copy(), shapes), state, only_last)
        engine = engine_for(engine, threads, precise)
        return found.finish(
            _rebound(_compile_graph(graph, engine, options), graph, engine, options)
        )
    assert isinstance(model, str | Path)
    # The file is hashed while the engine starts, and what it was compiled to.
    digest = FileDigest(Path(model))
    expected = ExpectedEntries(Path(model), default_folder()) if engine is None else None
    # A process that has the compiler would only wait for another to load it too; progress and
    # timings are had only here.
    has_compiler = "whence.building.build" in sys.modules
    in_subprocess = not has_compiler and progress is None and not tune
    with contextlib.ExitStack() as stack:
        process = None
        if in_subprocess and engine is None and not default_folder().exists():
            # Nothing is compiled yet, not even the engine's own library: while this one imports
            # NumPy and compiles that, another process gets ready for the model.
            from whence.building.subprocess_call import Subprocess

            process = stack.enter_context(Subprocess(_COMPILER))
        engine = engine_for(engine, threads, precise)
        identity = engine.backend.cache_identity()
        if identity is None:
            graph = load(model, shapes=shapes, dims=dims, state=state, only_last=only_last)
            return _rebound(_compile_graph(graph, engine, options), graph, engine, options)
        if dims:
            options = options._replace(shapes=file_shapes(digest, identity, dims, options))
        with identity.cache.expecting(expected):
            executable = compile_file(
                digest, engine, identity, options, in_subprocess=in_subprocess, process=process
            )
    return _rebound(executable, model, engine, options)


def _rebound(
    executable: Executable, model: str | Path | Graph, engine: Engine, options: CompileOptions
) -> Executable:
    """The executable, which knows how to compile its model with inputs as state. A graph has the
    shapes, the state and the shortened outputs of `options` already.
    """
    given = isinstance(model, str | Path)
    known = options if given else options._replace(shapes={}, state={}, only_last={})

    def with_state(state: StatePairs, shapes: Shapes) -> Executable:
        return compile_model(
            model,
            engine=engine,
            shapes={**known.shapes, **shapes},
            state={**known.state, **state},
            only_last=known.only_last,
            fusion=options.fusion,
            specialise=None if options.hot else options.specialise,
        )

    executable.with_state = with_state
    return executable


def engine_for(engine: Engine | None, threads: int, precise: bool = False) -> Engine:
    """The engine that was given, or one of its own for so many threads."""
    from whence.runtime.engine import Engine

    if engine is None:
        return Engine(threads=threads, precise=precise)
    if not isinstance(engine, Engine):
        hint = f"{engine!r}" if isinstance(engine, str) else ""
        raise InputError(
            f"engine= takes a whence.Engine({hint}), not {type(engine).__name__} {engine!r}"
        )
    return engine


def _compile_graph(model: Graph, engine: Engine, options: CompileOptions) -> Executable:
    from whence.api.prepare import is_static
    from whence.ops.binding import Port
    from whence.passes.shapes.propagate_types import fix_input_shapes
    from whence.runtime.executable import Executable

    ports = [Port(node.name, node.type) for node in model.inputs]

    def built(shapes: CallShapes) -> Program:
        return build(fix_input_shapes(model.copy(), shapes), engine, options)

    def specialise(inputs: CallShapes) -> Program:
        return build_open(partial(opened_shapes, ports, inputs, engine, options), built)[0]

    executable = Executable(
        ports,
        engine,
        explaining_sizes(specialise, lambda: model),
        lambda: model,
        hot=built if options.hot else None,
    )
    executable.has_state = bool(model.variables)
    if is_static(model):
        executable.prepare_static()
    return executable
