"""Operations and bytes of kernel programs, against formulas that know nothing of the programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.errors import UnsupportedError
from whence.fusion import find_groups, fuse
from whence.graph.builder import Symbol
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower
from whence.kernels.tile import AVX2, AVX512, Tile
from whence.kernels.work import Work, count_work
from whence.passes.manager import run_passes
from whence.passes.pipeline import PREPARE

DIRECT = replace(AVX2, transforms=False)


def kernels_of(build: Callable[[Cases], Symbol], tile: Tile) -> list[Kernel]:
    cases = Cases(1)
    cases.expect(build(cases))
    graph = cases.build.finish()
    run_passes(graph, PREPARE)
    steps = lower(fuse(graph, find_groups(graph, "dominator")), tile)
    return [step.kernel for step in steps if step.kernel is not None]


def work_of(build: Callable[[Cases], Symbol], tile: Tile = DIRECT) -> Work:
    """Of the kernel that does most."""
    return max((count_work(kernel) for kernel in kernels_of(build, tile)), key=_size)


def _size(work: Work) -> int:
    return work.operations + sum(work.stored.values())


def taps(size: int, out: int, kernel: int, stride: int, begin: int) -> int:
    """Kernel positions on the input, summed over the output positions of an axis."""
    return sum(
        0 <= position * stride + tap - begin < size
        for position in range(out)
        for tap in range(kernel)
    )


@pytest.mark.parametrize(("m", "k", "n"), [(13, 40, 48), (64, 33, 32), (1, 70, 64), (6, 8, 16)])
def test_a_matrix_product(m: int, k: int, n: int) -> None:
    work = work_of(lambda cases: cases.op("MatMul", cases.normal(m, k), cases.weights(k, n)))
    assert work.operations == 2 * m * k * n
    assert work.stored == {"out0": 4 * m * n}


def test_a_product_is_as_wide_as_its_vectors() -> None:
    work = work_of(lambda cases: cases.op("MatMul", cases.normal(9, 20), cases.weights(20, 17)))
    assert work.operations == 2 * 9 * 20 * 32
    assert work.stored == {"out0": 4 * 9 * 17}


def test_bias_and_activation_count() -> None:
    def build(cases: Cases) -> Symbol:
        product = cases.op("MatMul", cases.normal(12, 30), cases.weights(30, 32))
        return cases.op("Relu", cases.op("Add", product, cases.weights(32)))

    assert work_of(build).operations == 2 * 12 * 30 * 32 + 2 * 12 * 32


def test_a_product_with_a_run_time_operand_packs_it_once_for_each_panel() -> None:
    work = work_of(
        lambda cases: cases.op("MatMul", cases.normal(3, 9, 20), cases.normal(3, 20, 32))
    )
    assert work.operations == 3 * 2 * 9 * 20 * 32
    assert work.stored == {"scratch": 4 * 3 * 20 * 32, "out0": 4 * 3 * 9 * 32}


def test_a_product_by_matrix_units_is_three_products() -> None:
    tile = replace(AVX512, bf16x2=True)

    def build(cases: Cases) -> Symbol:
        return cases.op("MatMul", cases.normal(256, 512), cases.weights(512, 1024))

    (kernel,) = kernels_of(build, tile)
    assert kernel.reduced_precision
    assert count_work(kernel).operations >= 3 * 2 * 256 * 512 * 1024


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1)])
def test_a_convolution_multiplies_no_padding(size: int, stride: int) -> None:
    height, width, begin = 11, 14, size // 2

    def build(cases: Cases) -> Symbol:
        x, w = cases.normal(1, 16, height, width), cases.weights(32, 16, size, size)
        pads, strides = (begin,) * 4, (stride, stride)
        return cases.op("Conv", x, w, cases.weights(32), pads=pads, strides=strides)

    out = (-(-height // stride), -(-width // stride))
    reached = [
        taps(extent, made, size, stride, begin)
        for extent, made in zip((height, width), out, strict=True)
    ]
    work = work_of(build)
    pixels = out[0] * out[1]
    assert work.operations == 2 * 16 * 32 * reached[0] * reached[1] + 32 * pixels
    assert work.stored == {"out0": 4 * 32 * pixels}


def test_a_depthwise_convolution() -> None:
    def build(cases: Cases) -> Symbol:
        x, w = cases.normal(1, 32, 9, 12), cases.weights(32, 1, 3, 3)
        return cases.op("Conv", x, w, cases.weights(32), pads=(1, 1, 1, 1), group=32)

    reached = taps(9, 9, 3, 1, 1) * taps(12, 12, 3, 1, 1)
    assert work_of(build).operations == 32 * (2 * reached + 9 * 12)


def test_a_transformed_convolution_has_fewer_products() -> None:
    def build(cases: Cases) -> Symbol:
        x, w = cases.normal(1, 64, 24, 24), cases.weights(64, 64, 3, 3)
        return cases.op("Conv", x, w, pads=(1, 1, 1, 1))

    direct, transformed = work_of(build).operations, work_of(build, AVX2).operations
    assert direct == 2 * 64 * 64 * taps(24, 24, 3, 1, 1) ** 2
    # 36 products for 16 pixels, besides the transforms.
    assert 2 * 36 * (24 // 4) ** 2 * 64 * 64 < transformed < direct / 2


def test_elementwise_and_its_functions() -> None:
    def build(cases: Cases) -> Symbol:
        x = cases.normal(7, 30)
        return cases.op("Exp", cases.op("Mul", cases.op("Add", x, cases.normal(30)), x))

    work = work_of(build)
    assert (work.operations, work.functions) == (2 * 210, 210)
    assert work.stored == {"out0": 4 * 210}


def test_a_transpose_only_moves() -> None:
    work = work_of(lambda cases: cases.op("Transpose", cases.normal(40, 30), perm=(1, 0)))
    assert work.operations == work.functions == 0
    assert sum(work.loaded.values()) == sum(work.stored.values()) == 4 * 40 * 30


def test_what_depends_on_the_data_is_not_counted() -> None:
    def build(cases: Cases) -> Symbol:
        k = cases.const(np.array([3]))
        return cases.op("TopK", cases.normal(4, 20), k, n_outputs=2)[0]

    (kernel,) = kernels_of(build, AVX2)
    with pytest.raises(UnsupportedError, match="data"):
        count_work(kernel)


def test_a_product_of_bytes() -> None:
    work = work_of(
        lambda cases: cases.op(
            "MatMulInteger",
            cases.feed(np.ones((16, 40), np.uint8)),
            cases.const(np.ones((40, 32), np.int8)),
        )
    )
    assert work.operations == 2 * 16 * 40 * 32
    assert work.stored == {"out0": 4 * 16 * 32}


def test_a_product_with_packed_weights() -> None:
    depth, columns = 64, 32

    def build(cases: Cases) -> Symbol:
        codes = cases.const(np.full((columns, depth // 32, 16), 0x77, np.uint8))
        scales = cases.const(np.ones((columns, depth // 32), np.float32))
        return cases.op(
            "com.microsoft::MatMulNBits",
            cases.normal(16, depth),
            codes,
            scales,
            K=depth,
            N=columns,
            bits=4,
            block_size=32,
            accuracy_level=4,
        )

    assert work_of(build).operations > 2 * 16 * depth * columns


FAMILIES: dict[str, Callable[[Cases], Symbol]] = {
    "product": lambda cases: cases.op("MatMul", cases.normal(48, 64), cases.weights(64, 96)),
    "batched product": lambda cases: cases.op(
        "MatMul", cases.normal(4, 24, 64), cases.normal(4, 64, 32)
    ),
    "convolution": lambda cases: cases.op(
        "Conv", cases.normal(1, 32, 30, 30), cases.weights(64, 32, 3, 3)
    ),
    "pointwise convolution": lambda cases: cases.op(
        "Conv", cases.normal(1, 64, 14, 14), cases.weights(64, 64, 1, 1)
    ),
    "depthwise convolution": lambda cases: cases.op(
        "Conv", cases.normal(1, 64, 30, 30), cases.weights(64, 1, 3, 3), group=64
    ),
    "elementwise": lambda cases: cases.op(
        "Mul", cases.op("Add", cases.normal(40, 64), cases.normal(64)), cases.normal(40, 64)
    ),
    "reduction": lambda cases: cases.op(
        "ReduceSum", cases.normal(40, 64), cases.const(np.array([1])), keepdims=0
    ),
    "pool": lambda cases: cases.op("MaxPool", cases.normal(1, 16, 32, 32), kernel_shape=(2, 2)),
    "recurrent": lambda cases: cases.op(
        "LSTM",
        cases.normal(20, 1, 64),
        cases.weights(1, 256, 64),
        cases.weights(1, 256, 64),
        hidden_size=64,
        n_outputs=3,
    )[0],
    "product of bytes": lambda cases: cases.op(
        "MatMulInteger",
        cases.feed(np.ones((32, 64), np.uint8)),
        cases.const(np.ones((64, 64), np.int8)),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_costs_are_those_of_the_program(family: str) -> None:
    """The cost model and the roofline count operations and bytes by the definitions of operators:
    where sizes are whole vectors, the program that is rendered does that, within 5 %.
    """
    kernel = max(kernels_of(FAMILIES[family], DIRECT), key=lambda each: _size(count_work(each)))
    work = count_work(kernel)
    operations = sum(member.flops for member in kernel.members)
    assert work.operations + work.functions == pytest.approx(operations, rel=0.05)
    assert work.bytes_of(kernel) == pytest.approx(
        sum(member.bytes for member in kernel.members), rel=0.05
    )
