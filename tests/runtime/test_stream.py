"""Streams and the profiling calls, after the rows of the oneDNN profiling interface that apply to
an engine that profiles.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest

from tests.runtime.models import X, compiled, mixed, relu, reshape
from whence.errors import InputError, WhenceError
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.profiler import Profiler, ProfilingDataKind
from whence.runtime.stream import (
    Stream,
    StreamError,
    StreamFlags,
    get_profiling_data,
    num_entries,
    reset_profiling,
)
from whence.types import DType

TIME = ProfilingDataKind.TIME


@pytest.fixture(scope="module")
def model(engine: Engine) -> Executable:
    return compiled(relu(), engine)


@pytest.fixture
def stream(engine: Engine) -> Stream:
    return Stream(engine, StreamFlags.PROFILING)


def test_the_numbers_are_onednns() -> None:
    assert (StreamFlags.IN_ORDER, StreamFlags.OUT_OF_ORDER, StreamFlags.PROFILING) == (1, 2, 4)
    assert (ProfilingDataKind.UNDEF, ProfilingDataKind.TIME) == (0, 1)


# ---- creating ----


@pytest.mark.parametrize(
    "flags",
    [
        StreamFlags.DEFAULT,
        StreamFlags.PROFILING,
        StreamFlags.DEFAULT | StreamFlags.PROFILING,
        0,
        1,
        4,
        5,
    ],
)
def test_flags_decide_at_creation_whether_a_stream_profiles(engine: Engine, flags: int) -> None:
    assert (Stream(engine, flags).profiler is not None) == bool(flags & 4)


@pytest.mark.parametrize(
    "flags",
    [StreamFlags.OUT_OF_ORDER, StreamFlags.OUT_OF_ORDER | StreamFlags.PROFILING, 8, 0x104, -1],
)
def test_flags_that_cannot_be_kept_are_refused(engine: Engine, flags: int) -> None:
    with pytest.raises(InputError):
        Stream(engine, flags)


def test_a_profiling_stream_out_of_order_is_refused_for_that_reason(engine: Engine) -> None:
    with pytest.raises(InputError, match="a stream that profiles must be in order"):
        Stream(engine, StreamFlags.PROFILING | StreamFlags.OUT_OF_ORDER)


# ---- without the flag ----


def test_a_stream_without_the_flag_answers_no_profiling_call(
    engine: Engine, model: Executable
) -> None:
    plain = Stream(engine)
    model.execute(plain, X)
    plain.wait()
    for call in (
        lambda: reset_profiling(plain),
        lambda: num_entries(plain),
        lambda: get_profiling_data(plain, TIME),
    ):
        with pytest.raises(StreamError, match=r"not created with StreamFlags\.PROFILING"):
            call()
    with pytest.raises(StreamError):
        get_profiling_data(plain, ProfilingDataKind.UNDEF)


# ---- counting and querying ----


def test_one_entry_for_each_execution(model: Executable, stream: Stream) -> None:
    model.execute(stream, X)
    model.execute(stream, X)
    stream.wait()
    times = get_profiling_data(stream, TIME)
    assert num_entries(stream) == len(times) == 2
    assert all(isinstance(each, int) and each > 0 for each in times)


def test_nothing_executed_is_no_entries(stream: Stream) -> None:
    assert num_entries(stream) == 0
    assert get_profiling_data(stream, TIME) == []
    stream.wait()
    assert get_profiling_data(stream, TIME) == []


def test_reset_forgets_everything(model: Executable, stream: Stream) -> None:
    model.execute(stream, X)
    stream.wait()
    reset_profiling(stream)
    assert num_entries(stream) == 0
    assert get_profiling_data(stream, TIME) == []
    model.execute(stream, X)
    stream.wait()
    assert num_entries(stream) == 1


def test_data_grows_until_it_is_reset(model: Executable, stream: Stream) -> None:
    seen: list[int] = []
    for count in (1, 63, 64, 65, 200):
        while len(seen) < count:
            model.execute(stream, X)
            seen.append(0)
        stream.wait()
        assert num_entries(stream) == count
    # What was there before the table grew is still there.
    first = get_profiling_data(stream, TIME)
    model.execute(stream, X)
    stream.wait()
    assert get_profiling_data(stream, TIME)[:200] == first


@pytest.mark.parametrize("kind", [ProfilingDataKind.UNDEF, 2, 257, 0x7FFF, -1])
def test_an_unknown_kind_is_an_error_and_does_no_harm(
    model: Executable, stream: Stream, kind: int
) -> None:
    model.execute(stream, X)
    stream.wait()
    with pytest.raises(InputError, match="is not known"):
        get_profiling_data(stream, kind)
    assert num_entries(stream) == 1


def test_a_query_before_the_wait_is_an_error_even_when_the_work_is_done(
    model: Executable, stream: Stream
) -> None:
    model.execute(stream, X)
    stream.wait()
    model.execute(stream, X)
    done = threading.Event()
    stream.submit(lambda _: done.set())
    assert done.wait(60)
    for call in (
        lambda: reset_profiling(stream),
        lambda: num_entries(stream),
        lambda: get_profiling_data(stream, TIME),
    ):
        with pytest.raises(StreamError, match=r"call stream\.wait\(\) first"):
            call()
    stream.wait()
    assert num_entries(stream) == 2


def test_each_stream_has_its_own_profile(engine: Engine, model: Executable) -> None:
    one, two = Stream(engine, StreamFlags.PROFILING), Stream(engine, StreamFlags.PROFILING)
    for _ in range(3):
        model.execute(one, X)
    model.execute(two, X)
    one.wait()
    two.wait()
    assert (num_entries(one), num_entries(two)) == (3, 1)
    reset_profiling(one)
    assert (num_entries(one), num_entries(two)) == (0, 1)


def test_entries_are_in_the_order_of_submission(stream: Stream, model: Executable) -> None:
    program = model.programs[0]

    def pretend(begin: int, end: int) -> None:
        def job(profiler: Profiler | None) -> None:
            assert profiler is not None
            profiler.begin(program)
            profiler.note(begin, end, 0)

        stream.submit(job)

    for length in (30, 10, 20):
        pretend(1000, 1000 + length)
    stream.wait()
    assert get_profiling_data(stream, TIME) == [30, 10, 20]


def test_several_models_share_a_stream_in_order(
    engine: Engine, model: Executable, stream: Stream
) -> None:
    other = compiled(mixed(), engine)
    for each in (model, other, model):
        each.execute(stream, X)
    stream.wait()
    assert stream.profiler is not None
    assert stream.profiler.executions == (model.programs[0], other.programs[0], model.programs[0])
    samples = stream.profiler.samples()
    assert samples["execution"].tolist() == [0, *[1] * len(other.programs[0].steps), 2]
    assert num_entries(stream) == 3


# ---- what an entry is ----


def test_an_execution_without_a_step_has_no_entry(
    engine: Engine, model: Executable, stream: Stream
) -> None:
    build = GraphBuilder("through")
    build.output("y", build.input("x", DType.F32, [4]))
    through = compiled(build.finish(), engine)
    empty = compiled(relu(0, 3), engine)
    through.execute(stream, X)
    empty.execute(stream, np.zeros((0, 3), np.float32))
    stream.wait()
    assert num_entries(stream) == 0
    model.execute(stream, X)
    through.execute(stream, X)
    model.execute(stream, X)
    stream.wait()
    assert num_entries(stream) == 2
    assert stream.profiler is not None
    assert stream.profiler.samples()["execution"].tolist() == [2, 4]


def test_time_is_the_latest_end_less_the_earliest_begin(engine: Engine, stream: Stream) -> None:
    model = compiled(mixed(), engine)
    for _ in range(5):
        model.execute(stream, X)
    stream.wait()
    assert stream.profiler is not None
    samples = stream.profiler.samples()
    steps = model.programs[0].steps
    assert {bool(step.symbol) for step in steps} == {True, False}, "native and reference steps both"
    for execution, time_ns in enumerate(get_profiling_data(stream, TIME)):
        mine = samples[samples["execution"] == execution]
        assert mine["step"].tolist() == [step.number for step in steps]
        assert int(mine["end"].max() - mine["begin"].min()) == time_ns
        # Steps do not overlap, and what lies between them counts too.
        assert (mine["end"] >= mine["begin"]).all()
        assert (mine["begin"][1:] >= mine["end"][:-1]).all()
        assert int((mine["end"] - mine["begin"]).sum()) <= time_ns


def test_samples_are_on_the_monotonic_clock(model: Executable, stream: Stream) -> None:
    before = time.monotonic_ns()
    model.execute(stream, X)
    stream.wait()
    after = time.monotonic_ns()
    assert stream.profiler is not None
    (sample,) = stream.profiler.samples()
    assert before <= int(sample["begin"]) <= int(sample["end"]) <= after


# ---- order, failure, end ----


def _note(order: list[int], number: int, _: Profiler | None) -> None:
    order.append(number)


def test_runs_happen_in_order_and_in_the_background(stream: Stream) -> None:
    order: list[int] = []
    go = threading.Event()

    def first(_: Profiler | None) -> None:
        assert go.wait(60)
        order.append(0)

    stream.submit(first)
    for number in range(1, 5):
        stream.submit(partial(_note, order, number))
    assert order == []
    go.set()
    stream.wait()
    assert order == [0, 1, 2, 3, 4]


def _pause(go: threading.Event) -> None:
    assert go.wait(60)


def test_outputs_are_there_after_the_wait(model: Executable, stream: Stream) -> None:
    go = threading.Event()
    stream.submit(lambda _: _pause(go))
    pending = model.execute(stream, X)
    with pytest.raises(InputError, match="not done"):
        _ = pending.outputs
    go.set()
    stream.wait()
    np.testing.assert_allclose(pending.outputs[0], np.maximum(X + 1, 0))


def test_a_failing_run_raises_at_the_wait_and_the_stream_stays_usable(
    engine: Engine, stream: Stream
) -> None:
    model = compiled(reshape(), engine)
    good = np.array([2, 2])
    before = model.execute(stream, X, good)
    failing = model.execute(stream, X, np.array([3, 3]))
    after = model.execute(stream, X, good)
    with pytest.raises(WhenceError, match="'fold'"):
        stream.wait()
    assert before.outputs[0].shape == after.outputs[0].shape == (2, 2)
    with pytest.raises(WhenceError, match="'fold'"):
        _ = failing.outputs
    stream.wait()
    again = model.execute(stream, X, good)
    stream.wait()
    assert again.outputs[0].shape == (2, 2)
    # The failed one ran no step to its end.
    assert num_entries(stream) == 3


def test_the_first_of_several_errors_is_raised(stream: Stream) -> None:
    def fail(message: str) -> None:
        def job(_: Profiler | None) -> None:
            raise InputError(message)

        stream.submit(job)

    fail("one")
    fail("two")
    with pytest.raises(InputError, match="one"):
        stream.wait()
    stream.wait()


def test_bad_inputs_are_refused_at_once(model: Executable, stream: Stream) -> None:
    with pytest.raises(InputError):
        model.execute(stream, X.astype(np.float64))
    stream.wait()
    assert num_entries(stream) == 0


def test_a_stream_of_another_engine_is_refused(model: Executable) -> None:
    with pytest.raises(InputError, match="another engine"):
        model.execute(Stream(Engine(threads=1)), X)


def test_a_dropped_stream_ends_its_worker(engine: Engine, model: Executable) -> None:
    stream = Stream(engine, StreamFlags.PROFILING)
    model.execute(stream, X)
    stream.wait()
    worker, alive = stream._worker, weakref.ref(stream)
    del stream
    gc.collect()
    worker.join(60)
    assert not worker.is_alive()
    assert alive() is None


def test_a_dropped_stream_still_does_what_was_submitted(engine: Engine, model: Executable) -> None:
    stream = Stream(engine)
    go = threading.Event()
    stream.submit(lambda _: _pause(go))
    pending = model.execute(stream, X)
    worker = stream._worker
    del stream
    go.set()
    worker.join(60)
    np.testing.assert_allclose(pending.outputs[0], np.maximum(X + 1, 0))


def test_two_threads_run_one_model_on_two_streams(engine: Engine) -> None:
    build = GraphBuilder("deep")
    value = x = build.input("x", DType.F32, [64, 64])
    weights = build.const(np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64))
    for _ in range(6):
        value = build.op("Tanh", build.op("Add", build.op("MatMul", value, weights), x))
    build.output("y", value)
    graph = build.finish()
    model = compiled(graph, engine)
    given = [
        np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
        for seed in range(2)
    ]
    expected = [graph.run([each])[0] for each in given]
    wrong: list[int] = []
    ready = threading.Barrier(2)

    def work(mine: int) -> None:
        stream = Stream(engine, StreamFlags.PROFILING)
        ready.wait(60)
        for _ in range(10):
            pending = [model.execute(stream, given[mine]) for _ in range(5)]
            stream.wait()
            wrong.extend(
                mine
                for each in pending
                if not np.allclose(each.outputs[0], expected[mine], atol=1e-4)
            )
        if num_entries(stream) != 50:
            wrong.append(mine)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []


def test_a_stream_that_was_forked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(Engine(threads=1))
    monkeypatch.setattr("whence.runtime.stream.os.getpid", lambda: -1)
    with pytest.raises(StreamError, match="forked"):
        stream.submit(lambda _: None)
