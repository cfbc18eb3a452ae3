"""Scales and limits that no converter writes: arithmetic stays in real numbers, as it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.quantised.test_integer_onnx import quantised, real
from whence.api import prepare
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def _limited(scale: float, low: float, high: float) -> Graph:
    build = GraphBuilder()
    zero = np.uint8(3)
    x = real(build, build.input("x", DType.U8, [2, 4]), 0.05, zero)
    weights = real(build, build.const(np.ones((4, 3), np.int8)), 0.1, np.int8(0))
    x = build.op("MatMul", x, weights)
    x = build.op("Clip", x, build.const(np.float32(low)), build.const(np.float32(high)))
    build.output("y", quantised(build, x, scale, zero))
    return build.finish()


@pytest.mark.parametrize(
    ("scale", "low", "high"),
    [(0.0, 0.0, 6.0), (np.inf, 0.0, np.inf), (0.1, np.nan, 1.0), (0.1, -1.0, np.nan)],
)
def test_no_code_stands_for_such_numbers(scale: float, low: float, high: float) -> None:
    graph = _limited(scale, low, high)
    data = np.arange(8, dtype=np.uint8).reshape(2, 4)
    with np.errstate(all="ignore"):
        expected = graph.run([data])[0]
        found = prepare(graph).run([data])[0]
    np.testing.assert_array_equal(found, expected)
