"""Streams in C: executions happen in the background, one after the other, whoever submits them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same
from tests.runtime.test_c_api import DEFAULT, PROFILING, RUNTIME_ERROR, SUCCESS, Model
from tests.runtime.thread_sanitizer import build_watched
from tests.runtime.zig import zig_cc
from whence.backends.cpu.generator import build_program
from whence.building.export import export
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType, TensorType

TWO_THREADS = Path(__file__).parent / "c" / "two_threads.c"
RACE = TWO_THREADS.with_name("race.c")


class Sample(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("execution", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
    )


def _network(size: int) -> Graph:
    """Two products and a row-wise kernel between them: what one leaves in memory, the next
    reads.
    """
    build = GraphBuilder("network")
    x = build.input("x", DType.F32, [size, size])
    weights = build.const(np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size))
    hidden = build.op("Softmax", build.op("MatMul", x, weights, name="hidden"), name="shares")
    build.output("y", build.op("MatMul", hidden, weights, name="last"))
    return build.finish()


@pytest.fixture(scope="module")
def model(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    made = Model(_network(384), engine, tmp_path_factory.mktemp("network"))
    yield made
    made.code.whence_model_destroy(made.handle)


def _input(model: Model, seed: int) -> np.ndarray:
    (node,) = model.graph.inputs
    assert isinstance(node.type, TensorType)
    shape = node.type.static_shape
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _samples(model: Model, stream: ctypes.c_void_p) -> list[Sample]:
    number = ctypes.c_int(-7)
    query = model.code.whence_query_samples
    assert query(stream, ctypes.byref(number), None) == SUCCESS
    room = (Sample * number.value)()
    assert query(stream, ctypes.byref(number), room) == SUCCESS
    return list(room)


def test_execute_returns_before_the_execution_is_done(model: Model) -> None:
    stream, x = model.stream(), _input(model, 0)
    submitted = [model.execute(stream, [x]) for _ in range(20)]
    returned = time.monotonic_ns()
    assert all(status == SUCCESS for status, _ in submitted)
    assert model.code.whence_stream_wait(stream) == SUCCESS
    assert max(sample.end for sample in _samples(model, stream)) > returned
    expected = model.graph.run([x])
    for _, made in submitted:
        assert_same(made, expected)
    model.code.whence_stream_destroy(stream)


def test_destroying_a_stream_waits_for_what_was_submitted(model: Model) -> None:
    stream, x = model.stream(DEFAULT), _input(model, 1)
    submitted = [model.execute(stream, [x]) for _ in range(8)]
    model.code.whence_stream_destroy(stream)
    expected = model.graph.run([x])
    for _, made in submitted:
        assert_same(made, expected)


def test_samples_are_in_the_order_of_steps_and_executions(model: Model) -> None:
    stream, x = model.stream(PROFILING), _input(model, 2)
    steps = model.code.whence_step_count(model.handle)
    for _ in range(3):
        assert model.execute(stream, [x])[0] == SUCCESS
    number = ctypes.c_int(-7)
    query = model.code.whence_query_samples
    assert query(stream, ctypes.byref(number), None) == RUNTIME_ERROR
    model.code.whence_stream_wait(stream)
    found = _samples(model, stream)
    assert [(sample.execution, sample.step) for sample in found] == [
        (execution, step) for execution in range(3) for step in range(steps)
    ]
    assert all(sample.begin <= sample.end for sample in found)
    assert [
        sum(each.end - each.begin for each in found if each.execution == run) for run in range(3)
    ] == model.times(stream)[1]
    model.code.whence_reset_profiling(stream)
    assert _samples(model, stream) == []
    model.code.whence_stream_destroy(stream)


def test_a_forked_process_does_its_own_work(model: Model) -> None:
    stream, x = model.stream(DEFAULT), _input(model, 3)
    expected = model.run(stream, x)
    child = os.fork()
    if child == 0:
        # No test may go on here, whatever happens.
        status = 1
        try:
            made = model.run(stream, x)
            model.code.whence_stream_destroy(stream)
            status = 0 if all(map(np.array_equal, made, expected)) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    model.code.whence_stream_destroy(stream)


# ---- two threads on one stream ----


_ALONE, _POOL = (16, 5000), (384, 40)
"""Sizes of the network, and executions of each thread: many of one that the calling thread does
alone, and some of one whose kernels are shared with a worker of the pool.
"""


def _export(engine: Engine, folder: Path, size: int) -> tuple[list[Path], tuple[str, ...]]:
    """Sources and flags of a program that executes a model on one stream from two threads."""
    toolchain = cpu_backend(engine).toolchain
    export(build_program(_network(size), toolchain, load=False), toolchain, folder, "net")
    sources = [TWO_THREADS, *sorted((folder / "src").glob("*.c"))]
    return sources, ("-march=native", "-std=gnu11", "-I.", f"-DFLOATS={size * size}")


def _executed(command: tuple[str, ...], folder: Path, executions: int) -> tuple[str, str]:
    """What it prints, and its complaints."""
    done = subprocess.run(
        [*command, str(folder / "net.weights"), str(executions)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("case", [_ALONE, _POOL], ids=["alone", "pool"])
def test_two_threads_on_one_stream(engine: Engine, tmp_path: Path, case: tuple[int, int]) -> None:
    size, executions = case
    sources, flags = _export(engine, tmp_path, size)
    names = [str(source) for source in sources]
    libraries = ("-O2", "-lm", "-lpthread", "-o", "program")
    zig_cc(cpu_backend(engine).toolchain, tmp_path, *names, *flags, *libraries)
    printed, complaints = _executed((str(tmp_path / "program"),), tmp_path, executions)
    assert printed == f"apart 1, wrong 0, status 0, entries {2 * executions}\n", complaints


@pytest.mark.slow
@pytest.mark.parametrize("case", [_ALONE, _POOL], ids=["alone", "pool"])
def test_two_threads_on_one_stream_have_no_race(
    engine: Engine, tmp_path: Path, case: tuple[int, int]
) -> None:
    size, executions = case
    sources, flags = _export(engine, tmp_path, size)
    # ThreadSanitizer sees what threads do to memory, which optimising changes little.
    command = build_watched(cpu_backend(engine).toolchain, tmp_path, sources, *flags, "-O1")
    printed, complaints = _executed(command, tmp_path, executions)
    assert "ThreadSanitizer" not in complaints
    assert printed == f"apart 1, wrong 0, status 0, entries {2 * executions}\n", complaints


@pytest.mark.slow
def test_a_race_is_seen(engine: Engine, tmp_path: Path) -> None:
    command = build_watched(cpu_backend(engine).toolchain, tmp_path, [RACE], "-O1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
