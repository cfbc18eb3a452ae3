"""Transposes go behind what works element by element."""

from __future__ import annotations

import numpy as np

from tests.passes.rewriting import is_left_alone, operators, rewrite
from whence.graph.builder import GraphBuilder
from whence.passes.layout.postpone_transposes import PostponeTransposes
from whence.types import DType


def test_behind_activation_and_quantisation() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 4])
    scale, zero = build.const(np.float32(0.1)), build.const(np.int8(3))
    turned = build.op("Transpose", x, perm=(0, 2, 1))
    codes = build.op(
        "QuantizeLinear",
        build.op("Clip", turned, build.const(np.float32(0)), build.const(np.float32(6))),
        scale,
        zero,
    )
    build.output("y", build.op("DequantizeLinear", codes, scale, zero))
    graph = build.finish()
    rewrite(graph, PostponeTransposes())
    assert operators(graph) == ["Clip", "QuantizeLinear", "DequantizeLinear", "Transpose"]
    assert [
        graph.ledger.source(each).op
        for node in graph
        if node.op == "Transpose"
        for each in node.origin
    ] == ["Transpose"]


def test_not_where_it_would_have_to_be_twice_or_parameters_lie_along_an_axis() -> None:
    build = GraphBuilder()
    turned = build.op("Transpose", build.input("x", DType.F32, [2, 3]), perm=(1, 0))
    build.output("y", build.op("Relu", turned))
    build.output("z", build.op("Tanh", turned))
    assert is_left_alone(build.finish(), PostponeTransposes())
    build = GraphBuilder()
    turned = build.op("Transpose", build.input("x", DType.F32, [2, 3]), perm=(1, 0))
    build.output(
        "y",
        build.op("QuantizeLinear", turned, build.const(np.array([0.1, 0.2], np.float32)), axis=1),
    )
    assert is_left_alone(build.finish(), PostponeTransposes())
