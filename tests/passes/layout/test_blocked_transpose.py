"""Transposed convolutions as plain ones: their windows hold the taps, and little else."""

from __future__ import annotations

import numpy as np
import pytest

from whence.api import compile_model
from whence.api.prepare import prepare
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def _transposed(size: int, taps: int, stride: int, dilation: int) -> Graph:
    build = GraphBuilder("transposed")
    x = build.input("x", DType.F32, (1, 3, size))
    weights = np.random.default_rng(taps).standard_normal((3, 18, taps), np.float32)
    y = build.op("ConvTranspose", x, build.const(weights), strides=(stride,), dilations=(dilation,))
    build.output("y", y)
    return build.finish()


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3, 6, 25])
def test_every_stride_and_dilation(stride: int, dilation: int) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 7), np.float32)
    graph = _transposed(7, 4, stride, dilation)
    expected = graph.run([x])[0]
    np.testing.assert_allclose(compile_model(graph)(x), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("stride", "dilation", "window"),
    [
        (1, 1, 3),
        (1, 9, 3),
        (2, 9, 10),
        (2, 21, None),
        (2, 8, 3),
        (2, 1, 2),
        (3, 4, 3),
        (1, 1 << 20, 3),
    ],
)
def test_a_window_has_few_zeros_between_taps(
    stride: int, dilation: int, window: int | None
) -> None:
    graph = _transposed(3, 3, stride, dilation)
    prepare(graph)
    found = [node.attrs["kernel_shape"] for node in graph if node.op == "BlockedConv"]
    assert found == ([] if window is None else [(1, window)])


def test_a_long_dilated_row_takes_no_time_to_divide() -> None:
    """Its tiles, nearly all between two taps, are not looked at one by one."""
    graph = _transposed(3, 3, 1, 1 << 20)
    x = np.ones((1, 3, 3), np.float32)
    np.testing.assert_allclose(compile_model(graph)(x), graph.run([x])[0], atol=2e-6)
