"""Operations and bytes of kernels beside a count of their own, and what a kernel is said to run
into.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.attribution.harness import RATES, measured, profile_of, program_of
from whence.api import prepare
from whence.attribution.assemble import assemble
from whence.attribution.profile import Profile
from whence.backends.cpu.generator import build_program
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.rates import ArithmeticUnit
from whence.types import DType


@dataclass(frozen=True)
class Layer:
    """An operator on operands of these shapes, and what a count by hand gives: multiply-adds or
    other operations, and numbers read and written.
    """

    name: str
    op: str
    x: Sequence[int]
    weights: Sequence[int] | None
    flops: int
    values: int
    attrs: tuple[tuple[str, object], ...] = ()

    def graph(self) -> Graph:
        build = GraphBuilder(self.name)
        x = build.input("x", DType.F32, self.x)
        operands: list[Symbol] = [x]
        if self.weights is not None:
            weights = np.random.default_rng(0).standard_normal(self.weights).astype(np.float32)
            operands.append(build.const(weights))
        build.output("y", build.op(self.op, *operands, name="layer", **dict(self.attrs)))  # type: ignore[arg-type]
        return build.finish()


def _conv(
    name: str, channels: int, made: int, size: int, kernel: int, stride: int = 1, groups: int = 1
) -> Layer:
    """Counted position by position: what a tap reads outside of the image is not multiplied."""
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    taps = (
        sum(0 <= at * stride + tap - pad < size for at in range(out) for tap in range(kernel)) ** 2
    )
    flops = 2 * taps * made * channels // groups
    values = channels * size**2 + made * channels // groups * kernel**2 + made * out**2
    attrs = (("pads", (pad,) * 4), ("strides", (stride,) * 2), ("group", groups))
    shape = (made, channels // groups, kernel, kernel)
    return Layer(name, "Conv", (1, channels, size, size), shape, flops, values, attrs)


LAYERS = (
    _conv("3x3 convolution", 64, 64, 56, 3),
    _conv("1x1 convolution", 64, 256, 56, 1),
    _conv("first convolution, 3 channels", 3, 64, 224, 7, stride=2),
    _conv("strided convolution", 128, 128, 56, 3, stride=2),
    _conv("depthwise convolution", 96, 96, 56, 3, groups=96),
    _conv("grouped convolution", 128, 128, 56, 3, groups=8),
    Layer("product", "MatMul", (512, 256), (256, 384), 2 * 512 * 256 * 384, 512 * 256 + 256 * 384 + 512 * 384),
    Layer("batched product", "MatMul", (8, 128, 64), (64, 96), 2 * 8 * 128 * 64 * 96, 8 * 128 * 64 + 64 * 96 + 8 * 128 * 96),
    Layer("activation", "Relu", (64, 4096), None, 64 * 4096, 2 * 64 * 4096),
    Layer("average pooling", "AveragePool", (1, 64, 56, 56), None, 4 * 64 * 28 * 28, 64 * 56 * 56 + 64 * 28 * 28,
          (("kernel_shape", (2, 2)), ("strides", (2, 2)))),
)  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_operations_and_bytes_are_those_of_a_count_by_hand(layer: Layer) -> None:
    found = profile_of(layer.graph(), 1_000_000)
    (row,) = found.sources
    assert row.flops == pytest.approx(layer.flops, rel=0.05)
    assert row.bytes == pytest.approx(4 * layer.values, rel=0.05)
    # Kernels of layout changes compute nothing; the one that does has as much to do.
    kernel = max(found.kernels, key=lambda each: each.flops)
    defined = sum(each.defined_flops for each in found.kernels)
    assert defined == pytest.approx(layer.flops, rel=0.05)
    if layer.name == "3x3 convolution":
        # Transformed, unless the machine has units for products.
        assert defined / 4 < kernel.flops <= defined
    else:
        assert sum(each.flops for each in found.kernels) == pytest.approx(layer.flops, rel=0.05)
    assert kernel.executed_flops >= 0.95 * kernel.flops
    assert kernel.bytes == pytest.approx(4 * layer.values, rel=0.05)
    assert kernel.gflops == pytest.approx(kernel.flops / 1e6)
    assert kernel.gbytes == pytest.approx(kernel.bytes / 1e6)


def _product() -> Graph:
    build = GraphBuilder("product")
    x = build.input("x", DType.F32, [256, 256])
    build.output("y", build.op("MatMul", x, build.const(np.ones((256, 256), np.float32))))
    return build.finish()


def _sum(rows: int) -> Graph:
    build = GraphBuilder("sum")
    x, y = (build.input(name, DType.F32, [rows, 1024]) for name in "xy")
    build.output("z", build.op("Add", x, y))
    return build.finish()


def test_a_product_at_the_peak_rate_is_at_all_of_it_and_bound_by_arithmetic() -> None:
    flops = 2 * 256**3
    least = flops / RATES.peak_of(ArithmeticUnit.F32, 2)
    for factor, expected in ((1.0, 1.0), (4.0, 0.25)):
        (kernel,) = profile_of(_product(), round(factor * least)).kernels
        assert kernel.of_peak == pytest.approx(expected, rel=0.01)
        assert kernel.bound == "compute"


@pytest.mark.parametrize(("rows", "bound"), [(16, "cache"), (65536, "memory")])
def test_a_sum_is_bound_by_the_memory_that_holds_it(rows: int, bound: str) -> None:
    (kernel,) = profile_of(_sum(rows), 10**9).kernels
    assert kernel.bound == bound
    assert 0 < kernel.of_peak < 1


def test_a_kernel_quicker_than_memory_had_a_part_of_its_data_from_the_last_cache() -> None:
    """Nothing is above the peak of memory unless it is above that of the cache, too."""
    moved = 3 * 4 * 65536 * 1024
    memory, cache = (RATES.bandwidth_of(level, 2) for level in (RATES.levels[-1], RATES.levels[-2]))
    (slow,), (quick,), (impossible,) = (
        profile_of(_sum(65536), round(moved / bandwidth)).kernels
        for bandwidth in (memory / 2, (memory + cache) / 2, 2 * cache)
    )
    assert (slow.bound, quick.bound, impossible.bound) == ("memory", "memory", "cache")
    assert slow.of_peak == pytest.approx(0.5, rel=0.01)
    assert quick.of_peak == pytest.approx(1.0, rel=0.01)
    assert impossible.of_peak == pytest.approx(2.0, rel=0.01)


def _one_operator(op: str, *operands: Sequence[int] | np.ndarray, **attrs: object) -> Graph:
    """Shapes are those of inputs, arrays are constants."""
    build = GraphBuilder(op)
    values = [
        build.const(each)
        if isinstance(each, np.ndarray)
        else build.input(f"x{number}", DType.F32, each)
        for number, each in enumerate(operands)
    ]
    build.output("y", build.op(op, *values, **attrs))  # type: ignore[arg-type]
    return build.finish()


def test_a_transformed_convolution_counts_the_products_it_has() -> None:
    weights = np.ones((64, 64, 3, 3), np.float32)
    graph = _one_operator("Conv", (1, 64, 56, 56), weights, pads=(1, 1, 1, 1))
    toolchain = Toolchain(Target.named("x86_64-avx2"), jobs=1)
    program = build_program(prepare(graph.copy()), toolchain, load=False)
    numbers = {step.number: step for step in program.steps}
    (number,) = (
        each for each, step in numbers.items() if any(m.op == "BlockedConv" for m in step.members)
    )
    # 36 products for 16 pixels; both transforms are additions.
    products = 2 * 36 * (56 // 4) ** 2 * 64 * 64
    # As long as the products take at the peak: nothing can be quicker.
    times = [1] * len(numbers)
    times[number] = round(products / RATES.peak_of(ArithmeticUnit.F32, 2))
    found = assemble(
        graph, program, measured(program, times), model="m", engine="cpu", threads=2, rates=RATES
    )
    kernel = found.kernels[number]
    assert kernel.defined_flops == pytest.approx(2 * 9 * 56 * 56 * 64 * 64, rel=0.05)
    assert products < kernel.flops < 1.3 * products
    assert kernel.flops == kernel.executed_flops
    assert 1 < kernel.of_peak < 1.3
    assert kernel.reach == pytest.approx(kernel.flops / kernel.defined_flops)
    # Weights are transformed beforehand: four for each that the operator has.
    assert kernel.executed_bytes > kernel.bytes


def test_lanes_beyond_the_end_are_executed_but_no_work() -> None:
    graph = _one_operator("MatMul", (64, 128), np.ones((128, 17), np.float32))
    (kernel,) = profile_of(graph).kernels
    assert kernel.flops == kernel.defined_flops == 2 * 64 * 128 * 17
    assert kernel.executed_flops > 1.2 * kernel.flops


def test_only_the_rows_of_a_table_that_are_read_are_moved() -> None:
    rows = np.array([3, 999, 17], np.int64)
    (kernel,) = profile_of(_one_operator("Gather", (1000, 64), rows)).kernels
    assert kernel.bytes == 2 * 4 * 3 * 64 + rows.nbytes


def _waiting(graph: Graph, part: float, time: int) -> Profile:
    program = program_of(graph)
    seen = measured(program, [time])
    waited = dataclasses.replace(seen, step_waited_ns=np.array([round(part * time)]))
    return assemble(graph, program, waited, model="m", engine="cpu", threads=2, rates=RATES)


def test_a_kernel_whose_caller_waits_is_bound_by_that() -> None:
    assert [_waiting(_product(), part, 1_000_000).kernels[0].bound for part in (0.0, 0.3, 0.7)] == [
        "compute",
        "compute",
        "waiting",
    ]


def test_a_tiny_kernel_is_bound_by_dispatch() -> None:
    build = GraphBuilder("tiny")
    build.output("y", build.op("Relu", build.input("x", DType.F32, [4])))
    (kernel,) = profile_of(build.finish(), 300).kernels
    assert kernel.bound == "dispatch"


def test_what_was_not_counted_has_no_executed_part() -> None:
    """A convolution of another engine, or of a profile that an older whence wrote."""
    (kernel,) = profile_of(_product()).kernels
    assert kernel.executed_part == pytest.approx(1.0, rel=0.05)
    before = dataclasses.replace(kernel, defined_flops=0, executed_flops=0)
    assert before.is_contraction
    assert before.executed_part == 0.0


def test_an_operator_without_native_code_has_no_share_of_the_peak() -> None:
    build = GraphBuilder("reference")
    x = build.input("x", DType.F32, [8, 8])
    build.output("y", build.op("Det", x))
    (kernel,) = profile_of(build.finish(), 1000).kernels
    assert (kernel.bound, kernel.of_peak) == ("reference", 0.0)
    assert not kernel.native
