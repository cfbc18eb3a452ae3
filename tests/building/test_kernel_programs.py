"""Kernel programs that were written and read again are those that were rendered."""

from __future__ import annotations

import textwrap

import pytest

from tests.kernels.harness import Cases
from whence.api import prepare
from whence.backends.cpu.generator import build_program
from whence.building.kernel_programs import KernelPrograms, written_kernels
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.extent import Dimensions
from whence.fusion import find_groups, fuse
from whence.graph import Graph
from whence.graph.parse import parse_graph
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower
from whence.kernels.tile import AVX2
from whence.kernels.work import Work, count_work
from whence.passes.shapes.propagate_types import fix_input_shapes


def kernels_of(graph: Graph) -> dict[int, Kernel]:
    steps = lower(fuse(graph, find_groups(graph, "dominator")), AVX2)
    return dict(enumerate(step.kernel for step in steps if step.kernel is not None))


def works(kernels: dict[int, Kernel]) -> dict[int, Work]:
    return {number: count_work(kernel) for number, kernel in kernels.items()}


def test_without_kernels() -> None:
    assert KernelPrograms().read() == {}
    assert written_kernels({}).read() == {}


def test_as_long_a_chain_as_fusion_makes() -> None:
    """Pickle would follow it by recursion."""
    cases = Cases(1)
    x = y = cases.normal(7, 30)
    for number in range(400):
        y = cases.op("Tanh" if number % 2 else "Sin", cases.op("Add", y, x))
    cases.expect(y)
    kernels = kernels_of(prepare(cases.build.finish()))
    assert max(len(kernel.members) for kernel in kernels.values()) > 200
    again = written_kernels(kernels).read()
    assert again == kernels
    assert works(again) == works(kernels)


def test_packings_are_left_out() -> None:
    cases = Cases(1)
    cases.expect(cases.op("MatMul", cases.normal(9, 20), cases.weights(20, 48)))
    kernels = kernels_of(prepare(cases.build.finish()))
    again = written_kernels(kernels).read()
    assert any(kernel.packings for kernel in kernels.values())
    assert not any(kernel.packings for kernel in again.values())
    assert works(again) == works(kernels)


@pytest.mark.parametrize(("batch", "sequence"), [(2, 6), (5, 40)])
def test_open_sizes_are_those_of_the_call(batch: int, sequence: int) -> None:
    dims = Dimensions({"batch": 3, "sequence": 17})
    text = """
        %x f32[?,?,64] = Input()
        %w f32[64,48] = Const() {seed 1}
        %m = MatMul(%x, %w)
        %e = Exp(%x)
        %y = Output(%m)
        %z = Output(%e)
    """
    shape = (dims["batch"], dims["sequence"], 64)
    graph = fix_input_shapes(parse_graph(textwrap.dedent(text)), {"x": shape})
    toolchain = Toolchain(Target.named("x86_64-avx2"), jobs=1)
    program = build_program(graph, toolchain, threads=2, load=False)
    found = works(program.at({"batch": batch, "sequence": sequence}).details.kernels.read())
    rows = batch * sequence
    assert sorted((work.operations, work.functions) for work in found.values()) == [
        (0, rows * 64),
        (2 * rows * 64 * 48, 0),
    ]
