"""What people import: load a model, prepare it, compile it, write it.

Everything else is imported where it is used: a program that runs a model which was compiled before
needs neither readers nor passes nor kernels, and loading them would take longer than starting it.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.errors import InputError, ModelError, UnsupportedError
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.building.build import Progress as CompileProgress
    from whence.building.program import Program
    from whence.codegen.toolchain import Toolchain
    from whence.graph import Graph
    from whence.ops.definition import Value
    from whence.passes.manager import CheckLevel, Progress
    from whence.provenance import PassReport
    from whence.rates import MachineRates
    from whence.runtime.engine import CpuEngine, Engine
    from whence.runtime.executable import Executable

Shapes = Mapping[str, Sequence[int]]


def load(path: str | Path | Any, *, shapes: Shapes | None = None) -> Graph:
    """Read a model file, or a model in memory: the bytes of a file, an `onnx.ModelProto`, an
    `onnx_ir.Model`, a program of `torch.export`. `shapes` fixes the shapes of inputs that it leaves
    open.
    """
    from whence.frontends.objects import read_object, refuse_other_format

    if not isinstance(path, str | os.PathLike):
        return _sized(read_object(path, shapes), shapes)
    path = _as_path(path, "a model file is named by a path")
    if not path.exists():
        raise ModelError(f"'{path}': no such file")
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder; name the model file in it")
    if path.suffix.lower() in (".tflite", ".lite", ".circle"):
        from whence.frontends.tflite.reader import read_tflite

        return read_tflite(path, shapes=shapes)
    if path.suffix.lower() == ".pt2":
        from whence.frontends.torch.exported import load_exported, read_exported

        return _sized(read_exported(load_exported(path), name=path.stem), shapes)
    refuse_other_format(path)
    from whence.frontends.onnx.reader import read_onnx

    return read_onnx(path, shapes=shapes)


def _sized(graph: Graph, shapes: Shapes | None) -> Graph:
    """The graph with the shapes of inputs fixed, where its reader left that to others."""
    opened = {
        node.name
        for node in graph.inputs
        if not (isinstance(node.type, TensorType) and node.type.is_static)
    }
    if not shapes or not opened & shapes.keys():
        return graph
    from whence.passes.shapes.propagate_types import fix_input_shapes

    return fix_input_shapes(graph, shapes)


def _as_path(path: object, wanted: str) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{wanted}, not by {type(path).__name__}")
    return Path(path)


def _check_graph(graph: object, wanted: str) -> None:
    from whence.graph import Graph

    if not isinstance(graph, Graph):
        raise InputError(f"{wanted}, not {type(graph).__name__}")


def prepare(
    graph: Graph,
    *,
    portable: bool = False,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Run all passes over the graph, in place, and return it. `portable` stays within the operators
    of the ONNX standard.

    How much is verified after every pass is `check`, by default what the environment variable
    WHENCE_CHECK says.
    """
    prepare_with_report(graph, portable=portable, check=check, progress=progress)
    return graph


def prepare_with_report(
    graph: Graph,
    *,
    portable: bool = False,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> list[PassReport]:
    """As `prepare`, and say what each pass did."""
    from whence.frontends.files import without_collection
    from whence.passes.manager import run_passes
    from whence.passes.pipeline import PORTABLE, PREPARE

    _check_graph(graph, "what is prepared is a graph, as whence.load gives it")

    with without_collection():
        return run_passes(graph, PORTABLE if portable else PREPARE, check=check, progress=progress)


def compile_model(
    model: str | Path | Graph | Any,
    args: Sequence[Any] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    fusion: str = "dominator",
    tune: bool = False,
    precise: bool = False,
    progress: CompileProgress | None = None,
) -> Executable:
    """A model ready to run. `threads` 0 uses every core. A model with open shapes is compiled for
    the shapes of its first call.

    `precise` leaves out the processor's matrix units, whose float32 products are less exact: an
    error of 4e-6 of a layer's largest output where
    float32 has 1.4e-6. Without it, they are used where the model's outputs change by less than 3e-5
    of the largest.
    `tune` times candidates for its kernels on this machine, which takes minutes, and remembers the
    fastest: later compilations of any model
    use what is remembered. The model itself may be a path, a loaded graph, which is left as it is,
    or whatever `load` takes. A module of PyTorch is given with example inputs, `args` and `kwargs`,
    and with `dynamic_shapes` where sizes are open, all as `torch.export.export` takes them.
    A file that was not compiled before is compiled by another process, which leaves nothing of the
    compiler in this one, unless this one has it
    already, or `progress` is to be told of it.
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
                fusion=fusion,
                tune=tune,
                precise=precise,
                progress=progress,
            )
            return found.finish(compiled)
    from whence.runtime.engine import CpuEngine

    if precise:
        if engine is not None:
            raise InputError("an engine is precise or not when it is made: Engine(precise=True)")
        engine = CpuEngine(threads=threads, precise=True)
    if isinstance(model, str | Path):
        if engine is None or isinstance(engine, CpuEngine):
            # A process that has the compiler would only wait for another to load it too; progress
            # and timings are had only here.
            apart = "whence.building.build" not in sys.modules and progress is None and not tune
            return _compile_file(
                Path(model), threads, engine, shapes or {}, fusion, tune, progress, apart=apart
            )
        model = load(model, shapes=shapes)
    from whence.ops.binding import Port
    from whence.passes.shapes.propagate_types import fix_input_shapes
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable

    _check_graph(model, "what is compiled is a path or a graph, as whence.load gives it")
    if engine is not None and not isinstance(engine, Engine):
        raise InputError(f"an engine is made with whence.Engine(), not {type(engine).__name__}")
    engine = engine if engine is not None else Engine(threads=threads)
    is_static = _is_static(model)

    def specialise(inputs: Shapes) -> Program:
        graph = fix_input_shapes(model.copy(), inputs)
        return _build(graph, engine, fusion, tune, progress)

    executable = Executable(
        [Port(node.name, node.type) for node in model.inputs], engine, specialise, lambda: model
    )
    if is_static:
        executable.prepare_static()
    return executable


def _compile_file(
    path: Path,
    threads: int,
    engine: CpuEngine | None,
    shapes: Shapes,
    fusion: str,
    tune: bool = False,
    progress: CompileProgress | None = None,
    *,
    apart: bool = False,
) -> Executable:
    """With `apart`, another process compiles what is not kept yet: here, the compiler would take 30
    MB for as long as this process lives.
    """
    from whence.codegen.digest import FileDigest

    # The file is hashed while the engine starts.
    digest = FileDigest(path)
    from whence.building.model_cache import CachedModel, Interface
    from whence.ops.binding import Port
    from whence.runtime.engine import CpuEngine
    from whence.runtime.executable import Executable
    from whence.runtime.freed_memory import return_freed_memory
    from whence.types import TensorType

    engine = engine if engine is not None else CpuEngine(threads=threads)
    # Whoever asks for checks after every pass wants the passes to run.
    kept = CachedModel(
        digest,
        engine.toolchain,
        shapes,
        fusion,
        engine.tuned,
        engine.threads,
        enabled=os.environ.get("WHENCE_CHECK", "0") == "0",
    )

    def keep_apart(inputs: Shapes) -> bool:
        """Is the model kept now, by another process? Once one could not do it, all is done here."""
        nonlocal apart
        from whence.building.subprocess_call import call_in_subprocess

        apart = (
            apart
            and kept.keeps(inputs)
            and call_in_subprocess(
                _compile_for_cache, path, engine.threads, engine.toolchain, shapes, fusion, inputs
            )
        )
        return apart

    fresh: list[Graph] = []
    interface = kept.interface()
    if interface is None and keep_apart({}):
        interface = kept.interface()
    if interface is None:
        source = load(path, shapes=shapes)
        kept.note(source)
        fresh.append(source)
        interface = Interface(
            tuple(Port(node.name, node.type) for node in source.inputs),
            lambda: source,
            tuple(Port(name, kind) for name, kind in source.listed_inputs),
        )
    is_static = all(
        isinstance(port.type, TensorType) and port.type.is_static for port in interface.inputs
    )

    declared = {
        port.name: port.type.static_shape
        for port in interface.inputs
        if isinstance(port.type, TensorType)
    }

    def specialise(inputs: Shapes) -> Program:
        if not tune and (found := kept.program(inputs)) is not None:
            return found
        if keep_apart(inputs) and (found := kept.program(inputs)) is not None:
            return found
        # Reading again infers every type from the shapes given, nested graphs included.
        as_declared = is_static and declared == inputs
        graph = (
            fresh[0].copy()
            if fresh and as_declared
            else load(path, shapes=shapes if as_declared else {**shapes, **inputs})
        )
        program = _build(graph, engine, fusion, tune, progress)
        if kept.is_unchanged():
            kept.store_program(inputs, program)
        elif not (fresh and as_declared):
            raise ModelError(f"'{path}' has changed since it was compiled; compile it again")
        return program

    executable = Executable(interface.inputs, engine, specialise, interface.graph, interface.listed)
    if is_static:
        executable.prepare_static()
    for source in fresh:
        # Nobody else holds this graph, and programs have the constants in a form of their own.
        for node in source:
            if node.is_const:
                node.value = None
        return_freed_memory()
        if kept.is_unchanged():
            kept.store_interface(source)
    fresh.clear()
    return executable


def _compile_for_cache(
    path: Path, threads: int, toolchain: Toolchain, shapes: Shapes, fusion: str, inputs: Shapes
) -> None:
    """Compile a model file for whoever starts it next; for inputs of these shapes, if it leaves
    them open and they are known.
    """
    from whence.runtime.engine import CpuEngine

    executable = _compile_file(
        path, threads, CpuEngine(threads=threads, toolchain=toolchain), shapes, fusion
    )
    if inputs:
        executable.prepare(inputs)


def _build(
    graph: Graph, engine: Engine, fusion: str, tune: bool, progress: CompileProgress | None
) -> Program:
    from whence.runtime.freed_memory import return_freed_memory

    prepare(graph)
    if tune:
        engine.tune(graph, fusion=fusion, progress=progress)
    program = engine.build(graph, fusion=fusion, progress=progress)
    program.release_constants()
    return_freed_memory()
    return program


def _is_static(graph: Graph) -> bool:
    from whence.types import TensorType

    return all(isinstance(node.type, TensorType) and node.type.is_static for node in graph.inputs)


def profile_model(
    model: str | Path | Graph | Executable,
    inputs: Mapping[str, Value] | None = None,
    *,
    runs: int = 50,
    warmup: int = 5,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    exact: bool = False,
) -> Profile:
    """Where the time goes, by operator of the file. Compiles the model unless it is compiled
    already; inputs are random unless given.

    `exact` measures what each operator adds to its kernel, by leaving it out, where otherwise that
    is modelled.
    """
    from whence.attribution.measure import profile_executable
    from whence.report.files import WRITERS
    from whence.report.html.page import page
    from whence.runtime.executable import Executable

    if exact and isinstance(model, Executable):
        raise InputError(
            "an exact profile compiles kernels anew and needs the constants: give the model file or"
            " graph, not a compiled model"
        )
    executable = (
        model
        if isinstance(model, Executable)
        else compile_model(model, threads=threads, engine=engine, shapes=shapes)
    )
    name = str(model) if isinstance(model, str | Path) else executable.graph.name
    again = prepare_again(model, shapes) if exact and not isinstance(model, Executable) else None
    found = profile_executable(
        executable,
        inputs,
        runs=runs,
        warmup=warmup,
        model=name,
        writers=WRITERS,
        exact=again,
        rates=machine_rates(executable.engine),
    )
    return dataclasses.replace(found, render=page)


def machine_rates(engine: Engine, progress: Progress | None = None) -> MachineRates | None:
    """How fast the machine is that an engine runs on: measured now, which takes seconds, if it never
    was. `None` for devices, of which nobody measures that.
    """
    from whence.calibration import calibrated

    toolchain = getattr(engine, "toolchain", None)
    return None if toolchain is None else calibrated(toolchain, progress)


def prepare_again(
    model: str | Path | Graph, shapes: Shapes | None = None
) -> Callable[[Shapes], Graph]:
    """What gives the graph of a compiled model once more, with its constants, for inputs of given
    shapes.
    """

    def again(inputs: Shapes) -> Graph:
        from whence.graph import Graph
        from whence.passes.shapes.propagate_types import fix_input_shapes

        source = model if isinstance(model, Graph) else load(model, shapes=shapes)
        if _is_static(source):
            return prepare(source.copy() if source is model else source)
        return prepare(
            fix_input_shapes(source.copy(), inputs)
            if isinstance(model, Graph)
            else load(model, shapes={**(shapes or {}), **inputs})
        )

    return again


WRITTEN = (".onnx", ".tflite", ".circle")
"""What `save` writes, by the file's ending."""


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph as an ONNX, TFLite or Circle model, by the file's ending. Each operator of
    the file carries its origins.
    """
    from whence.frontends.files import without_collection

    _check_graph(graph, "what is saved is a graph, as whence.load gives it")
    path = _as_path(path, "where to save it is named by a path")
    match path.suffix.lower():
        case ".onnx":
            from whence.frontends.onnx.writer import write_onnx

            if any(op == "Call" or op.startswith("ChannelsLast") for op in graph.op_counts):
                from whence.passes.manager import run_passes
                from whence.passes.pipeline import CHANNELS_FIRST

                graph = graph.copy()
                with without_collection():
                    run_passes(graph, CHANNELS_FIRST)
            write_onnx(graph, path)
        case ".tflite" | ".circle" as suffix:
            from whence.frontends.tflite.writer import write_circle, write_tflite
            from whence.passes.manager import run_passes
            from whence.passes.pipeline import CHANNELS_LAST

            # The graph stays as it is: that the format wants channels last is no business of the
            # caller's.
            graph = graph.copy()
            with without_collection():
                run_passes(graph, CHANNELS_LAST)
            (write_tflite if suffix == ".tflite" else write_circle)(graph, path)
        case _:
            raise UnsupportedError(
                f"'{path}': whence writes {', '.join(WRITTEN[:-1])} and {WRITTEN[-1]} files"
            )
