"""Shapes in which much time is spent are compiled for by themselves. Nothing here waits for time to
pass: the clock is the test's own, and so is when the background work is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whence import api
from whence.attribution.measure import profile_executable
from whence.attribution.profile import COMPILED_FOR
from whence.building.build_open import CallShapes
from whence.building.program import Program
from whence.codegen.cache import Cache
from whence.codegen.toolchain import Toolchain
from whence.errors import WhenceError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.hot_shapes import SETTING, HotShapes
from whence.runtime.stream import Stream
from whence.types import DType


class _Background:
    """A clock that moves by a second each time it is read, and work that is done when asked for."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: list[Callable[[], None]] = []

    def clock(self) -> int:
        self.now += 1_000_000_000
        return self.now

    def start(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def _graph() -> Graph:
    build = GraphBuilder("product")
    x = build.input("x", DType.F32, ["rows", 16])
    weights = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
    build.output("y", build.op("Relu", build.op("MatMul", x, build.const(weights))))
    return build.finish()


def _counter() -> Graph:
    """A sum over all calls, of any number of rows."""
    build = GraphBuilder("counter")
    x = build.input("x", DType.F32, ["rows", 4])
    total = build.variable("total", np.zeros(4, np.float32))
    axes = build.const(np.array([0], np.int64))
    after = build.op("Add", total, build.op("ReduceSum", x, axes, keepdims=0))
    build.assign("total", after)
    build.output("y", after)
    return build.finish()


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING)


def _watched(model: Executable, seconds: float) -> _Background:
    """The model with a clock and a background of the test's; compiling took so many seconds."""
    background, hot = _Background(), model._hot
    assert hot is not None
    model._programs.hot = HotShapes(hot, clock=background.clock, start=background.start)
    original = model._programs._specialise

    def timed(shapes: CallShapes) -> Program:
        program = original(shapes)  # type: ignore[arg-type]
        program.compile_ns = int(seconds * 1e9)
        return program

    model._programs._specialise = timed
    return background


def _given(rows: int, width: int = 16) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)


def _check(model: Executable, rows: int) -> None:
    (wanted,) = _graph().run({"x": _given(rows)})
    np.testing.assert_allclose(model(_given(rows)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("wanted")
def test_a_shape_is_hot_when_it_ran_for_as_long_as_compiling_takes(engine: Engine) -> None:
    model = api.compile_model(_graph(), engine=engine)
    background = _watched(model, 3.5)
    for _ in range(3):
        _check(model, 5)
        _check(model, 6)
    assert not background.jobs
    _check(model, 5)
    assert len(background.jobs) == 1
    # While it is compiled, calls go on as before, and ask for nothing more.
    _check(model, 5)
    assert len(background.jobs) == 1
    assert model.specialised == 0
    background.work()
    opened = model.program_for([_given(5)])
    assert opened.template is not None
    _check(model, 5)
    own = model.program_for([_given(5)])
    assert own.template is None
    assert model.specialised == 1
    assert model.compilations == 1
    assert "for 2 shapes, 1 of them specialised" in repr(model)
    # What is packed alike is there once.
    assert own.packed is opened.packed
    assert own.weights is opened.weights


@pytest.mark.usefixtures("wanted")
def test_few_shapes_are_specialised_at_a_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.runtime.program_set.MOST_SPECIALISED", 2)
    model = api.compile_model(_graph(), engine=engine)
    background = _watched(model, 0.5)
    for rows in (2, 3, 4):
        _check(model, rows)
        background.work()
        _check(model, rows)
    assert model.specialised == 2
    # The first one's place was taken; it is served by the open program, and may become hot again.
    assert model.program_for([_given(2)]).template is not None
    _check(model, 2)
    background.work()
    _check(model, 2)
    assert model.program_for([_given(2)]).template is None
    assert model.specialised == 2


@pytest.mark.usefixtures("wanted")
def test_runs_that_are_compared_stay_with_one_program(engine: Engine) -> None:
    model = api.compile_model(_graph(), engine=engine)
    background = _watched(model, 0.5)
    before = profile_executable(model, [_given(8)], runs=2, warmup=0)
    assert before.environment[COMPILED_FOR] == "open sizes"
    background.work()
    # Its first call brings the program for these sizes into use.
    after = profile_executable(model, [_given(8)], runs=2, warmup=0)
    assert after.environment[COMPILED_FOR] == "these sizes alone"
    stream = Stream(engine)
    model(_given(9))
    background.work()
    model.perform(stream, _given(9))
    assert model.program_for([_given(9)]).template is not None


@pytest.mark.usefixtures("wanted")
def test_state_goes_on(engine: Engine) -> None:
    model = api.compile_model(_counter(), engine=engine)
    background, twin = _watched(model, 0.5), None
    for number in range(1, 5):
        total = model(np.ones((3, 4), np.float32))
        assert np.array_equal(total, np.full(4, 3 * number, np.float32))
        background.work()
        twin = twin or model.clone()
    assert model.specialised == 1
    assert twin is not None
    assert twin.specialised == 1
    assert np.array_equal(twin(np.ones((3, 4), np.float32)), np.full(4, 3, np.float32))
    memory = np.full(4, 10, np.float32)
    bound = model.bind({"total": memory})
    bound(np.ones((3, 4), np.float32))
    assert np.array_equal(memory, np.full(4, 13, np.float32))


@pytest.mark.usefixtures("wanted")
def test_what_cannot_be_compiled_is_said_once(engine: Engine) -> None:
    model = api.compile_model(_graph(), engine=engine)
    background = _watched(model, 0.5)

    def fail(shapes: CallShapes) -> Program:
        raise WhenceError("no room")

    hot = HotShapes(fail, clock=background.clock, start=background.start)
    model._programs.hot = hot
    _check(model, 5)
    with pytest.warns(RuntimeWarning, match="no room"):
        background.work()
    _check(model, 5)
    assert not background.jobs
    assert model.specialised == 0


@pytest.mark.usefixtures("wanted")
def test_a_file_is_compiled_for_a_hot_shape_and_starts_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    api.save(_graph(), path)

    def open_engine() -> Engine:
        return Engine(threads=1, toolchain=Toolchain(cache=Cache(tmp_path / "cache")))

    model = api.compile_model(path, engine=open_engine())
    background = _watched(model, 0.5)
    _check(model, 7)
    background.work()
    _check(model, 7)
    assert model.program_for([_given(7)]).template is None
    again = api.compile_model(path, engine=open_engine())
    _check(again, 7)
    (opened,) = again._programs._templates
    # What it took is known to who starts it from the cache.
    assert opened.compile_ns > 0


@pytest.mark.usefixtures("wanted")
def test_threads_may_call_while_programs_change(engine: Engine) -> None:
    model = api.compile_model(_graph(), engine=engine)
    background = _watched(model, 0.5)
    model(_given(4))
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(20):
                _check(model, 4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    background.work()
    for thread in threads:
        thread.join()
    _check(model, 4)
    assert not failures
    assert model.specialised == 1


@pytest.mark.parametrize("specialise", [False, True])
def test_it_is_left_out_where_nobody_wants_it(
    specialise: bool, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hot_of(model: Any) -> HotShapes | None:
        found: HotShapes | None = model._programs.hot
        return found

    assert hot_of(api.compile_model(_graph(), engine=engine)) is None
    monkeypatch.delenv(SETTING)
    assert hot_of(api.compile_model(_graph(), engine=engine)) is not None
    assert hot_of(api.compile_model(_graph(), engine=engine, specialise=specialise)) is None


def test_what_is_compiled_in_runs_is_not_compiled_for_hot_shapes(wanted: None) -> None:
    """The program for the shape would compile it again, while a call waits."""
    build = GraphBuilder("found")
    x = build.input("x", DType.F32, ["rows", 16])
    zero, first = build.const(np.float32(0)), build.const(np.array([0], np.int64))
    total = build.op("ReduceSum", x, build.const(np.array([1], np.int64)), keepdims=0)
    rows = build.op("Squeeze", build.op("NonZero", build.op("Greater", total, zero)), first)
    weights = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
    build.output("y", build.op("MatMul", build.op("Gather", x, rows), build.const(weights)))
    model = api.compile_model(build.finish(), threads=1)
    background = _watched(model, seconds=2.5)
    for _ in range(6):
        model(np.ones((5, 16), np.float32))
    assert not background.jobs
