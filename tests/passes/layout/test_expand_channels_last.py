"""Channels-last operators become plain ones, and the transposes between them vanish."""

from __future__ import annotations

import numpy as np

from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import to_model
from whence.graph.builder import GraphBuilder
from whence.types import DType


def network() -> GraphBuilder:
    """Two branches with pools, a bias and a resize between the convolutions."""
    build, rng = GraphBuilder(), np.random.default_rng(0)
    x = build.input("x", DType.F32, [1, 8, 8, 3])

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    a = build.op(
        "ChannelsLastConv",
        x,
        build.const(weights(6, 3, 3, 3)),
        build.const(weights(6)),
        pads=(1, 1, 1, 1),
    )
    a = build.op("Relu", build.op("Add", a, build.const(weights(6))))
    b = build.op("ChannelsLastMaxPool", a, kernel_shape=(2, 2), strides=(2, 2))
    b = build.op("ChannelsLastConvTranspose", b, build.const(weights(6, 6, 2, 2)), strides=(2, 2))
    c = build.op("ChannelsLastAveragePool", a, kernel_shape=(2, 2), strides=(2, 2))
    c = build.op(
        "Resize",
        c,
        None,
        None,
        build.const(np.array([8, 8], np.int64)),
        axes=(1, 2),
        mode="nearest",
    )
    build.output("y", build.op("Concat", b, c, axis=3))
    return build


def test_a_file_gets_them_in_operators_of_onnx() -> None:
    graph = network().finish()
    feeds = [np.random.default_rng(1).standard_normal((1, 8, 8, 3)).astype(np.float32)]
    again = read_onnx(to_model(graph))
    assert not any(op.startswith("ChannelsLast") for op in again.op_counts)
    np.testing.assert_allclose(again.run(feeds)[0], graph.run(feeds)[0], rtol=1e-5, atol=1e-5)
