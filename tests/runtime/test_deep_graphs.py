"""Graphs of any depth: chains of thousands of operators compile and run."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from benchmarks.prepare_scale import chain
from whence.frontends.onnx.reader import read_onnx


@pytest.mark.parametrize(
    ("length", "fusion"),
    [
        (2000, "dominator"),
        (2000, "nnvm"),
        pytest.param(10_000, "dominator", marks=pytest.mark.slow),
    ],
)
def test_a_chain_of_thousands_of_operators(length: int, fusion: str):
    graph = read_onnx(chain(length))
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    (expected,) = graph.run([x])
    np.testing.assert_allclose(whence.compile(graph, fusion=fusion)(x), expected, rtol=1e-5)
