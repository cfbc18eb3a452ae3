"""A compiled model as a C program sees it: results, and the status of every row of the profiling
interface.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.building.layers import Layers, small_cache
from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, relu
from tests.runtime.zig import zig_cc
from whence.backends.cpu.generator import build_program
from whence.building.export import export
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType, TensorType

SUCCESS, OUT_OF_MEMORY, INVALID_ARGUMENTS, UNIMPLEMENTED, RUNTIME_ERROR = 0, 1, 2, 3, 5
DEFAULT, OUT_OF_ORDER, PROFILING = 1, 2, 4
UNDEF, TIME = 0, 1
EXAMPLE = Path(__file__).parents[2] / "examples" / "run_model.c"


def _network() -> Graph:
    """Several kernels, constants, and outputs of every sort."""
    build = GraphBuilder("network")
    x = build.input("x", DType.F32, [8, 8])
    weights = build.const(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))
    hidden = build.op("Softmax", build.op("MatMul", x, weights, name="hidden"), name="shares")
    build.output("y", build.op("MatMul", hidden, weights, name="last"))
    build.output("hidden", hidden)
    build.output("hidden again", build.op("Reshape", hidden, build.const(np.array([64]))))
    build.output("x", x)
    build.output("constant", build.const(np.array([1, 2, 3], np.int16)))
    build.output("total", build.op("ReduceSum", x, keepdims=0))
    return build.finish()


class Model:
    """An exported model, loaded and created."""

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        folder: Path,
        threads: int = 2,
        toolchain: Toolchain | None = None,
    ) -> None:
        self.graph = graph
        toolchain = toolchain or cpu_backend(engine).toolchain
        self.given_away: list[np.ndarray] = []
        """What executions may still be writing to, whether or not the test looks at it."""
        library, header, _, self.weights, _ = export(
            build_program(graph, toolchain, load=False), toolchain, folder, "net"
        )
        self.code = ctypes.CDLL(str(library))
        for name in ("whence_input_bytes", "whence_output_bytes"):
            getattr(self.code, name).restype = ctypes.c_int64
        self.code.whence_step_name.restype = ctypes.c_char_p
        self.code.net_description.restype = ctypes.c_void_p
        self.description = ctypes.c_void_p(self.code.net_description())
        self.handle = ctypes.c_void_p()
        assert self.create(threads) == SUCCESS
        self.header = header

    def create(self, threads: int = 1, weights: Path | None = None) -> int:
        file = str(self.weights if weights is None else weights).encode()
        return int(
            self.code.whence_model_create(
                ctypes.byref(self.handle), self.description, file, threads
            )
        )

    def stream(self, flags: int = PROFILING) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert self.code.whence_stream_create(ctypes.byref(handle), self.handle, flags) == SUCCESS
        return handle

    def execute(
        self, stream: ctypes.c_void_p, inputs: Sequence[np.ndarray]
    ) -> tuple[int, list[np.ndarray]]:
        made = []
        for node in self.graph.outputs:
            (ref,) = node.inputs
            assert ref is not None
            kind = self.graph.type_of(ref)
            assert isinstance(kind, TensorType)
            made.append(np.zeros(kind.static_shape or (), kind.dtype.numpy))
        self.given_away += made
        given = (ctypes.c_void_p * max(len(inputs), 1))(*(each.ctypes.data for each in inputs))
        taken = (ctypes.c_void_p * max(len(made), 1))(*(each.ctypes.data for each in made))
        return int(self.code.whence_execute(stream, given, taken)), made

    def run(self, stream: ctypes.c_void_p, *inputs: np.ndarray) -> list[np.ndarray]:
        status, made = self.execute(stream, inputs)
        assert status == SUCCESS
        assert self.code.whence_stream_wait(stream) == SUCCESS
        return made

    def count(self, stream: ctypes.c_void_p) -> tuple[int, int]:
        number = ctypes.c_int(-7)
        status = self.code.whence_query_profiling_data(stream, UNDEF, ctypes.byref(number), None)
        return int(status), number.value

    def times(
        self, stream: ctypes.c_void_p, kind: int = TIME, room: int = 300
    ) -> tuple[int, list[int]]:
        data = (ctypes.c_uint64 * room)(*[2**64 - 1] * room)
        number = ctypes.c_int(-7)
        status = int(
            self.code.whence_query_profiling_data(stream, kind, ctypes.byref(number), data)
        )
        assert number.value == -7, "with data, the count is neither read nor written"
        return status, [value for value in data if value != 2**64 - 1]


@pytest.fixture(scope="module")
def model(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    made = Model(_network(), engine, tmp_path_factory.mktemp("network"))
    yield made
    made.code.whence_model_destroy(made.handle)


X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_that_are_interleaved_where_one_thread_runs_them(
    engine: Engine, tmp_path: Path, threads: int
) -> None:
    layers = Layers(16, 33, 29)
    graph = layers.finish(layers.inverted_residual(layers.x, 16, 48))
    toolchain = small_cache(cpu_backend(engine).toolchain)
    model = Model(graph, engine, tmp_path, threads, toolchain)
    text = (tmp_path / "src" / "net.c").read_text()
    assert re.search(r"wh_range ranges\[\] = \{(\n  \{\d+, \d+, \d+\},){9}", text)
    stream = model.stream()
    (found,) = model.run(stream, layers.data())
    (expected,) = graph.run([layers.data()])
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-4)
    assert model.count(stream) == (SUCCESS, 1)


def test_results_are_those_of_the_interpreter(model: Model) -> None:
    stream = model.stream(DEFAULT)
    for x in (X, -X, np.zeros_like(X)):
        assert_same(model.run(stream, x), model.graph.run([x]))
    model.code.whence_stream_destroy(stream)


def test_conditions_are_decided_in_c(engine: Engine, tmp_path: Path) -> None:
    build = GraphBuilder("branch")
    x, c = build.input("x", DType.F32, [8, 8]), build.input("c", DType.BOOL, ())
    build.output(
        "y",
        build.op(
            "Choose", c, build.op("Softmax", x, name="one"), build.op("MatMul", x, x, name="other")
        ),
    )
    made = Model(build.finish(), engine, tmp_path)
    stream = made.stream()
    for turn, taken in enumerate((True, False, False), 1):
        assert_same(made.run(stream, X, np.array(taken)), made.graph.run([X, np.array(taken)]))
        assert (
            sum(
                _step(made, stream, step)[1]
                for step in range(made.code.whence_step_count(made.handle))
            )
            == 2 * turn
        )
    made.code.whence_stream_destroy(stream)
    made.code.whence_model_destroy(made.handle)


def test_sizes_are_told(model: Model) -> None:
    code = model.code
    assert (code.whence_input_count(model.handle), code.whence_output_count(model.handle)) == (1, 6)
    assert [code.whence_input_bytes(model.handle, index) for index in (-1, 0, 1)] == [-1, 256, -1]
    assert [code.whence_output_bytes(model.handle, index) for index in range(7)] == [
        256,
        256,
        256,
        256,
        6,
        4,
        -1,
    ]
    assert (
        code.whence_input_count(None),
        code.whence_output_count(None),
        code.whence_input_bytes(None, 0),
    ) == (0, 0, -1)


# ---- profiling, row by row ----


def test_a_stream_without_the_flag(model: Model) -> None:
    stream = model.stream(DEFAULT)
    model.run(stream, X)
    assert model.count(stream) == (INVALID_ARGUMENTS, -7)
    assert model.times(stream) == (INVALID_ARGUMENTS, [])
    assert model.code.whence_reset_profiling(stream) == INVALID_ARGUMENTS
    assert _step(model, stream, 0)[0] == INVALID_ARGUMENTS
    model.code.whence_stream_destroy(stream)


@pytest.mark.parametrize("flags", [OUT_OF_ORDER, OUT_OF_ORDER | PROFILING, 8, 0x80000000])
def test_flags_that_cannot_be_kept(model: Model, flags: int) -> None:
    handle = ctypes.c_void_p()
    assert (
        model.code.whence_stream_create(ctypes.byref(handle), model.handle, ctypes.c_uint(flags))
        == INVALID_ARGUMENTS
    )
    assert handle.value is None


def test_count_then_data(model: Model) -> None:
    stream = model.stream()
    assert model.count(stream) == (SUCCESS, 0)
    assert model.times(stream) == (SUCCESS, [])
    for _ in range(3):
        model.run(stream, X)
    assert model.count(stream) == (SUCCESS, 3)
    status, times = model.times(stream)
    assert status == SUCCESS
    assert len(times) == 3
    assert all(0 < each < 10**11 for each in times)
    model.code.whence_stream_destroy(stream)


def test_a_count_without_room_for_it(model: Model) -> None:
    stream = model.stream()
    data = (ctypes.c_uint64 * 4)()
    assert model.code.whence_query_profiling_data(stream, TIME, None, None) == INVALID_ARGUMENTS
    assert model.code.whence_query_profiling_data(stream, TIME, None, data) == INVALID_ARGUMENTS
    model.code.whence_stream_destroy(stream)


@pytest.mark.parametrize("kind", [UNDEF, 2, 257])
def test_an_unknown_kind_matters_only_with_data(model: Model, kind: int) -> None:
    stream = model.stream()
    model.run(stream, X)
    assert model.times(stream, kind) == (INVALID_ARGUMENTS, [])
    number = ctypes.c_int(-7)
    assert (
        model.code.whence_query_profiling_data(stream, kind, ctypes.byref(number), None) == SUCCESS
    )
    assert number.value == 1
    model.code.whence_stream_destroy(stream)


def test_a_query_before_the_wait(model: Model) -> None:
    stream = model.stream()
    status, _ = model.execute(stream, [X])
    assert status == SUCCESS
    assert model.count(stream) == (RUNTIME_ERROR, -7)
    assert model.times(stream) == (RUNTIME_ERROR, [])
    assert model.code.whence_reset_profiling(stream) == RUNTIME_ERROR
    assert _step(model, stream, 0)[0] == RUNTIME_ERROR
    assert model.code.whence_stream_wait(stream) == SUCCESS
    assert model.count(stream) == (SUCCESS, 1)
    model.code.whence_stream_destroy(stream)


def test_reset_and_growth(model: Model) -> None:
    stream = model.stream()
    for _ in range(150):
        assert model.execute(stream, [X])[0] == SUCCESS
    model.code.whence_stream_wait(stream)
    assert model.count(stream) == (SUCCESS, 150)
    assert len(model.times(stream)[1]) == 150
    assert model.code.whence_reset_profiling(stream) == SUCCESS
    assert model.count(stream) == (SUCCESS, 0)
    assert _step(model, stream, 0) == (SUCCESS, 0, 0)
    model.run(stream, X)
    assert model.count(stream) == (SUCCESS, 1)
    model.code.whence_stream_destroy(stream)


def test_streams_are_independent(model: Model) -> None:
    one, two = model.stream(), model.stream()
    model.run(one, X)
    assert (model.count(one), model.count(two)) == ((SUCCESS, 1), (SUCCESS, 0))
    for stream in (one, two):
        model.code.whence_stream_destroy(stream)


def _step(model: Model, stream: ctypes.c_void_p, step: int) -> tuple[int, int, int]:
    calls, nanoseconds = ctypes.c_uint64(0), ctypes.c_uint64(0)
    status = model.code.whence_query_step(
        stream, step, ctypes.byref(calls), ctypes.byref(nanoseconds)
    )
    return int(status), calls.value, nanoseconds.value


def test_under_an_execution_lie_its_steps(model: Model) -> None:
    stream = model.stream()
    for _ in range(4):
        model.run(stream, X)
    steps = [
        _step(model, stream, step) for step in range(model.code.whence_step_count(model.handle))
    ]
    assert all((status, calls) == (SUCCESS, 4) for status, calls, _ in steps)
    assert sum(nanoseconds for _, _, nanoseconds in steps) == sum(model.times(stream)[1])
    names = [model.code.whence_step_name(model.handle, step).decode() for step in range(len(steps))]
    assert any("hidden" in name for name in names)
    assert any("last" in name for name in names)
    for outside in (-1, len(steps)):
        assert model.code.whence_step_name(model.handle, outside) is None
        assert _step(model, stream, outside)[0] == INVALID_ARGUMENTS
    model.code.whence_stream_destroy(stream)


def test_null_is_refused_everywhere(model: Model) -> None:
    code, nothing = model.code, None
    stream = model.stream()
    handle, number = ctypes.c_void_p(), ctypes.c_int()
    weights = str(model.weights).encode()
    pointer = (ctypes.c_void_p * 6)()
    assert code.whence_model_create(nothing, model.description, weights, 1) == INVALID_ARGUMENTS
    assert code.whence_model_create(ctypes.byref(handle), nothing, weights, 1) == INVALID_ARGUMENTS
    assert (
        code.whence_model_create(ctypes.byref(handle), model.description, nothing, 1)
        == INVALID_ARGUMENTS
    )
    assert (
        code.whence_model_create(ctypes.byref(handle), model.description, weights, -1)
        == INVALID_ARGUMENTS
    )
    assert code.whence_stream_create(nothing, model.handle, DEFAULT) == INVALID_ARGUMENTS
    assert code.whence_stream_create(ctypes.byref(handle), nothing, DEFAULT) == INVALID_ARGUMENTS
    assert code.whence_execute(nothing, pointer, pointer) == INVALID_ARGUMENTS
    assert code.whence_execute(stream, nothing, pointer) == INVALID_ARGUMENTS
    assert code.whence_execute(stream, pointer, pointer) == INVALID_ARGUMENTS
    assert (
        code.whence_execute(stream, (ctypes.c_void_p * 1)(X.ctypes.data), nothing)
        == INVALID_ARGUMENTS
    )
    assert code.whence_stream_wait(nothing) == INVALID_ARGUMENTS
    assert code.whence_reset_profiling(nothing) == INVALID_ARGUMENTS
    assert (
        code.whence_query_profiling_data(nothing, TIME, ctypes.byref(number), nothing)
        == INVALID_ARGUMENTS
    )
    assert code.whence_query_step(stream, 0, nothing, nothing) == INVALID_ARGUMENTS
    assert code.whence_step_count(nothing) == 0
    code.whence_model_destroy(nothing)
    code.whence_stream_destroy(nothing)
    assert handle.value is None
    assert model.count(stream) == (SUCCESS, 0), "what was refused is no execution"
    code.whence_stream_destroy(stream)


def test_weights_that_are_not_this_model_s(model: Model, tmp_path: Path) -> None:
    before = model.handle.value
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "long").write_bytes(model.weights.read_bytes() + b"x")
    for file in (tmp_path / "none", tmp_path, tmp_path / "short", tmp_path / "long"):
        assert model.create(1, file) == INVALID_ARGUMENTS
    assert model.handle.value == before


def test_an_execution_without_a_step_has_no_entry(engine: Engine, tmp_path: Path) -> None:
    build = GraphBuilder("through")
    x = build.input("x", DType.F32, [4])
    empty = build.input("empty", DType.F32, [0, 3])
    build.output("x", x)
    build.output("none", build.op("Relu", empty))
    model = Model(build.finish(), engine, tmp_path)
    stream = model.stream()
    given = np.arange(4, dtype=np.float32)
    assert_same(
        model.run(stream, given, np.zeros((0, 3), np.float32)),
        [given, np.zeros((0, 3), np.float32)],
    )
    assert model.count(stream) == (SUCCESS, 0)
    assert model.times(stream) == (SUCCESS, [])
    model.code.whence_stream_destroy(stream)
    model.code.whence_model_destroy(model.handle)


def test_two_threads_on_two_streams(model: Model) -> None:
    expected = {sign: model.graph.run([sign * X]) for sign in (1, -1)}
    wrong: list[int] = []

    def work(sign: int) -> None:
        stream = model.stream()
        given = (sign * X).astype(np.float32)
        for _ in range(50):
            result = model.run(stream, given)
            if not all(
                np.allclose(one, two, atol=1e-5)
                for one, two in zip(result, expected[sign], strict=True)
            ):
                wrong.append(sign)
        if model.count(stream) != (SUCCESS, 50):
            wrong.append(0)
        model.code.whence_stream_destroy(stream)

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


# ---- the example ----


def test_the_example_builds_and_runs(engine: Engine, tmp_path: Path) -> None:
    export(
        build_program(relu(16, 16), cpu_backend(engine).toolchain, load=False),
        cpu_backend(engine).toolchain,
        tmp_path,
        "net",
    )
    flags = (
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-DMODEL=net",
        "-I.",
        "-L.",
        "-lnet",
        "-Wl,-rpath,$ORIGIN",
    )
    zig_cc(cpu_backend(engine).toolchain, tmp_path, str(EXAMPLE), *flags, "-o", "run_model")
    done = subprocess.run(
        [str(tmp_path / "run_model"), str(tmp_path / "net.weights")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "execution 0",
        "execution 1",
        "execution 2",
        lines[3].split(":")[0],
        "output 0",
    ]
    assert all(re.fullmatch(r"execution \d: [1-9]\d* ns", line) for line in lines[:3])
    assert re.fullmatch(r"3 x fuse_add_relu: Add_1 \+ Relu_2: [1-9]\d* ns", lines[3])
    assert lines[4] == "output 0: 1024 bytes"
    assert subprocess.run([str(tmp_path / "run_model")], check=False).returncode == 1
    assert subprocess.run([str(tmp_path / "run_model"), "/nowhere"], check=False).returncode == (
        0 if _weightless(tmp_path) else 1
    )


def _weightless(folder: Path) -> bool:
    return (folder / "net.weights").stat().st_size == 0


def test_an_index_outside_its_axis(engine: Engine, tmp_path: Path) -> None:
    """The execution fails, and the next one is as good as new."""
    build = GraphBuilder("lookup")
    x, i = build.input("x", DType.F32, [5, 3]), build.input("i", DType.I64, [2, 3])
    build.output("y", build.op("ScatterElements", x, i, build.const(np.ones((2, 3), np.float32))))
    model = Model(build.finish(), engine, tmp_path)
    stream, data = model.stream(PROFILING), np.arange(15, dtype=np.float32).reshape(5, 3)
    good, bad = np.full((2, 3), -1), np.full((2, 3), 7)
    for _ in range(2):
        assert model.execute(stream, (data, bad))[0] == SUCCESS
        assert model.code.whence_stream_wait(stream) == RUNTIME_ERROR
        assert_same(model.run(stream, data, good), model.graph.run([data, good]))
    assert model.count(stream) == (SUCCESS, 4), "one that failed ran, too"
    model.code.whence_stream_destroy(stream)
    model.code.whence_model_destroy(model.handle)
