"""Graphs whose parts are put together or taken apart, compiled and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.allocate import allocate
from whence.building.in_place_concat import concat_in_place
from whence.building.memory_layout import Aliasing, MemoryLayout
from whence.building.program import Program
from whence.building.reference_fallback import with_reference_steps
from whence.fusion import find_groups, fuse
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.kernels.lower import Step, lower
from whence.kernels.tile import AVX512
from whence.runtime.engine import Engine


def shared(graph: Graph) -> tuple[list[Step], Aliasing]:
    return concat_in_place(graph, lower(fuse(graph, find_groups(graph)), AVX512))


def laid_out(graph: Graph) -> tuple[list[Step], MemoryLayout]:
    left, sharing = shared(graph)
    steps = with_reference_steps(graph, left, {})
    return [step for step in steps if not step.is_view], allocate(graph, steps, sharing)


def ops(graph: Graph) -> list[str]:
    """What is left to do."""
    return ["+".join(node.op for node in step.members) for step in shared(graph)[0]]


def check(graph: Graph, engine: Engine, inputs: Sequence[np.ndarray]) -> Program:
    expected = graph.run(list(inputs))
    program = build_program(graph.copy(), cpu_backend(engine).toolchain)
    for _ in range(2):
        assert_same(Instance(program, cpu_backend(engine)).run(list(inputs), None), expected)
    return program


def numbered_rows(count: int) -> np.ndarray:
    return np.linspace(-2, 2, count * 16, dtype=np.float32).reshape(count, 16)


def softmax(build: GraphBuilder, x: Symbol) -> Symbol:
    """Something that stores its result, whatever comes after it."""
    return build.op("Softmax", x, axis=-1)
