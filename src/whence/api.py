"""What people import: load a model, prepare it, write it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from whence.attribution.measure import profile_executable
from whence.attribution.profile import Profile
from whence.errors import ModelError, UnsupportedError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import write_onnx
from whence.graph import Graph
from whence.ops.definition import Value
from whence.passes.manager import CheckLevel, PassReport, Progress, run_passes
from whence.passes.pipeline import PORTABLE, PREPARE
from whence.passes.propagate_types import fix_input_shapes
from whence.report.files import WRITERS
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.program import Program, build_program
from whence.runtime.program import Progress as CompileProgress
from whence.types import TensorType

Shapes = Mapping[str, Sequence[int]]


def load(path: str | Path, *, shapes: Shapes | None = None) -> Graph:
    """Read a model file. `shapes` fixes the shapes of inputs that the file leaves open."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".tflite", ".lite", ".circle"):
        raise UnsupportedError(f"'{path}': {suffix[1:]} files are not read yet; whence reads .onnx")
    if not path.exists():
        raise ModelError(f"'{path}': no such file")
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder; name the .onnx file in it")
    return read_onnx(path, shapes=shapes)


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection meanwhile: it looks at every node again and again, which for a million nodes is most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def prepare(graph: Graph, *, portable: bool = False, check: CheckLevel | None = None, progress: Progress | None = None) -> Graph:
    """Run all passes over the graph, in place, and return it. `portable` stays within the operators of the ONNX standard.

    How much is verified after every pass is `check`, by default what the environment variable WHENCE_CHECK says.
    """
    prepare_with_report(graph, portable=portable, check=check, progress=progress)
    return graph


def prepare_with_report(
    graph: Graph, *, portable: bool = False, check: CheckLevel | None = None, progress: Progress | None = None
) -> list[PassReport]:
    """As `prepare`, and say what each pass did."""
    with _without_collections():
        return run_passes(graph, PORTABLE if portable else PREPARE, check=check, progress=progress)


def compile_model(
    model: str | Path | Graph,
    *,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    fusion: str = "dominator",
    progress: CompileProgress | None = None,
) -> Executable:
    """A model ready to run. `threads` 0 uses every core. A model with open shapes is compiled for the shapes of its first call.

    The model itself may be a path or a loaded graph; the graph is left as it is.
    """
    engine = engine if engine is not None else Engine(threads=threads)
    source = model if isinstance(model, Graph) else load(model, shapes=shapes)

    is_static = all(isinstance(node.type, TensorType) and node.type.is_static for node in source.inputs)

    def specialise(inputs: Shapes) -> Program:
        if is_static:
            graph = source.copy()
        elif isinstance(model, Graph):
            graph = fix_input_shapes(source.copy(), inputs)
        else:
            # Reading again infers every type from the shapes given, nested graphs included.
            graph = load(model, shapes={**(shapes or {}), **inputs})
        prepare(graph)
        return build_program(graph, engine.toolchain, fusion=fusion, progress=progress)

    executable = Executable(source, engine, specialise)
    if is_static:
        executable.prepare_static()
    if not isinstance(model, Graph):
        # Nobody else holds this graph, and programs have the constants in a form of their own.
        for node in source:
            if node.is_const:
                node.value = None
    return executable


def profile_model(
    model: str | Path | Graph | Executable,
    inputs: Mapping[str, Value] | None = None,
    *,
    runs: int = 50,
    warmup: int = 5,
    threads: int = 0,
    shapes: Shapes | None = None,
) -> Profile:
    """Where the time goes, by operator of the file. Compiles the model unless it is compiled already; inputs are random unless given."""
    executable = model if isinstance(model, Executable) else compile_model(model, threads=threads, shapes=shapes)
    name = str(model) if isinstance(model, str | Path) else executable.graph.name
    return profile_executable(executable, inputs, runs=runs, warmup=warmup, model=name, writers=WRITERS)


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph as an ONNX model that carries each node's origins."""
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise UnsupportedError(f"'{path}': whence writes .onnx files")
    write_onnx(graph, path)
