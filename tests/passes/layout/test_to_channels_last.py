"""Convolutions and pools become channels-last, for formats that have no others."""

from __future__ import annotations

import numpy as np

from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.manager import run_passes
from whence.passes.pipeline import CHANNELS_LAST
from whence.types import DType

RNG = np.random.default_rng(0)


def weights(build: GraphBuilder, *shape: int) -> Symbol:
    return build.const(RNG.standard_normal(shape).astype(np.float32))


def network() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 3, 8, 8])
    a = build.op(
        "Relu",
        build.op("Conv", x, weights(build, 6, 3, 3, 3), weights(build, 6), pads=(1, 1, 1, 1)),
    )
    b = build.op(
        "ConvTranspose",
        build.op("MaxPool", a, kernel_shape=(2, 2), strides=(2, 2)),
        weights(build, 6, 6, 2, 2),
        strides=(2, 2),
    )
    c = build.op(
        "InstanceNormalization", build.op("Add", a, b), weights(build, 6), weights(build, 6)
    )
    build.output("y", build.op("GlobalAveragePool", c, name="pool"))
    return build.finish()


def test_nothing_is_lost() -> None:
    graph = network()
    run_passes(graph, CHANNELS_LAST)
    assert graph.ledger.lost() == []
    (mean,) = (
        node
        for node in graph
        if node.op == "ReduceMean"
        and any(graph.ledger.source(each).name == "pool" for each in node.origin)
    )
    assert [graph.ledger.source(each).op for each in mean.origin] == ["GlobalAveragePool"]
