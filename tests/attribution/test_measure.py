"""Real runs. Only sums are asserted: how long anything takes is the machine's business."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attribution.harness import conv_bn_relu
from whence.api import compile_model
from whence.attribution import measure, profile_executable, worker_lanes
from whence.attribution.account import Span
from whence.attribution.measure import ProfiledRuns, overhead
from whence.attribution.worker_lanes import WorkerRuns
from whence.errors import InputError
from whence.graph.builder import GraphBuilder
from whence.ops.definition import Value
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable, Pending
from whence.runtime.stream import Stream
from whence.types import DType, TensorType


class _Tensor:
    """Of another library: it has a length, and offers its memory."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> np.ndarray:
        return np.asarray(self._array[place])

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("given", [np.asarray, _Tensor, lambda array: [array]])
def test_a_single_array_is_the_only_input(given: Callable[[np.ndarray], Any]) -> None:
    """Its first axis is no list of inputs."""
    model = compile_model(conv_bn_relu(), threads=1)
    (port,) = model.inputs
    assert isinstance(port.type, TensorType)
    assert port.type.static_shape is not None
    x = np.zeros(port.type.static_shape, np.float32)
    found = profile_executable(model, given(x), runs=1, warmup=0)
    assert found.environment[f"input {port.name}"] == "×".join(map(str, x.shape))
    with pytest.raises(InputError, match=f"input '{port.name}' has shape"):
        profile_executable(model, x[0], runs=1)


def test_a_real_profile_adds_up() -> None:
    seen = []
    found = profile_executable(
        compile_model(conv_bn_relu(), threads=1),
        runs=7,
        warmup=2,
        model="tiny",
        progress=lambda doing, done, total: seen.append((doing, done, total)),
    )
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert [row.id for row in found.sources] == [1, 2, 3, 4]
    assert found.attributed_ns > 0
    assert len(found.runs_ns) == found.runs == 7
    assert all(
        kernel.calls == 7 and 0 <= kernel.min_ns * 7 <= kernel.time_ns for kernel in found.kernels
    )
    assert [event.kernel for event in found.timeline] == [kernel.id for kernel in found.kernels]
    assert found.timeline_ns in found.runs_ns
    assert seen[0] == ("warming up", 1, 2)
    assert seen[-1] == ("running", 7, 7)


def test_waiting_for_a_thread_is_part_of_a_kernel() -> None:
    build = GraphBuilder("wide")
    x = build.input("x", DType.F32, [1024, 512])
    build.output(
        "y", build.op("MatMul", x, build.const(np.ones((512, 512), np.float32)), name="product")
    )
    graph = build.finish()
    alone, shared = (compile_model(graph, threads=threads) for threads in (1, 2))
    assert profile_executable(alone, runs=30, warmup=2).waited_ns == 0
    # On a busy machine the other thread may have no core, and the caller does all by itself.
    for _ in range(20):
        together = profile_executable(shared, runs=30, warmup=2)
        if together.waited_ns or together.threads == 1:
            break
    assert 0 <= together.waited_ns <= together.attributed_ns
    assert together.threads == 1 or together.waited_ns > 0
    assert together.attributed_ns + sum(together.residual_ns.values()) == together.wall_ns


@pytest.mark.parametrize("threads", [1, 2])
def test_a_short_run_follows_at_once_upon_another(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a profile does between two runs lasts longer than threads stay awake, and takes the
    first kernel's inputs out of the caches.
    """
    model = compile_model(conv_bn_relu(), threads=threads)
    runs: list[str] = []
    perform, enter = Executable.perform, measure._RunTotals.enter

    def noted(self: Executable, stream: Stream, /, *args: Value, **kwargs: Value) -> Pending:
        runs.append("plain" if stream.profiler is None else "profiled")
        return perform(self, stream, *args, **kwargs)

    def entered(self: measure._RunTotals, stream: Stream, span: Span) -> None:
        runs.append("book")
        enter(self, stream, span)

    monkeypatch.setattr(Executable, "perform", noted)
    monkeypatch.setattr(measure._RunTotals, "enter", entered)
    measuring = measure.ProfiledRuns(model)
    for _ in range(3):
        measuring.warm_up()
    runs.clear()
    for _ in range(3):
        measuring.run_profiled()
    assert runs == ["plain", "profiled", "book"] * 3


@pytest.mark.parametrize(("threads", "limit"), [(1, "_SHORTEST_RUN_NS"), (2, "_SHORT_RUN_NS")])
def test_a_long_run_needs_no_other_before_it(
    threads: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, limit, 0)
    model = compile_model(conv_bn_relu(), threads=threads)
    performed = []
    perform = Executable.perform

    def noted(self: Executable, stream: Stream, /, *args: Value, **kwargs: Value) -> Pending:
        performed.append(stream)
        return perform(self, stream, *args, **kwargs)

    monkeypatch.setattr(Executable, "perform", noted)
    measuring = measure.ProfiledRuns(model)
    for _ in range(3):
        measuring.run()
    assert len(performed) == 3


def test_what_it_takes_to_start_a_run_is_idle_time() -> None:
    found = profile_executable(compile_model(conv_bn_relu(), threads=1), runs=5, warmup=1)
    assert found.residual_ns["idle"] > 0
    assert found.residual_ns["dispatch"] > 0


def test_open_shapes_are_those_of_the_inputs() -> None:
    build = GraphBuilder("open")
    x = build.input("x", DType.F32, ["n", 64])
    product = build.op("MatMul", x, build.const(np.ones((64, 64), np.float32)), name="product")
    build.output("y", build.op("Relu", product, name="relu"))
    found = profile_executable(
        compile_model(build.finish(), threads=1), [np.ones((128, 64), np.float32)], runs=2, warmup=0
    )
    product_row, relu_row = found.sources
    assert product_row.time_ns > relu_row.time_ns
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns


@pytest.mark.parametrize(("runs", "warmup"), [(0, 1), (1, -1)])
def test_nonsense_is_refused(runs: int, warmup: int) -> None:
    with pytest.raises(InputError):
        profile_executable(compile_model(conv_bn_relu(), threads=1), runs=runs, warmup=warmup)


def test_the_cost_of_profiling_comes_from_undisturbed_runs() -> None:
    assert overhead([], []) == 0.0
    assert overhead([110, 900, 110, 800], [100, 5000, 100, 100]) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["mnist_conv", "light_squeezenet", "dtln_1"])
def test_real_models_are_attributed_in_full(zoo_model: Callable[[str], Path], name: str) -> None:
    found = profile_executable(compile_model(zoo_model(name)), runs=2, warmup=0)
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert set(found.residual_ns) == {"dispatch", "idle", "profiler"}
    assert [row.id for row in found.sources] == list(range(1, found.coverage.source_ops + 1))
    assert found.coverage.lost == 0
    for what in ("op", "module", "pass", "kernel"):
        assert sum(group.time_ns for group in found.by(what)) == found.attributed_ns


def test_what_noting_a_step_takes_is_measured_where_it_is_noted() -> None:
    """In native code, which reads the clock in less time than Python: what is taken off a kernel
    for it is no part of the kernel.
    """
    noting = Engine(threads=1).backend.noting_ns()
    readings = [time.monotonic_ns() for _ in range(1000)]
    steps = [after - before for before, after in itertools.pairwise(readings) if after > before]
    assert 0 < noting <= min(steps)


@pytest.mark.parametrize(
    ("is_quiet", "agrees", "to_compare", "expected"),
    [
        (True, False, True, 0),
        (False, False, True, 120),
        (False, True, True, 0),
        (False, False, False, 0),
    ],
)
def test_a_busy_machine_is_looked_at_until_runs_agree(
    monkeypatch: pytest.MonkeyPatch, is_quiet: bool, agrees: bool, to_compare: bool, expected: int
) -> None:
    """With more runs than twice the profiled ones; all that are remembered, if it takes as long.
    Not for a profile that is only looked at.
    """
    noted = []
    enter = WorkerRuns._enter

    def counted(runs: WorkerRuns, samples: np.ndarray, busy: np.ndarray, span: Span) -> None:
        noted.append(span)
        enter(runs, samples, busy, span)

    monkeypatch.setattr(WorkerRuns, "_enter", counted)
    monkeypatch.setattr(worker_lanes, "_STORED_RUNS", 120)
    monkeypatch.setattr(measure, "_TOO_LONG_S", 1e6)
    monkeypatch.setattr(measure, "are_quiet", lambda *_: is_quiet)
    monkeypatch.setattr(measure, "are_known", lambda _: True)
    monkeypatch.setattr(measure, "agree", lambda _: agrees)
    model = compile_model(conv_bn_relu(), threads=1)
    profile_executable(model, runs=32, warmup=1, to_compare=to_compare)
    assert len(noted) == expected


def test_runs_that_are_noted_at_once_count_each() -> None:
    """As one by itself does: every step has its time, in every run."""
    measuring = ProfiledRuns(compile_model(conv_bn_relu(), threads=2))
    measuring.run_noting_workers()
    measuring.run_noting_workers(3)
    steps = len(measuring._program.steps)
    found = measuring._workers.busy_ns(steps)
    assert found.shape == (4, steps)
    assert (found.max(axis=1) > 0).all()
    assert ((found > 0) == (found[0] > 0)).all()
