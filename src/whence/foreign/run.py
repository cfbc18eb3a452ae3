"""Profiling a model as another engine runs it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from whence.attribution.measure import overhead
from whence.attribution.model_facts import model_facts
from whence.attribution.profile import Profile
from whence.attribution.sample_inputs import sample_inputs
from whence.building.backend import Progress
from whence.codegen.target import usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError, ModelError, UnsupportedError
from whence.foreign.assemble import assemble
from whence.foreign.engine_rates import engine_rates
from whence.foreign.engines import check_engine
from whence.foreign.inductor_reader import read_inductor
from whence.foreign.litert_reader import read_litert
from whence.foreign.named_model import with_names
from whence.foreign.onnxruntime_reader import read_onnxruntime
from whence.foreign.openvino_reader import read_openvino
from whence.foreign.placement import Placement
from whence.foreign.process import EngineProcess, engine_process, run_in_turns
from whence.foreign.reading import read_json
from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph, check_first_generation
from whence.frontends.registry import find_plugin, find_reader
from whence.graph import Graph
from whence.graph.interpreter import bind_inputs
from whence.ops.definition import Value
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.rates import MachineRates
from whence.runtime.environment import environment
from whence.types import Dim

Shapes = Mapping[str, Sequence[Dim]]
_TURN = 5
"""Runs between two reports of progress."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model with inputs to run it on."""

    path: Path
    source: SourceGraph
    inputs: Mapping[str, np.ndarray]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: value.shape for name, value in self.inputs.items()}


def profile(
    path: str | Path,
    engine: str = "onnxruntime",
    *,
    threads: int = 0,
    shapes: Shapes | None = None,
    runs: int = 50,
    warmup: int = 5,
    inputs: Mapping[str, Value] | Value | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Where the time of an engine goes, by operator of the user's file. The engine runs in a
    process of its own, with its own profiler; inputs are random unless given: by name, in order, or
    the array that is the only one.
    """
    subject = prepare(path, shapes=shapes, inputs=inputs)
    recording = record(
        subject, engine, threads=threads, runs=runs, warmup=warmup, progress=progress
    )
    return attribute(subject, recording, progress=progress)[0]


def prepare(
    path: str | Path,
    *,
    shapes: Shapes | None = None,
    inputs: Mapping[str, Value] | Value | None = None,
) -> PreparedModel:
    """The model as whence reads it, and inputs for it: those given, or random ones."""
    path = Path(path)
    graph = load_source(path, shapes)
    given = sample_inputs(graph).values if inputs is None else inputs
    names = [node.name for node in graph.inputs]
    bound = zip(names, bind_inputs(graph, given), strict=True)
    arrays = {name: value for name, value in bound if isinstance(value, np.ndarray)}
    return PreparedModel(path, SourceGraph(graph), arrays)


def load_source(path: Path, shapes: Shapes | None = None) -> Graph:
    """The model's graph as it stands in the file."""
    plugin = find_plugin(path)
    if plugin is not None:
        raise UnsupportedError(
            f"'{path}' is read by {plugin[0]}, and other engines do not know its format;"
            f" `whence convert {path.name} -o {path.stem}.onnx` writes it as ONNX"
        )
    graph = find_reader(path)(path, shapes=shapes)
    if shapes and path.suffix.lower() == ".pt2":
        graph = fix_input_shapes(graph, shapes)
    check_first_generation(graph)
    return graph


def record(
    subject: PreparedModel,
    engine: str,
    *,
    threads: int = 0,
    runs: int = 50,
    warmup: int = 5,
    progress: Progress | None = None,
    keep: Path | None = None,
) -> Recording:
    """Run the engine and read what it says. With `keep`, its files are copied into that folder."""
    if runs < 1:
        raise InputError(f"a profile needs at least one run, not {runs}")
    with started(subject, engine, threads) as process:
        process.ask("warmup", warmup)
        run_in_turns([process], runs, _TURN, f"running {engine}", progress)
        return finished(subject, process, keep)


@contextmanager
def started(subject: PreparedModel, engine: str, threads: int = 0) -> Iterator[EngineProcess]:
    """The engine with the model loaded, in a process that stands still until it is asked."""
    check_engine(engine, subject.path.suffix)
    with tempfile.TemporaryDirectory(prefix="whence-named-") as folder:
        model = subject.path
        if model.suffix.lower() == ".onnx":
            model = with_names(model, subject.source.graph, Path(folder))
        with engine_process(engine, model, threads or usable_cores(), subject.inputs) as process:
            yield process


def finished(subject: PreparedModel, process: EngineProcess, keep: Path | None = None) -> Recording:
    """What the process recorded in all its runs."""
    folder = process.finish()
    if keep is not None:
        shutil.copytree(folder, keep, dirs_exist_ok=True)
    return read_recording(subject.source, folder)


def read_recording(source: SourceGraph, folder: Path) -> Recording:
    """What a process that ran an engine left in its folder."""
    told = read_json(folder / "recording.json")
    walls = [int(each) for each in told["runs_ns"]]
    trace = folder / "trace.json"
    match told["engine"]:
        case "onnxruntime":
            optimised, skip = folder / "optimised.onnx", int(told["warmup"])
            found = read_onnxruntime(source, trace, optimised, walls, skip=skip)
        case "openvino":
            found = read_openvino(source, folder / "openvino.json", walls)
        case "inductor":
            found = read_inductor(source, trace, folder / "mappings.json")
        case "litert":
            found = read_litert(source, folder / "litert.json", walls)
        case other:
            raise AssertionError(f"no reader for {other}")
    if len(found.runs_ns) != len(walls):
        raise ModelError(f"'{folder}' has {len(found.runs_ns)} runs, {len(walls)} expected")
    return replace(
        found,
        version=str(told["version"]),
        threads=int(told["threads"]),
        overhead_ratio=overhead(told["runs_ns"], told["plain_ns"]),
    )


def attribute(
    subject: PreparedModel,
    recording: Recording,
    *,
    rates: MachineRates | None = None,
    made_with: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[Profile, Placement]:
    """The profile of a recording, and the placement behind it. What functions cost the engine is
    measured if it never was, unless `rates` are given. `made_with` is what is known of where it was
    made, if not here.
    """
    if rates is None:
        rates = engine_rates(recording.engine, recording.version, Toolchain(), progress)
    return assemble(
        subject.source,
        recording,
        model=str(subject.path),
        shapes=subject.shapes,
        environment={
            **model_facts(subject.source.graph, subject.shapes, str(subject.path)),
            **({recording.engine: recording.version} if recording.version else {}),
            **(environment() if made_with is None else made_with),
        },
        rates=rates,
    )
