"""The memory of a run: its own arena, operands as callers have them, sizes that no machine has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import X, assert_same, compiled, outputs
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.aligned_memory import aligned_bytes
from whence.building.location import MemoryRegion
from whence.errors import ModelError, UnsupportedError
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.native_library import address_of
from whence.types import DType

M = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def test_two_instances_do_not_share_memory(engine: Engine) -> None:
    build = GraphBuilder("two")
    x = build.input("x", DType.F32, [4])
    build.output("y", build.op("Softmax", build.op("Softmax", x)))
    graph = build.finish()
    program = build_program(graph, cpu_backend(engine).toolchain)
    one, two = Instance(program, cpu_backend(engine)), Instance(program, cpu_backend(engine))
    assert not np.shares_memory(one._arena, two._arena)
    assert_same(one.run([X]), graph.run([X]))
    assert_same(two.run([-X]), graph.run([-X]))


def test_unaligned_and_scattered_inputs(engine: Engine) -> None:
    build = GraphBuilder("odd memory")
    x = build.input("x", DType.F32, [3, 4])
    build.output("y", build.op("Neg", x))
    model = compiled(build.finish(), engine)
    odd = np.zeros(12 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    odd[...] = M
    assert not odd.flags.aligned
    scattered = np.asfortranarray(M)
    reversed_twice = M[::-1][::-1]
    wide = np.zeros((3, 8), np.float32)
    wide[:, ::2] = M
    for value in (odd, scattered, reversed_twice, wide[:, ::2], np.broadcast_to(M[:, :1], (3, 4))):
        assert_same(outputs(model(value)), [-np.asarray(value)])
    frozen = M.copy()
    frozen.flags.writeable = False
    assert_same(outputs(model(frozen)), [-M])


def test_a_tensor_that_no_machine_can_hold(engine: Engine) -> None:
    build = GraphBuilder("vast")
    x = build.input("x", DType.F32, [1, 10**6])
    wide = build.op("Expand", x, build.const(np.array([10**6, 10**6])), name="wide")
    build.output("y", build.op("ReduceSum", build.op("Softmax", wide, axis=0), keepdims=0))
    program = build_program(build.finish(), cpu_backend(engine).toolchain, load=False)
    assert program.memory.arena_bytes >= 4 * 10**12
    build = GraphBuilder("absurd")
    x = build.input("x", DType.F32, [1, 10**9])
    wide = build.op("Expand", x, build.const(np.array([10**10, 10**9])), name="wide")
    build.output("y", build.op("Softmax", wide, axis=0))
    with pytest.raises(ModelError, match=r"'wide' \(Expand\): its result would be"):
        build_program(build.finish(), cpu_backend(engine).toolchain, load=False)


def test_tensors_that_no_machine_can_hold_together(engine: Engine) -> None:
    build = GraphBuilder("vast")
    x = build.input("x", DType.F32, [1, 1 << 23])
    for number in range(5):
        wide = build.op("Expand", x, build.const(np.array([1 << 21, 1 << 23])))
        build.output(f"y{number}", build.op("Softmax", wide, axis=number % 2))
    with pytest.raises(UnsupportedError, match="no machine has that much memory"):
        build_program(build.finish(), cpu_backend(engine).toolchain, load=False)


def test_memory_that_cannot_be_had() -> None:
    with pytest.raises(MemoryError, match="no room for"):
        aligned_bytes(1 << 62)
    with pytest.raises(MemoryError, match="no room for"):
        aligned_bytes(1 << 70)


def test_a_program_made_for_export_does_not_run(engine: Engine) -> None:
    build = GraphBuilder("export")
    build.output("y", build.op("Neg", build.input("x", DType.F32, [4])))
    program = build_program(build.finish(), cpu_backend(engine).toolchain, load=False)
    assert program.library is None
    with pytest.raises(UnsupportedError, match="exported"):
        Instance(program, cpu_backend(engine))


def test_places_tell_where_things_are(engine: Engine) -> None:
    build = GraphBuilder("places")
    x = build.input("x", DType.F32, [3, 4])
    y = build.op("Softmax", build.op("Softmax", x))
    build.output("y", y)
    build.output("c", build.const(np.ones(3, np.float32)))
    program = build_program(build.finish(), cpu_backend(engine).toolchain)
    regions = {
        node.name or node.op: program.layout.places[node.ref()].region
        for node in program.graph
        if node.ref() in program.layout.places
    }
    assert regions == {
        "x": MemoryRegion.INPUT,
        "Softmax_1": MemoryRegion.ARENA,
        "Softmax_2": MemoryRegion.OUTPUT,
    }
    (copy,) = program.copies
    assert (copy.output, copy.size, copy.source.region) == (1, 12, MemoryRegion.WEIGHTS)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
@pytest.mark.parametrize("writeable", [True, False])
def test_addresses(dtype: type, shape: tuple[int, ...], writeable: bool) -> None:
    array: np.ndarray = np.zeros(shape, dtype)
    array.flags.writeable = writeable
    assert address_of(array) == array.ctypes.data
