"""Inputs and outputs in memory of the device that the application has: used where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import whence
from tests.runtime.models import parsed
from tests.runtime.stateful import accumulator
from tests.runtime.test_c_api import X, _network
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.interop.opencl import (
    get_command_queue,
    get_context,
    get_device,
    make_engine,
    make_stream,
)
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import DType

PROFILING = whence.StreamFlags.PROFILING


@pytest.fixture(scope="module")
def model(engine: Engine) -> Executable:
    return whence.compile(_network(), engine=engine)


@pytest.fixture
def stream(engine: Engine) -> whence.Stream:
    return whence.Stream(engine, PROFILING)


def _copies(model: Executable, stream: whence.Stream) -> dict[str, int]:
    """How many copies there were, by direction, since the last reset."""
    assert stream.profiler is not None
    samples, (program, *_) = stream.profiler.samples(), model.programs
    return {
        step.name: int((samples["step"] == step.number).sum())
        for step in program.steps
        if step.residual
    }


def _rooms(queue: Any, expected: list[np.ndarray]) -> list[cl_array.Array]:
    return [cl_array.zeros(queue, each.shape, each.dtype) for each in expected]


# ---- the objects of an engine ----


def test_the_objects_of_an_engine_and_a_stream(engine: Engine) -> None:
    context, device = get_context(engine), get_device(engine)
    assert device in context.devices
    # As in the profiling RFC: a queue on what the engine is on, and a stream with the queue.
    queue = cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
    stream = make_stream(engine, queue)
    assert get_command_queue(stream) is queue
    assert get_command_queue(whence.Stream(engine)).context == context
    other = whence.Engine(threads=1)
    for ask in (get_context, get_device):
        with pytest.raises(whence.InputError, match="only an opencl engine has OpenCL objects"):
            ask(other)
    with pytest.raises(whence.InputError, match="only an opencl engine has OpenCL objects"):
        get_command_queue(whence.Stream(other))


def test_what_is_no_object_of_opencl_is_refused(engine: Engine) -> None:
    for make in (
        lambda: make_engine(None),
        lambda: make_engine(get_context(engine), "cpu"),
        lambda: make_stream(engine, None),
        lambda: make_stream(None, None),  # type: ignore[arg-type]
        lambda: get_command_queue(None),  # type: ignore[arg-type]
        lambda: get_context(None),  # type: ignore[arg-type]
        lambda: get_device(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(whence.InputError):
            make()


# ---- memory of the device ----


def test_arrays_are_used_where_they_are(
    model: Executable, engine: Engine, stream: whence.Stream
) -> None:
    graph = _network()
    queue = get_command_queue(stream)
    for x in (X, -X):
        expected = graph.run([x])
        rooms = _rooms(queue, expected)
        pending = model.execute(stream, cl_array.to_device(queue, x), out=rooms)
        stream.wait()
        assert all(made is room for made, room in zip(pending.outputs, rooms, strict=True))
        for room, wanted in zip(rooms, expected, strict=True):
            np.testing.assert_allclose(room.get(), wanted, rtol=1e-5, atol=1e-6)
    # Of six outputs one is a constant, which is nowhere on the device; one is the input, and one
    # another output once more.
    assert _copies(model, stream) == {"copy to the device": 2, "copy from the device": 4}


def test_nothing_is_copied_that_kernels_read_and_write(
    engine: Engine, stream: whence.Stream
) -> None:
    build = GraphBuilder("plain")
    x = build.input("x", DType.F32, [8, 8])
    build.output("y", build.op("Softmax", build.op("MatMul", x, x)))
    graph = build.finish()
    model, queue = whence.compile(graph, engine=engine), get_command_queue(stream)
    (expected,) = graph.run([X])
    source = cl.Buffer(
        get_context(engine), cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=X
    )
    target = cl.Buffer(get_context(engine), cl.mem_flags.READ_WRITE, expected.nbytes)
    for _ in range(2):
        pending = model.execute(stream, source, out=[target])
        stream.wait()
    assert pending.outputs == [target]
    found = np.empty_like(expected)
    cl.enqueue_copy(queue, found, target)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert _copies(model, stream) == {"copy to the device": 0, "copy from the device": 0}
    # What the application gave is forgotten: a call without it is as ever.
    np.testing.assert_allclose(model(X), expected, rtol=1e-5)


def test_an_array_within_a_larger_one(
    model: Executable, engine: Engine, stream: whence.Stream
) -> None:
    queue = get_command_queue(stream)
    whole = cl_array.to_device(queue, np.stack([X, -X, 2 * X]))
    expected = _network().run([-X])
    rooms = [cl_array.zeros(queue, (3, *each.shape), each.dtype) for each in expected]
    model.execute(stream, whole[1], out=[room[2] for room in rooms])
    stream.wait()
    for room, wanted in zip(rooms, expected, strict=True):
        np.testing.assert_allclose(room.get()[2], wanted, rtol=1e-5, atol=1e-6)
        assert not room.get()[:2].any()


def test_some_on_the_device_and_some_on_the_host(
    model: Executable, engine: Engine, stream: whence.Stream
) -> None:
    expected = _network().run([X])
    room = cl_array.zeros(get_command_queue(stream), expected[0].shape, np.float32)
    pending = model.execute(stream, X, out=[room, *[None] * 5])
    stream.wait()
    np.testing.assert_allclose(room.get(), expected[0], rtol=1e-5)
    for made, wanted in zip(pending.outputs[1:], expected[1:], strict=True):
        assert isinstance(made, np.ndarray)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    given = cl_array.to_device(get_command_queue(stream), X)
    np.testing.assert_allclose(model(given)[0], expected[0], rtol=1e-5)


def test_what_the_host_computes_is_fetched_and_brought_back(
    engine: Engine, stream: whence.Stream
) -> None:
    build = GraphBuilder("half")
    narrow = build.op("Cast", build.input("x", DType.F32, [8, 8]), to=10)
    build.output("y", build.op("Cast", narrow, to=1))
    model, queue = whence.compile(build.finish(), engine=engine), get_command_queue(stream)
    room = cl_array.zeros(queue, X.shape, np.float32)
    model.execute(stream, cl_array.to_device(queue, X), out=[room])
    stream.wait()
    np.testing.assert_array_equal(room.get(), X.astype(np.float16).astype(np.float32))


def test_state_and_device_memory(engine: Engine, stream: whence.Stream) -> None:
    model, queue = whence.compile(accumulator(), engine=engine), get_command_queue(stream)
    x, room = cl_array.to_device(queue, np.ones(4, np.float32)), cl_array.zeros(queue, 4, "f4")
    found = []
    for _ in range(3):
        model.execute(stream, x, out=[room])
        stream.wait()
        found.append(float(room.get()[0]))
    assert found == [1, 2, 3]


def test_tensors_without_elements(engine: Engine, stream: whence.Stream) -> None:
    build = GraphBuilder("empty")
    build.output("y", build.op("Relu", build.input("x", DType.F32, [0, 3])))
    model, queue = whence.compile(build.finish(), engine=engine), get_command_queue(stream)
    x, room = (cl_array.zeros(queue, (0, 3), np.float32) for _ in range(2))
    pending = model.execute(stream, x, out=[room])
    stream.wait()
    assert pending.outputs[0] is room


# ---- what cannot be used ----


def _failing(model: Executable, stream: whence.Stream, *args: Any, **kwargs: Any) -> None:
    model.execute(stream, *args, **kwargs)
    stream.wait()


def test_what_does_not_fit_is_refused(
    model: Executable, engine: Engine, stream: whence.Stream
) -> None:
    queue = get_command_queue(stream)
    elsewhere = cl.Context([get_device(engine)])
    other = cl_array.to_device(cl.CommandQueue(elsewhere), X)
    given = cl_array.to_device(queue, X)
    rooms = _rooms(queue, _network().run([X]))
    for wrong, why in (
        (other, "input 'x' is in memory of another context"),
        (given[:4], "input 'x' is float32 of shape"),
        (given.astype(np.float64), "input 'x' is float64 of shape"),
        (given.T, "not dense"),
        (cl.Buffer(get_context(engine), cl.mem_flags.READ_ONLY, 255), "needs 256 bytes"),
        (queue, "input 'x' is a CommandQueue"),
    ):
        with pytest.raises(whence.InputError, match=why):
            _failing(model, stream, wrong)
    for out, why in (
        (rooms[:5], "a list of 6"),
        (rooms[0], "a list of 6"),
        ([rooms[1].T, *rooms[1:]], "output 'y' is not dense"),
        ([X, *rooms[1:]], "output 'y' is a ndarray"),
        ([other, *rooms[1:]], "output 'y' is in memory of another context"),
    ):
        with pytest.raises(whence.InputError, match=why):
            _failing(model, stream, X, out=out)
    with pytest.raises(whence.InputError, match="takes x"):
        _failing(model, stream, X, outputs=rooms)


def test_a_buffer_has_no_shape(engine: Engine, stream: whence.Stream) -> None:
    model = whence.compile(_doubled("n"), engine=engine)
    queue = get_command_queue(stream)
    with pytest.raises(whence.InputError, match=r"give a pyopencl\.array\.Array"):
        _failing(model, stream, cl.Buffer(get_context(engine), cl.mem_flags.READ_ONLY, 32))
    room = cl_array.zeros(queue, 5, np.float32)
    model.execute(stream, cl_array.to_device(queue, np.arange(5, dtype=np.float32)), out=[room])
    stream.wait()
    np.testing.assert_array_equal(room.get(), [0, 2, 4, 6, 8])


def _doubled(size: str) -> Graph:
    return parsed(f"double (float[{size}] x) => (float[{size}] y) {{ y = Add(x, x) }}")


def test_the_processor_takes_no_memory_for_outputs() -> None:
    engine = whence.Engine(threads=1)
    model, stream = whence.compile(_doubled("4"), engine=engine), whence.Stream(engine)
    model.execute(stream, np.zeros(4, np.float32), out=[np.zeros(4, np.float32)])
    with pytest.raises(whence.InputError, match="the cpu engine makes arrays for outputs"):
        stream.wait()


def test_an_input_called_out_stays_one(engine: Engine, stream: whence.Stream) -> None:
    build = GraphBuilder("out")
    build.output("y", build.op("Neg", build.input("out", DType.F32, [4])))
    model = whence.compile(build.finish(), engine=engine)
    pending = model.execute(stream, out=np.ones(4, np.float32))
    stream.wait()
    np.testing.assert_array_equal(pending.outputs[0], -np.ones(4))
