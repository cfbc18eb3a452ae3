"""Matrix products: every transposition, batches, and what is fused after them."""

from __future__ import annotations

import itertools

import numpy as np

from tests.kernels.harness import Cases
from tests.kernels.native import NativeCase
from whence.codegen.render_c import render_kernel
from whence.graph.builder import GraphBuilder
from whence.kernels.product.gemm import lower_gemm
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.types import DType


def test_sizes():
    cases = Cases()
    for rows, depth, columns in (
        (1, 64, 100),
        (3, 5, 7),
        (14, 32, 32),
        (32, 40, 33),
        (29, 17, 64),
        (57, 100, 1),
    ):
        cases.expect(
            cases.op("MatMul", cases.normal(rows, depth), cases.weights(depth, columns)),
            f"packed_{rows}_{depth}_{columns}",
        )
        cases.expect(
            cases.op("MatMul", cases.normal(rows, depth), cases.normal(depth, columns)),
            f"plain_{rows}_{depth}_{columns}",
        )
    cases.check()


def test_panels_divided_in_depth():
    # Deep enough for several blocks, with and without a divisor of the depth, an incomplete panel,
    # and a product that is stored in another way.
    cases = Cases()
    for rows, depth, columns in ((32, 1536, 64), (17, 1030, 40), (40, 1009, 33)):
        product = cases.op("MatMul", cases.normal(rows, depth), cases.weights(depth, columns))
        cases.expect(
            cases.op("Relu", cases.op("Add", product, cases.weights(columns))),
            f"{rows}_{depth}_{columns}",
        )
    cases.expect(
        cases.op("Gemm", cases.normal(768, 30), cases.weights(768, 70), transA=1), "turned"
    )
    cases.check()


def _single_row(tile: Tile, depth: int, columns: int) -> NativeCase:
    rng, build = np.random.default_rng(0), GraphBuilder("row")
    x = rng.standard_normal((1, depth)).astype(np.float32)
    weights = rng.standard_normal((depth, columns)).astype(np.float32) / 8
    y = build.op("MatMul", build.input("x", DType.F32, x.shape), build.const(weights))
    build.output("y", build.op("Relu", y))
    return NativeCase("row", build.finish(), {"x": x}, lower_gemm, tile, "MatMul")


def test_a_single_row_reads_its_weights_in_several_streams():
    """Where a step of the sum reads one cache line: a single stream keeps memory waiting."""
    for tile in (AVX2, NEON):
        for depth, columns in ((1024, 64), (1031, 70)):
            case = _single_row(tile, depth, columns)
            assert f"sum[4][{tile.vectors}]" in render_kernel(case.kernel(), "row")
    wide = render_kernel(_single_row(AVX512, 1024, 512).kernel(), "row")
    assert "sum[1][2]" in wide
    assert "prefetch" in wide


def test_sums_of_several_streams():
    cases = Cases()
    for depth, columns in ((1024, 64), (1031, 70), (9216, 40)):
        product = cases.op("MatMul", cases.normal(1, depth), cases.weights(depth, columns))
        cases.expect(cases.op("Relu", cases.op("Add", product, cases.weights(columns))), f"{depth}")
    x = cases.normal(1030, 1)
    cases.expect(cases.op("Gemm", x, cases.weights(1030, 70), transA=1), "turned")
    cases.check()


def test_transposed_operands():
    cases = Cases()
    for turn_a, turn_b, constant in itertools.product((0, 1), (0, 1), (False, True)):
        for rows, depth, columns in ((20, 35, 50), (5, 16, 9)):
            a = cases.normal(*((depth, rows) if turn_a else (rows, depth)))
            shape = (columns, depth) if turn_b else (depth, columns)
            b = cases.weights(*shape) if constant else cases.normal(*shape)
            y = cases.op(
                "Gemm",
                a,
                b,
                cases.weights(columns),
                transA=turn_a,
                transB=turn_b,
                alpha=0.5,
                beta=2.0,
            )
            cases.expect(y, f"{turn_a}_{turn_b}_{constant}_{rows}")
    cases.check()


def test_batches():
    cases = Cases()
    for left, right in (
        ((2, 3, 10, 20), (2, 3, 20, 9)),
        ((3, 10, 20), (20, 9)),
        ((2, 1, 10, 20), (3, 20, 9)),
        ((10, 20), (4, 20, 9)),
    ):
        cases.expect(
            cases.op("MatMul", cases.normal(*left), cases.normal(*right)), f"{left}_{right}"
        )
    cases.check()


def test_fused_after():
    cases = Cases()
    product = cases.op("MatMul", cases.normal(2, 10, 24), cases.weights(24, 40))
    cases.expect(
        cases.op(
            "Mul",
            cases.op("Relu", cases.op("Add", product, cases.weights(40))),
            cases.normal(2, 10, 40),
        ),
        "elementwise",
    )
    product = cases.op("MatMul", cases.normal(10, 24), cases.weights(24, 40))
    cases.expect(
        cases.op(
            "Add",
            cases.op("Reshape", product, cases.const(np.array([2, 5, 40]))),
            cases.normal(2, 5, 40),
        ),
        "reshaped",
    )
    cases.check()
