"""Graphs that were never TFLite, written as such: LiteRT and onert get what the graph gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import compare, run_litert
from tests.frontends.tflite.runtimes import convert, operators, run_onert
from tests.frontends.tflite.test_writer import RNG, built, real, weights
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.graph import Graph
from whence.types import TensorType


def residual(b: GraphBuilder, x: Symbol) -> Symbol:
    added = b.op("Add", b.op("Conv", x, weights(b, 3, 3, 3, 3), pads=(1, 1, 1, 1)), x)
    return b.op("Flatten", b.op("GlobalAveragePool", b.op("Relu", added)))


def lstm(direction: str, output: int) -> Graph:
    def make(b: GraphBuilder, x: Symbol) -> Symbol:
        n = 2 if direction == "bidirectional" else 1
        made = b.op(
            "LSTM",
            x,
            weights(b, n, 20, 3),
            weights(b, n, 20, 5),
            weights(b, n, 40),
            n_outputs=2,
            hidden_size=5,
            direction=direction,
        )
        return made[output]

    return built(make, 6, 2, 3)


def stepwise(op: str, gates: int, output: int, **attrs: Any) -> Graph:
    """A layer with a state to begin with, which the formats have no operator for."""

    def make(b: GraphBuilder, x: Symbol) -> Symbol:
        n = 2 if attrs.get("direction") == "bidirectional" else 1
        parts = [
            weights(b, n, 5 * gates, 3),
            weights(b, n, 5 * gates, 5),
            weights(b, n, 10 * gates),
            None,
            weights(b, n, 2, 5),
        ]
        parts += [weights(b, n, 2, 5)] if op == "LSTM" else []
        return b.op(op, x, *parts, n_outputs=3 if op == "LSTM" else 2, hidden_size=5, **attrs)[
            output
        ]

    return built(make, 4, 2, 3)


def attention(b: GraphBuilder, x: Symbol) -> Symbol:
    mask = b.const(np.where(RNG.random((4, 4)) > 0.3, 0, -3).astype(np.float32))
    return b.op("Attention", x, b.op("Tanh", x), x, mask, scale=0.7, is_causal=1)


LINEAR: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
GRAPHS: dict[str, Callable[[], Graph]] = {
    "concat, relu": lambda: built(
        lambda b, x: b.op("Relu", b.op("Concat", x, b.op("Neg", x), axis=1)), 2, 3, 4
    ),
    "conv": lambda: built(
        lambda b, x: b.op(
            "Relu",
            b.op(
                "Conv", x, weights(b, 6, 3, 3, 3), weights(b, 6), pads=(1, 1, 1, 1), strides=(2, 2)
            ),
        ),
        2,
        3,
        8,
        9,
    ),
    "odd padding": lambda: built(
        lambda b, x: b.op("Conv", x, weights(b, 6, 3, 3, 3), pads=(2, 0, 1, 3)), 1, 3, 8, 9
    ),
    "groups": lambda: built(
        lambda b, x: b.op("Conv", x, weights(b, 6, 2, 3, 3), group=2), 1, 4, 8, 9
    ),
    "depthwise": lambda: built(
        lambda b, x: b.op("Conv", x, weights(b, 8, 1, 3, 3), group=4, pads=(1, 1, 1, 1)), 1, 4, 8, 9
    ),
    "one axis": lambda: built(
        lambda b, x: b.op("Conv", x, weights(b, 6, 3, 3), weights(b, 6), pads=(1, 1)), 1, 3, 12
    ),
    "three axes": lambda: built(
        lambda b, x: b.op("Conv", x, weights(b, 4, 2, 2, 2, 2), weights(b, 4)), 1, 2, 4, 5, 6
    ),
    "transposed": lambda: built(
        lambda b, x: b.op(
            "ConvTranspose",
            x,
            weights(b, 3, 5, 3, 3),
            weights(b, 5),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
        ),
        1,
        3,
        5,
        6,
    ),
    "transposed, padded": lambda: built(
        lambda b, x: b.op(
            "ConvTranspose",
            x,
            weights(b, 3, 5, 2, 2),
            weights(b, 5),
            strides=(2, 2),
            output_padding=(1, 1),
        ),
        1,
        3,
        5,
        6,
    ),
    "max pool": lambda: built(
        lambda b, x: b.op("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        1,
        3,
        8,
        9,
    ),
    "max pool, rounded up": lambda: built(
        lambda b, x: b.op("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1),
        1,
        3,
        8,
        9,
    ),
    "average pool": lambda: built(
        lambda b, x: b.op("AveragePool", x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        1,
        3,
        8,
        9,
    ),
    "average with border": lambda: built(
        lambda b, x: b.op(
            "AveragePool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1
        ),
        1,
        3,
        8,
        9,
    ),
    "residual": lambda: built(residual, 1, 3, 8, 9),
    "gemm": lambda: built(
        lambda b, x: b.op("Gemm", x, weights(b, 4, 5), weights(b, 5), alpha=0.5, beta=2.0), 3, 4
    ),
    "product with bias": lambda: built(
        lambda b, x: b.op("Add", b.op("MatMul", x, weights(b, 4, 5)), weights(b, 5)), 2, 3, 4
    ),
    "products of tensors": lambda: built(
        lambda b, x: b.op("MatMul", x, b.op("Transpose", x, perm=(0, 2, 1))), 2, 3, 4
    ),
    "products of tensors, limited": lambda: built(
        lambda b, x: b.op(
            "Clip",
            b.op("MatMul", x, b.const(9 * real(2, 4, 3))),
            b.const(np.float32(0)),
            b.const(np.float32(6)),
        ),
        2,
        3,
        4,
    ),
    "layer norm": lambda: built(
        lambda b, x: b.op("LayerNormalization", x, weights(b, 4), weights(b, 4), axis=-1), 2, 3, 4
    ),
    "rms norm": lambda: built(
        lambda b, x: b.op("RMSNormalization", x, weights(b, 4), axis=-1), 2, 3, 4
    ),
    "instance norm": lambda: built(
        lambda b, x: b.op("InstanceNormalization", x, weights(b, 3), weights(b, 3)), 2, 3, 8, 9
    ),
    "softmax of an inner axis": lambda: built(lambda b, x: b.op("Softmax", x, axis=1), 2, 3, 4),
    "clip": lambda: built(
        lambda b, x: b.op("Clip", x, b.const(np.float32(-0.5)), b.const(np.float32(0.25))), 3, 4
    ),
    "hard sigmoid": lambda: built(lambda b, x: b.op("HardSigmoid", x, alpha=0.3), 3, 4),
    "swish": lambda: built(lambda b, x: b.op("Swish", x), 3, 4),
    "mish": lambda: built(lambda b, x: b.op("Mish", x), 3, 4),
    "softplus": lambda: built(lambda b, x: b.op("Softplus", x), 3, 4),
    "celu": lambda: built(lambda b, x: b.op("Celu", x, alpha=0.5), 3, 4),
    "celu, negative": lambda: built(lambda b, x: b.op("Celu", x, alpha=-0.5), 3, 4),
    "softsign": lambda: built(lambda b, x: b.op("Softsign", x), 3, 4),
    "tan": lambda: built(lambda b, x: b.op("Tan", x), 3, 4),
    "thresholded": lambda: built(lambda b, x: b.op("ThresholdedRelu", x, alpha=0.3), 3, 4),
    "selu": lambda: built(lambda b, x: b.op("Selu", x), 3, 4),
    "elu": lambda: built(lambda b, x: b.op("Elu", x, alpha=0.5), 3, 4),
    "slices": lambda: built(
        lambda b, x: b.op(
            "Slice", x, *(b.const(np.array(each)) for each in ((-1, 1), (-100, 4), (0, 1), (-1, 2)))
        ),
        3,
        5,
    ),
    "slice of five axes": lambda: built(
        lambda b, x: b.op(
            "Slice", x, *(b.const(np.array(each)) for each in ((1, 2), (2, 5), (0, 3)))
        ),
        3,
        2,
        3,
        6,
        2,
    ),
    "gather from the end": lambda: built(
        lambda b, x: b.op("Gather", x, b.const(np.array([-1, 0])), axis=1), 3, 4
    ),
    "split": lambda: built(
        lambda b, x: b.op("Split", x, b.const(np.array([1, 3])), axis=1, n_outputs=2)[1], 3, 4
    ),
    "pads and cuts": lambda: built(
        lambda b, x: b.op("Pad", x, b.const(np.array([1, -1, 0, 2])), b.const(np.float32(3))), 3, 4
    ),
    "length": lambda: built(
        lambda b, x: b.op("ReduceL2", x, b.const(np.array([1])), keepdims=0), 3, 4
    ),
    "log of a sum": lambda: built(
        lambda b, x: b.op("ReduceLogSumExp", x, b.const(np.array([1])), keepdims=0), 3, 4
    ),
    "many means": lambda: built(
        lambda b, x: b.op("ReduceMean", x, b.const(np.array([1, 2])), keepdims=0), 2, 80, 90, 3
    ),
    "argument": lambda: built(lambda b, x: b.op("ArgMax", x, axis=1, keepdims=1), 3, 4),
    "resize": lambda: built(
        lambda b, x: b.op("Resize", x, None, None, b.const(np.array([1, 3, 8, 10])), **LINEAR),
        1,
        3,
        4,
        5,
    ),
    "depth to space": lambda: built(
        lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD"), 1, 8, 3, 4
    ),
    "reciprocal root": lambda: built(
        lambda b, x: b.op("Reciprocal", b.op("Sqrt", b.op("Abs", x))), 3, 4
    ),
    "lstm": lambda: lstm("forward", 0),
    "lstm, both ways": lambda: lstm("bidirectional", 0),
    "lstm, its end": lambda: lstm("bidirectional", 1),
    "lstm, backwards": lambda: lstm("reverse", 1),
    "lstm with state": lambda: stepwise("LSTM", 4, 0),
    "lstm, its cells": lambda: stepwise("LSTM", 4, 2, direction="bidirectional"),
    "gru": lambda: stepwise("GRU", 3, 0, linear_before_reset=1),
    "gru, reset first": lambda: stepwise("GRU", 3, 1, direction="bidirectional"),
    "choice that broadcasts": lambda: built(
        lambda b, x: b.op(
            "Where",
            b.const(RNG.random((3, 4)) > 0.5),
            b.op("Unsqueeze", x, b.const(np.array([1]))),
            b.const(np.float32(2)),
        ),
        2,
        4,
    ),
    "attention": lambda: built(attention, 1, 2, 4, 3),
    "input as output": lambda: built(lambda b, x: x, 3, 4),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_with_channels_first_and_all(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    kind = graph.inputs[0].type
    assert isinstance(kind, TensorType)
    x = real(*(kind.static_shape or ()))
    for optimise in (False, True):
        convert(graph, tmp_path / "out.tflite", optimise=optimise)
        found = run_litert((tmp_path / "out.tflite").read_bytes(), [x], reference=False)
        compare(found, [np.asarray(value) for value in graph.run([x])], relative=2e-5)
    assert graph.op_counts == GRAPHS[name]().op_counts


NOT_ON_ONERT = {
    "three axes": "it has no CONV_3D",
    "transposed": "its kernel takes no bias",
    "transposed, padded": "its kernel is for other hardware",
}


def test_onert_runs_graphs_that_were_never_circle(tmp_path: Path) -> None:
    names = [name for name in GRAPHS if name not in NOT_ON_ONERT]
    graphs = [GRAPHS[name]() for name in names]
    feeds = [
        real(*(kind.static_shape or ()))
        for graph in graphs
        if isinstance(kind := graph.inputs[0].type, TensorType)
    ]
    files = [tmp_path / f"{number}.circle" for number in range(len(graphs))]
    for graph, file in zip(graphs, files, strict=True):
        convert(graph, file)
    made = run_onert([(file, [feed]) for file, feed in zip(files, feeds, strict=True)], tmp_path)
    for name, graph, feed, results in zip(names, graphs, feeds, made, strict=True):
        try:
            compare(results, [np.asarray(value) for value in graph.run([feed])], relative=1e-4)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def qdq(zero_type: Any) -> Graph:
    """Two convolutions as ONNX Runtime's quantiser writes them: activations of `zero_type`, signed
    weights per channel.
    """

    def make(b: GraphBuilder, x: Symbol) -> Symbol:
        zero = b.const(np.array(110 if zero_type is np.uint8 else -18, zero_type))

        def through(value: Symbol, scale: float) -> Symbol:
            step = b.const(np.float32(scale))
            return b.op("DequantizeLinear", b.op("QuantizeLinear", value, step, zero), step, zero)

        def layer(value: Symbol, scale: float, channels: tuple[int, int]) -> Symbol:
            steps = RNG.uniform(0.005, 0.02, channels[0]).astype(np.float32)
            w = b.op(
                "DequantizeLinear",
                b.const(RNG.integers(-127, 127, (*channels, 3, 3)).astype(np.int8)),
                b.const(steps),
                axis=0,
            )
            bias = b.op(
                "DequantizeLinear",
                b.const(RNG.integers(-99, 99, channels[0]).astype(np.int32)),
                b.const(np.float32(scale) * steps),
                axis=0,
            )
            return b.op("Relu", b.op("Conv", value, w, bias, pads=(1, 1, 1, 1)))

        first = layer(through(x, 0.03), 0.03, (6, 3))
        return through(layer(through(first, 0.05), 0.05, (4, 6)), 0.07)

    return built(make, 1, 3, 6, 7)


@pytest.mark.parametrize("zero_type", [np.int8, np.uint8])
def test_quantised_graphs_of_onnx_become_quantised_operators(
    zero_type: Any, tmp_path: Path
) -> None:
    graph = qdq(zero_type)
    written = convert(graph, tmp_path / "out.tflite")
    listed = operators(written)
    assert listed.count("CONV_2D") == 2
    assert listed.count("DEQUANTIZE") == 1
    inputs = [
        written.subgraphs[0].tensors[each.inputs[0]].type
        for each in written.subgraphs[0].operators
        if each.name == "CONV_2D"
    ]
    assert inputs == ["INT8", "INT8"]
    x = real(1, 3, 6, 7)
    (made,), (expected,) = run_litert((tmp_path / "out.tflite").read_bytes(), [x]), graph.run([x])
    # Two layers, each within a quantum by the other rounding of LiteRT.
    assert np.abs(made - np.asarray(expected)).max() <= 2 * 0.07 + 1e-6
