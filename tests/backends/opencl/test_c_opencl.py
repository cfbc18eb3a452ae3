"""A model compiled for OpenCL as a C program sees it, on a device, a context and queues that the
application made.
"""

from __future__ import annotations

import csv
import ctypes
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from tests.backends.opencl.loader import environment, linked_with_opencl, opencl_library
from tests.runtime.models import assert_same
from tests.runtime.stateful import GRAPHS, calls, interpreted
from tests.runtime.test_c_api import (
    DEFAULT,
    INVALID_ARGUMENTS,
    PROFILING,
    RUNTIME_ERROR,
    SUCCESS,
    Model,
    X,
    _network,
    _step,
)
from tests.runtime.zig import zig_cc
from whence.backends.opencl.export import export_opencl, plan_export
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.interop.opencl import get_device
from whence.runtime.engine import Engine
from whence.types import DType

EXAMPLE = Path(__file__).parents[3] / "examples" / "opencl_profiling.c"


class DeviceModel(Model):
    """An exported model, loaded and created on a device of the application's."""

    def __init__(self, graph: Graph, context: Any, folder: Path) -> None:
        self.graph = graph
        self.context = context
        self.given_away: list[np.ndarray] = []
        library, *_, self.weights, _, self.kernels = export_opencl(
            plan_export(graph), Toolchain(), folder, "net"
        )
        # The library leaves OpenCL's functions to the process.
        ctypes.CDLL(opencl_library(), ctypes.RTLD_GLOBAL)
        self.code = ctypes.CDLL(str(library))
        for name in ("get_context", "get_device", "get_command_queue"):
            getattr(self.code, f"whence_opencl_{name}").restype = ctypes.c_void_p
        for name in ("whence_input_bytes", "whence_output_bytes"):
            getattr(self.code, name).restype = ctypes.c_int64
        self.code.whence_step_name.restype = ctypes.c_char_p
        self.code.net_description.restype = ctypes.c_void_p
        self.description = ctypes.c_void_p(self.code.net_description())
        self.engine, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        assert (
            self.code.whence_opencl_engine_create(
                ctypes.byref(self.engine), _pointer(context.devices[0]), _pointer(context)
            )
            == SUCCESS
        )
        assert self.create() == SUCCESS

    def create(self, _: int = 1, weights: Path | None = None) -> int:
        files = [str(file).encode() for file in (self.kernels, weights or self.weights)]
        return int(
            self.code.whence_opencl_model_create(
                ctypes.byref(self.handle), self.engine, self.description, *files
            )
        )

    def on(self, queue: Any) -> tuple[int, ctypes.c_void_p]:
        """A stream on a queue of the application's."""
        handle = ctypes.c_void_p()
        status = self.code.whence_opencl_stream_create(
            ctypes.byref(handle), self.handle, _pointer(queue)
        )
        return int(status), handle

    def execute_on_device(
        self, stream: ctypes.c_void_p, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> int:
        given = (ctypes.c_void_p * max(len(inputs), 1))(*map(_pointer, inputs))
        taken = (ctypes.c_void_p * max(len(outputs), 1))(*map(_pointer, outputs))
        return int(self.code.whence_opencl_execute(stream, given, taken))

    def close(self) -> None:
        self.code.whence_model_destroy(self.handle)
        self.code.whence_opencl_engine_destroy(self.engine)


def _pointer(thing: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if thing is None else thing.int_ptr)


def _queue(context: Any, *flags: str) -> Any:
    properties = sum(getattr(cl.command_queue_properties, flag) for flag in flags)
    return cl.CommandQueue(context, context.devices[0], properties)


@pytest.fixture(scope="module")
def context(engine: Engine) -> Any:
    return cl.Context([get_device(engine)])


@pytest.fixture(scope="module")
def model(context: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceModel]:
    made = DeviceModel(_network(), context, tmp_path_factory.mktemp("network"))
    yield made
    made.close()


# ---- the example ----


def test_the_example_runs_on_a_queue_of_its_own(tmp_path: Path) -> None:
    planned = plan_export(_network())
    export_opencl(planned, Toolchain(), tmp_path, "net")
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{Path(__file__).parent}")
    link = ("-DMODEL=net", "-I.", "-L.", "-lnet", *linked_with_opencl(), "-Wl,-rpath,$ORIGIN")
    zig_cc(Toolchain(), tmp_path, str(EXAMPLE), *strict, *link, "-o", "program")
    done = subprocess.run(
        ["./program", "net.cl", "net.weights", "samples.csv"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["execution 0", "execution 1"]
    assert all(re.fullmatch(r"execution \d: [1-9]\d* ns", line) for line in lines[:2])
    assert any(re.fullmatch(r"2 x fuse_matmul: hidden: [1-9]\d* ns", line) for line in lines)
    with (tmp_path / "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kernels = len(planned.launches)
    runs = [[int(row["kernel_id"]) for row in rows if row["execution"] == run] for run in "01"]
    assert runs[0] == runs[1]
    assert [step for step in runs[0] if step < kernels] == list(range(kernels))


def test_the_written_sources_are_clean(tmp_path: Path) -> None:
    export_opencl(plan_export(_network()), Toolchain(), tmp_path, "net")
    sources = sorted(path.name for path in (tmp_path / "src").glob("*.c"))
    strict = ("-Wall", "-Wextra", "-Werror", "-c")
    assert zig_cc(Toolchain(), tmp_path / "src", *strict, *sources) == ""
    # An application in C++ that has the types from elsewhere, before or after.
    (tmp_path / "use.cc").write_text(
        '#include "net.h"\n#include <CL/cl.h>\n#include "net.h"\n'
        "cl_context use(whence_engine_t e) { return whence_opencl_get_context(e); }\n"
    )
    include = ("-nostdinc++", f"-I{Path(__file__).parent}")
    assert zig_cc(Toolchain(), tmp_path, *strict, "-std=c++11", *include, "use.cc") == ""


# ---- the application's own objects ----


def test_the_engine_is_on_what_it_was_given(model: DeviceModel, context: Any) -> None:
    assert model.code.whence_opencl_get_context(model.engine) == context.int_ptr
    assert model.code.whence_opencl_get_device(model.engine) == context.devices[0].int_ptr
    queue = _queue(context, "PROFILING_ENABLE")
    status, stream = model.on(queue)
    assert status == SUCCESS
    assert model.code.whence_opencl_get_command_queue(stream) == queue.int_ptr
    model.code.whence_stream_destroy(stream)


def test_without_a_device_or_a_context_there_is_one(model: DeviceModel, context: Any) -> None:
    for given in (None, context):
        made = ctypes.c_void_p()
        create = model.code.whence_opencl_engine_create
        assert create(ctypes.byref(made), None, _pointer(given)) == SUCCESS
        assert model.code.whence_opencl_get_device(made)
        assert model.code.whence_opencl_get_context(made)
        model.code.whence_opencl_engine_destroy(made)


def test_memory_of_the_device_is_used_where_it_is(model: DeviceModel, context: Any) -> None:
    queue = _queue(context, "PROFILING_ENABLE")
    _, stream = model.on(queue)
    flags = cl.mem_flags
    x = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=X)
    expected = model.graph.run([X])
    outputs = [cl.Buffer(context, flags.READ_WRITE, each.nbytes) for each in expected]
    assert model.execute_on_device(stream, [x], outputs) == SUCCESS
    # In order behind it on the queue: nobody has waited yet.
    found = [np.empty_like(each) for each in expected]
    for host, device in zip(found, outputs, strict=True):
        cl.enqueue_copy(queue, host, device)
    assert_same(found, expected)
    assert model.code.whence_stream_wait(stream) == SUCCESS
    last = model.code.whence_step_count(model.handle) - 1
    assert _step(model, stream, last - 1) == (SUCCESS, 0, 0), "nothing was copied to the device"
    model.code.whence_stream_destroy(stream)


def test_memory_of_the_host_is_copied_and_that_is_named(model: DeviceModel) -> None:
    stream = model.stream(PROFILING)
    for x in (X, -X):
        assert_same(model.run(stream, x), model.graph.run([x]))
    steps = [
        (model.code.whence_step_name(model.handle, step).decode(), *_step(model, stream, step))
        for step in range(model.code.whence_step_count(model.handle))
    ]
    assert [name for name, *_ in steps[-2:]] == ["copy to the device", "copy from the device"]
    assert steps[-2][2] == 2, "one input in each execution"
    assert steps[-1][2] == 2 * 6, "six outputs in each execution"
    assert all(calls == 2 for _, _, calls, _ in steps[:-2])
    assert sum(time for *_, time in steps[:-2]) <= sum(model.times(stream)[1])
    model.code.whence_stream_destroy(stream)


def test_profiling_is_inferred_from_the_queue(model: DeviceModel, context: Any) -> None:
    _, plain = model.on(_queue(context))
    model.run(plain, X)
    assert model.count(plain) == (INVALID_ARGUMENTS, -7)
    _, profiled = model.on(_queue(context, "PROFILING_ENABLE"))
    assert model.execute(profiled, [X])[0] == SUCCESS
    assert model.count(profiled) == (RUNTIME_ERROR, -7)
    assert model.code.whence_stream_wait(profiled) == SUCCESS
    assert model.count(profiled) == (SUCCESS, 1)
    assert model.code.whence_reset_profiling(profiled) == SUCCESS
    assert model.times(profiled) == (SUCCESS, [])
    for stream in (plain, profiled):
        model.code.whence_stream_destroy(stream)


def test_what_does_not_fit_is_refused(model: DeviceModel, context: Any) -> None:
    elsewhere = cl.Context(context.devices)
    assert model.on(_queue(elsewhere))[0] == INVALID_ARGUMENTS
    assert model.on(_queue(context, "OUT_OF_ORDER_EXEC_MODE_ENABLE"))[0] == INVALID_ARGUMENTS
    assert model.on(None)[0] == INVALID_ARGUMENTS
    _, stream = model.on(_queue(context))
    sizes = [model.code.whence_output_bytes(model.handle, index) for index in range(6)]

    def run(x: Any, *outputs: Any) -> int:
        return model.execute_on_device(stream, [x], outputs)

    def room(size: int, where: Any = context) -> Any:
        return cl.Buffer(where, cl.mem_flags.READ_WRITE, size)

    outputs = [room(size) for size in sizes]
    assert run(room(255), *outputs) == INVALID_ARGUMENTS
    assert run(None, *outputs) == INVALID_ARGUMENTS
    assert run(room(256, elsewhere), *outputs) == INVALID_ARGUMENTS
    assert run(room(256), room(255), *outputs[1:]) == INVALID_ARGUMENTS
    assert run(room(256), *outputs) == SUCCESS
    model.code.whence_stream_destroy(stream)
    made = ctypes.c_void_p()
    assert (
        model.code.whence_opencl_engine_create(None, None, _pointer(context)) == INVALID_ARGUMENTS
    )
    files = [str(file).encode() for file in (model.kernels, model.weights)]
    create = model.code.whence_opencl_model_create
    for arguments in (
        (None, model.engine, model.description, *files),
        (ctypes.byref(made), None, model.description, *files),
        (ctypes.byref(made), model.engine, None, *files),
        (ctypes.byref(made), model.engine, model.description, None, files[1]),
        (ctypes.byref(made), model.engine, model.description, b"/nowhere", files[1]),
        (ctypes.byref(made), model.engine, model.description, files[0], b"/nowhere"),
    ):
        assert create(*arguments) == INVALID_ARGUMENTS
    assert made.value is None
    assert model.code.whence_opencl_execute(None, None, None) == INVALID_ARGUMENTS
    assert model.code.whence_opencl_get_context(None) is None
    assert model.code.whence_opencl_get_command_queue(None) is None
    model.code.whence_opencl_engine_destroy(None)


# ---- executions ----


def test_two_threads_on_one_stream(model: DeviceModel, context: Any) -> None:
    _, stream = model.on(_queue(context, "PROFILING_ENABLE"))
    expected = {sign: model.graph.run([sign * X]) for sign in (1, -1)}
    wrong: list[int] = []

    def work(sign: int) -> None:
        given = (sign * X).astype(np.float32)
        for _ in range(100):
            made = model.run(stream, given)
            pairs = zip(made, expected[sign], strict=True)
            if not all(np.allclose(one, two, atol=1e-5) for one, two in pairs):
                wrong.append(sign)

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
    assert model.count(stream) == (SUCCESS, 200)
    model.code.whence_stream_destroy(stream)


def test_conditions_are_decided_between_kernels(context: Any, tmp_path: Path) -> None:
    build = GraphBuilder("branch")
    x, c = build.input("x", DType.F32, [8, 8]), build.input("c", DType.BOOL, ())
    one, other = build.op("Softmax", x, name="one"), build.op("MatMul", x, x, name="other")
    build.output("y", build.op("Choose", c, one, other))
    made = DeviceModel(build.finish(), context, tmp_path)
    stream = made.stream()
    for taken in (True, False, False):
        assert_same(made.run(stream, X, np.array(taken)), made.graph.run([X, np.array(taken)]))
    calls = {
        made.code.whence_step_name(made.handle, step).decode(): _step(made, stream, step)[1]
        for step in range(made.code.whence_step_count(made.handle))
    }
    assert calls["fuse_softmax: one"] == 1
    assert calls["fuse_matmul: other"] == 2
    made.code.whence_stream_destroy(stream)
    made.close()


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_variables_stay_on_the_device(
    make: Callable[[], Graph], context: Any, tmp_path: Path
) -> None:
    graph = make()
    made = DeviceModel(graph, context, tmp_path)
    inputs = calls(graph, 10)
    streams = [made.stream(DEFAULT) for _ in range(2)]
    for given, expected in zip(inputs, interpreted(graph, inputs), strict=True):
        for stream in streams:
            for one, other in zip(made.run(stream, *given), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-4)
    assert made.code.whence_reset_state(streams[0]) == SUCCESS
    (first, *_) = interpreted(graph, inputs)
    for one, other in zip(made.run(streams[0], *inputs[0]), first, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-4)
    for stream in streams:
        made.code.whence_stream_destroy(stream)
    made.close()


def test_an_execution_without_a_kernel_has_no_entry(context: Any, tmp_path: Path) -> None:
    build = GraphBuilder("through")
    build.output("x", build.input("x", DType.F32, [4]))
    build.output("none", build.op("Relu", build.input("empty", DType.F32, [0, 3])))
    made = DeviceModel(build.finish(), context, tmp_path)
    stream = made.stream()
    given = [np.arange(4, dtype=np.float32), np.zeros((0, 3), np.float32)]
    assert_same(made.run(stream, *given), given)
    assert made.count(stream) == (SUCCESS, 0)
    made.code.whence_stream_destroy(stream)
    made.close()


def test_the_processor_and_a_device_in_one_process(model: DeviceModel, tmp_path: Path) -> None:
    """Each library has its own copy of whence.h's functions: either works on models of both."""
    other = Model(_network(), Engine(threads=1), tmp_path)
    streams = {each: each.stream(DEFAULT) for each in (model, other)}
    for code in (model.code, other.code):
        for owner, stream in streams.items():
            mine, owner.code = owner.code, code
            assert_same(owner.run(stream, X), owner.graph.run([X]))
            owner.code = mine
    pointers = (ctypes.c_void_p * 6)(*[X.ctypes.data] * 6)
    assert model.code.whence_opencl_execute(streams[other], pointers, pointers) == INVALID_ARGUMENTS
    assert model.code.whence_opencl_get_command_queue(streams[other]) is None
    for owner, stream in streams.items():
        owner.code.whence_stream_destroy(stream)
    other.code.whence_model_destroy(other.handle)


def test_double_precision_is_asked_for_where_it_is_needed() -> None:
    build = GraphBuilder("double")
    build.output("y", build.op("Exp", build.input("x", DType.F64, [4])))
    assert plan_export(build.finish()).needs_doubles
    assert not plan_export(_network()).needs_doubles


def test_what_has_no_kernel_is_refused_by_name() -> None:
    build = GraphBuilder("half")
    x = build.op("Cast", build.input("x", DType.F32, [4]), name="narrow", to=10)
    build.output("y", build.op("Cast", x, name="wide", to=1))
    with pytest.raises(UnsupportedError, match=r"have no OpenCL kernel .*'narrow'"):
        plan_export(build.finish())
