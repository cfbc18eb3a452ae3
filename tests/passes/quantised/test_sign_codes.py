"""Unsigned activations beside signed weights become signed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.passes.rewriting import is_left_alone, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.quantised.sign_codes import SignCodes
from whence.types import DType, TensorType


def network(weights: Any = np.int8, **attrs: Any) -> Graph:
    build = GraphBuilder()
    scale, zero = build.const(np.float32(0.1)), build.const(np.uint8(100))
    x = build.op("QuantizeLinear", build.input("x", DType.F32, [2, 4]), scale, zero, **attrs)
    stored = build.const(np.arange(12).reshape(4, 3).astype(weights))
    w = build.op(
        "DequantizeLinear", stored, build.const(np.float32(0.5)), build.const(np.zeros((), weights))
    )
    build.output("y", build.op("MatMul", build.op("DequantizeLinear", x, scale, zero), w))
    build.output("z", build.op("DequantizeLinear", x, scale, zero))
    return build.finish()


def test_codes_and_zero_move_together() -> None:
    graph = network()
    assert sum(rewrite(graph, SignCodes(), tolerance=0).values()) == 1
    (quantise,) = (node for node in graph if node.op == "QuantizeLinear")
    assert isinstance(quantise.type, TensorType)
    assert quantise.type.dtype is DType.I8
    assert graph.const_value(quantise.inputs[2]) == -28


def test_unsigned_weights_and_the_arithmetic_of_tflite_stay() -> None:
    assert is_left_alone(network(np.uint8), SignCodes())
    assert is_left_alone(network(arithmetic="fixed_point"), SignCodes())


def test_codes_that_somebody_else_reads_stay() -> None:
    build = GraphBuilder()
    scale, zero = build.const(np.float32(0.1)), build.const(np.uint8(100))
    x = build.op("QuantizeLinear", build.input("x", DType.F32, [2, 4]), scale, zero)
    w = build.op(
        "DequantizeLinear", build.const(np.ones((4, 3), np.int8)), build.const(np.float32(0.5))
    )
    build.output("y", build.op("MatMul", build.op("DequantizeLinear", x, scale, zero), w))
    build.output("codes", x)
    assert is_left_alone(build.finish(), SignCodes())
