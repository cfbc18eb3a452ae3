"""Elements are moved as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.quantised.move_codes import MoveCodes
from whence.types import DType


def real(build: GraphBuilder, x: Symbol, scale: Any = 0.5, zero: Any = 3, **attrs: Any) -> Symbol:
    scales = np.asarray(scale, np.float32)
    return build.op(
        "DequantizeLinear",
        x,
        build.const(scales),
        build.const(np.broadcast_to(np.int8(zero), scales.shape).copy()),
        **attrs,
    )


def codes(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("QuantizeLinear", x, build.const(np.float32(0.25)), build.const(np.int8(1)))


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


_MOVES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("Reshape", [np.array([6, 4], np.int64)], {}),
    ("Transpose", [], {"perm": (2, 0, 1)}),
    ("Unsqueeze", [np.array([0], np.int64)], {}),
    ("Slice", [np.array([1], np.int64), np.array([3], np.int64), np.array([2], np.int64)], {}),
]


@pytest.mark.parametrize(("op", "others", "attrs"), _MOVES)
def test_dequantise_later(op: str, others: list[np.ndarray], attrs: dict[str, Any]) -> None:
    build = GraphBuilder()
    x = real(build, build.input("x", DType.I8, [2, 3, 4]))
    graph = finished(build, build.op(op, x, *(build.const(each) for each in others), **attrs))
    rewrite(graph, MoveCodes())
    assert operators(graph) == [op, "DequantizeLinear"]


@pytest.mark.parametrize(("op", "others", "attrs"), _MOVES)
def test_quantise_earlier(op: str, others: list[np.ndarray], attrs: dict[str, Any]) -> None:
    build = GraphBuilder()
    x = build.op("Exp", build.input("x", DType.F32, [2, 3, 4]))
    graph = finished(
        build, codes(build, build.op(op, x, *(build.const(each) for each in others), **attrs))
    )
    rewrite(graph, MoveCodes())
    assert operators(graph) == ["Exp", "QuantizeLinear", op]


def test_several_moves_and_several_readers() -> None:
    build = GraphBuilder()
    x = real(build, build.input("x", DType.I8, [2, 3]))
    build.output("plain", build.op("Exp", x))
    y = build.op(
        "Reshape", build.op("Transpose", x, perm=(1, 0)), build.const(np.array([6], np.int64))
    )
    graph = finished(build, y)
    rewrite(graph, MoveCodes())
    assert operators(graph) == [
        "DequantizeLinear",
        "Exp",
        "Transpose",
        "Reshape",
        "DequantizeLinear",
    ]


def test_constants_are_moved_at_once_and_scales_with_their_axis() -> None:
    build = GraphBuilder()
    w = real(build, build.const(np.arange(6, dtype=np.int8).reshape(2, 3)), [0.5, 0.25], 0, axis=0)
    x = build.input("x", DType.F32, [4, 3])
    graph = finished(build, build.op("MatMul", x, build.op("Transpose", w, perm=(1, 0))))
    rewrite(graph, MoveCodes())
    assert operators(graph) == ["DequantizeLinear", "MatMul"]
    assert only(graph, "DequantizeLinear").attrs["axis"] == 1


def test_left_alone() -> None:
    def scales_of_an_axis(build: GraphBuilder) -> Symbol:
        return build.op(
            "Transpose",
            real(build, build.input("x", DType.I8, [2, 3]), [0.5, 0.25], 0, axis=0),
            perm=(1, 0),
        )

    def read_by_another(build: GraphBuilder) -> Symbol:
        moved = build.op("Transpose", build.input("x", DType.F32, [2, 3]), perm=(1, 0))
        build.output("moved", build.op("Exp", moved))
        return codes(build, moved)

    def computed_scale(build: GraphBuilder) -> Symbol:
        x = build.op(
            "DequantizeLinear", build.input("x", DType.I8, [2, 3]), build.input("s", DType.F32, [])
        )
        return build.op("Transpose", x, perm=(1, 0))

    for form in (scales_of_an_axis, read_by_another, computed_scale):
        build = GraphBuilder()
        assert is_left_alone(finished(build, form(build)), MoveCodes())
