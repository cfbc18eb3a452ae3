"""Streams on queues, row by row of oneDNN's profiling semantics."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import whence
from whence.graph.builder import GraphBuilder
from whence.interop.opencl import get_context, get_device, make_engine, make_stream
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import DType

PROFILING, OUT_OF_ORDER = whence.StreamFlags.PROFILING, whence.StreamFlags.OUT_OF_ORDER
TIME = whence.ProfilingDataKind.TIME
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def small_model(engine: Engine, rows: int = 3) -> Executable:
    build = GraphBuilder("small")
    y = build.op(
        "Relu",
        build.op("Sub", build.input("x", DType.F32, (rows, 4)), build.const(np.float32(5.0))),
    )
    build.output("y", build.op("Softmax", y, axis=-1))
    return whence.compile(build.finish(), engine=engine)


@pytest.fixture(scope="module")
def model(engine: Engine) -> Executable:
    return small_model(engine)


def run(model: Executable, stream: whence.Stream, times: int = 1) -> None:
    for _ in range(times):
        model.execute(stream, X)
    stream.wait()


def own_queue(engine: Engine, *flags: str) -> Any:
    properties = sum(getattr(cl.command_queue_properties, flag) for flag in flags)
    return cl.CommandQueue(get_context(engine), get_device(engine), properties)


def test_the_result_is_that_of_the_processor(model: Executable) -> None:
    shifted = np.maximum(X - 5, 0)
    expected = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    np.testing.assert_allclose(model(X), expected, rtol=1e-5)


def test_one_entry_for_each_execution_in_the_order_of_submission(
    engine: Engine, model: Executable
) -> None:
    stream = whence.Stream(engine, PROFILING)
    assert whence.num_entries(stream) == 0
    assert whence.get_profiling_data(stream, TIME) == []
    run(model, stream, 3)
    assert whence.num_entries(stream) == 3
    assert all(time > 0 for time in whence.get_profiling_data(stream, TIME))


def test_an_entry_is_the_latest_end_less_the_earliest_begin_of_kernels(
    engine: Engine, model: Executable
) -> None:
    stream = whence.Stream(engine, PROFILING)
    run(model, stream, 2)
    assert stream.profiler is not None
    samples = stream.profiler.samples()
    (program,) = model.programs
    copies = [step.number for step in program.steps if step.residual]
    is_copy = np.isin(samples["step"], copies)
    for execution, time in enumerate(whence.get_profiling_data(stream, TIME)):
        own = samples[(samples["execution"] == execution) & ~is_copy]
        assert time == own["end"].max() - own["begin"].min()
        assert len(own) >= 1
        # Copies to and from the device have samples, and are no part of it.
        assert (is_copy & (samples["execution"] == execution)).sum() == 2


def test_an_execution_without_a_kernel_has_no_entry(engine: Engine) -> None:
    empty = small_model(engine, rows=0)
    stream = whence.Stream(engine, PROFILING)
    pending = empty.execute(stream, np.zeros((0, 4), np.float32))
    stream.wait()
    assert pending.outputs[0].shape == (0, 4)
    assert whence.num_entries(stream) == 0


def test_reset_forgets_and_nothing_else_does(engine: Engine, model: Executable) -> None:
    stream = whence.Stream(engine, PROFILING)
    run(model, stream)
    run(model, stream)
    assert whence.num_entries(stream) == 2
    whence.reset_profiling(stream)
    assert whence.num_entries(stream) == 0
    run(model, stream)
    assert whence.num_entries(stream) == 1


def test_without_the_flag_there_is_nothing_to_query(engine: Engine, model: Executable) -> None:
    stream = whence.Stream(engine)
    run(model, stream)
    for query in (
        whence.reset_profiling,
        whence.num_entries,
        lambda stream: whence.get_profiling_data(stream, TIME),
    ):
        with pytest.raises(whence.StreamError, match="not created with"):
            query(stream)


def test_query_before_wait_is_an_error(engine: Engine, model: Executable) -> None:
    stream = whence.Stream(engine, PROFILING)
    model.execute(stream, X)
    with pytest.raises(whence.StreamError, match="wait"):
        whence.get_profiling_data(stream, TIME)
    stream.wait()
    assert len(whence.get_profiling_data(stream, TIME)) == 1


def test_an_unknown_kind_is_refused(engine: Engine, model: Executable) -> None:
    stream = whence.Stream(engine, PROFILING)
    run(model, stream)
    with pytest.raises(whence.InputError, match="kind"):
        whence.get_profiling_data(stream, 77)


def test_profiling_must_be_in_order(engine: Engine) -> None:
    with pytest.raises(whence.InputError, match="in order"):
        whence.Stream(engine, PROFILING | OUT_OF_ORDER)
    with pytest.raises(whence.InputError, match="in order"):
        make_stream(engine, own_queue(engine, "PROFILING_ENABLE", "OUT_OF_ORDER_EXEC_MODE_ENABLE"))


def test_profiling_is_inferred_from_the_applications_queue(
    engine: Engine, model: Executable
) -> None:
    profiled = make_stream(engine, own_queue(engine, "PROFILING_ENABLE"))
    run(model, profiled)
    assert len(whence.get_profiling_data(profiled, TIME)) == 1
    plain = make_stream(engine, own_queue(engine))
    run(model, plain)
    with pytest.raises(whence.StreamError, match="not created with"):
        whence.get_profiling_data(plain, TIME)


def test_runs_go_to_the_applications_queue(engine: Engine, model: Executable) -> None:
    queue = own_queue(engine, "PROFILING_ENABLE")
    stream = make_stream(engine, queue)
    gate = cl.UserEvent(get_context(engine))
    cl.enqueue_barrier(queue, wait_for=[gate])
    pending = model.execute(stream, X)
    waiter = threading.Thread(target=stream.wait)
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive(), "the run did not wait for what stood before it in the queue"
    gate.set_status(cl.command_execution_status.COMPLETE)
    waiter.join(30)
    np.testing.assert_array_equal(pending.outputs[0], model(X))


def test_a_queue_of_another_context_is_refused(engine: Engine) -> None:
    elsewhere = cl.Context([get_device(engine)])
    with pytest.raises(whence.InputError, match="make_engine"):
        make_stream(engine, cl.CommandQueue(elsewhere))
    with pytest.raises(whence.InputError, match="needs an opencl engine"):
        make_stream(whence.Engine(threads=1), cl.CommandQueue(elsewhere))


def test_an_engine_on_the_applications_context(engine: Engine) -> None:
    context = cl.Context([get_device(engine)])
    own = make_engine(context)
    assert get_context(own) is context
    stream = make_stream(
        own, cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    )
    run(small_model(own), stream)
    assert whence.num_entries(stream) == 1


def test_streams_do_not_see_each_other(engine: Engine, model: Executable) -> None:
    streams = [whence.Stream(engine, PROFILING) for _ in range(3)]
    for count, stream in enumerate(streams, 1):
        for _ in range(count):
            model.execute(stream, X)
    for stream in streams:
        stream.wait()
    assert [whence.num_entries(stream) for stream in streams] == [1, 2, 3]


def test_executions_of_one_stream_follow_each_other(engine: Engine, model: Executable) -> None:
    stream = whence.Stream(engine, PROFILING)
    threads = [threading.Thread(target=model.execute, args=(stream, X)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.wait()
    assert stream.profiler is not None
    samples = stream.profiler.samples()
    spans = sorted(
        (
            samples["begin"][samples["execution"] == each].min(),
            samples["end"][samples["execution"] == each].max(),
        )
        for each in range(4)
    )
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
