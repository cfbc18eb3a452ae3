"""Quantisation and back, per tensor, per axis and per block."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests.kernels.harness import Cases
from whence.graph.builder import GraphBuilder
from whence.types import DType


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_there_and_back(dtype: type):
    cases = Cases()
    x = (
        np.concatenate([cases.rng.standard_normal(97) * 100, [np.inf, -np.inf, 0.5, 1.5, -0.5]])
        .astype(np.float32)
        .reshape(6, 17)
    )
    for axis, count in ((1, 1), (0, 6), (1, 17)):
        scale = cases.const(
            cases.rng.uniform(0.1, 2, count)
            .astype(np.float32)
            .reshape(() if count == 1 else (count,))
        )
        zero = cases.const(
            cases.rng.integers(0, 20, count).astype(dtype).reshape(() if count == 1 else (count,))
        )
        small = cases.op("QuantizeLinear", cases.feed(x), scale, zero, axis=axis)
        cases.expect(small, f"quantise_{count}", 0.0)
        cases.expect(cases.op("DequantizeLinear", small, scale, zero, axis=axis), f"both_{count}")
        whole = cases.feed(cases.rng.integers(0, 120, (6, 17)).astype(dtype))
        cases.expect(
            cases.op("DequantizeLinear", whole, scale, zero, axis=axis), f"dequantise_{count}"
        )
        cases.expect(cases.op("DequantizeLinear", whole, scale, axis=axis), f"no_zero_{count}")
    cases.check()


def test_blocks_and_int32():
    cases = Cases()
    scale, zero = (
        cases.weights(6, 4),
        cases.const(cases.rng.integers(-9, 9, (6, 4)).astype(np.int8)),
    )
    whole = cases.feed(cases.rng.integers(-120, 120, (6, 8)).astype(np.int8))
    cases.expect(cases.op("DequantizeLinear", whole, scale, zero, axis=1, block_size=2), "blocks")
    big = cases.feed(cases.rng.integers(-(2**31), 2**31, (5, 8)).astype(np.int32))
    cases.expect(cases.op("DequantizeLinear", big, cases.const(np.float32(0.25))), "int32")
    cases.check()


def test_halves_away_from_zero():
    """As LiteRT rounds; the number just below a half must not be carried over it."""
    x = np.concatenate(
        [np.arange(-20, 21) / 2, [0.49999997, -0.49999997, 8388609.0, np.nan, np.inf]]
    ).astype(np.float32)
    build = GraphBuilder()
    feed = build.input("x", DType.F32, x.shape)
    for dtype in (np.int8, np.uint8, np.int16):
        y = build.op(
            "QuantizeLinear",
            feed,
            build.const(np.float32(1)),
            build.const(dtype(3)),
            arithmetic="fixed_point",
        )
        build.output(dtype.__name__, y)
    graph = build.finish()
    for ours, expected in zip(whence.compile(graph, threads=1)(x), graph.run([x]), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_dynamic():
    cases = Cases()
    for x in (
        cases.rng.standard_normal((3, 50)),
        np.abs(cases.rng.standard_normal((2, 3, 4))),
        np.zeros((5,)),
        -np.ones((4, 4)),
    ):
        y = cases.op("DynamicQuantizeLinear", cases.feed(x.astype(np.float32)), n_outputs=3)
        for index in range(3):
            cases.expect(y[index], f"{x.shape}_{index}", 0.0 if index != 1 else 1e-7)
    cases.check()


def test_fused_with_arithmetic():
    cases = Cases()
    scale, zero = cases.const(np.float32(0.05)), cases.const(np.int8(3))
    x = cases.op(
        "DequantizeLinear",
        cases.feed(cases.rng.integers(-128, 128, (8, 40)).astype(np.int8)),
        scale,
        zero,
    )
    y = cases.op(
        "QuantizeLinear",
        cases.op("Relu", cases.op("MatMul", x, cases.weights(40, 24))),
        cases.const(np.float32(0.1)),
        cases.const(np.uint8(0)),
    )
    cases.expect(y, limit=1 / 255)
    cases.check()
