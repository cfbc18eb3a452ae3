"""Convolutions and pools become channels-last, for formats that have no others."""

from __future__ import annotations

import numpy as np

from tests.passes.rewriting import is_left_alone, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.fold.fold_scale_bias import FoldScaleBias
from whence.passes.layout.cancel_transposes import CancelTransposes
from whence.passes.layout.sink_transposes import SinkTransposes
from whence.passes.layout.to_channels_last import ToChannelsLast
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


def test_transposes_are_left_at_the_borders_only() -> None:
    graph = network()
    rewrite(graph, ToChannelsLast(), SinkTransposes(), CancelTransposes())
    found = operators(graph)
    assert {"ChannelsLastConv", "ChannelsLastConvTranspose", "ChannelsLastMaxPool"} <= set(found)
    assert not {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "InstanceNormalization",
        "GlobalAveragePool",
    } & set(found)
    assert found.count("Transpose") + found.count("Reshape") == 2


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


def test_pools_that_also_say_where_stay() -> None:
    build = GraphBuilder()
    pooled = build.op(
        "MaxPool", build.input("x", DType.F32, [1, 3, 8, 8]), kernel_shape=(2, 2), n_outputs=2
    )
    build.output("y", pooled)
    build.output("where", pooled[1])
    assert is_left_alone(build.finish(), ToChannelsLast())


def test_scales_and_shifts_go_into_channels_last_convolutions() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 8, 8, 3])
    y = build.op(
        "ChannelsLastConv",
        build.op("Mul", x, weights(build, 3), name="before"),
        weights(build, 6, 3, 3, 3),
        weights(build, 6),
    )
    y = build.op(
        "Add",
        build.op("Mul", y, weights(build, 1, 1, 1, 6), name="scale"),
        weights(build, 6),
        name="shift",
    )
    build.output(
        "y",
        build.op(
            "ChannelsLastConvTranspose",
            build.op("Relu", y),
            weights(build, 6, 2, 2, 2),
            strides=(2, 2),
        ),
    )
    graph = build.finish()
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["ChannelsLastConv", "Relu", "ChannelsLastConvTranspose"]
    build = GraphBuilder()
    y = build.op(
        "ChannelsLastConv", build.input("x", DType.F32, [1, 8, 8, 3]), weights(build, 6, 3, 1, 1)
    )
    # One number for each row is not one for each channel, though there are as many.
    build.output("y", build.op("Mul", y, weights(build, 8, 1, 1)))
    assert is_left_alone(build.finish(), FoldScaleBias())
