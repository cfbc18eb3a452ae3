"""Reshapes of a product's rows move to before it, where they meet those that numbered the rows
through.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.layout.cancel_reshapes import CancelReshapes
from whence.passes.layout.reshape_before_product import ReshapeBeforeProduct
from whence.types import DType

WEIGHTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def reshape(build: GraphBuilder, x: Symbol, *shape: int, name: str = "") -> Symbol:
    return build.op("Reshape", x, build.const(np.array(shape, np.int64)), name=name)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


def test_reshapes_around_a_gemm_vanish() -> None:
    build = GraphBuilder()
    rows = reshape(build, build.input("x", DType.F32, [2, 3, 4]), -1, 4, name="number")
    bias = np.arange(6, dtype=np.float32)
    y = build.op("Gemm", rows, build.const(WEIGHTS), build.const(bias), name="product", alpha=0.5)
    graph = finished(build, reshape(build, y, 2, 3, 6, name="divide"))
    assert rewrite(graph, ReshapeBeforeProduct(), CancelReshapes()) == {
        "reshape(gemm(a)) = FusedMatMul(reshape(a))": 1,
        "reshape(reshape(x)) = x": 1,
    }
    expected = GraphBuilder()
    x = expected.input("x", DType.F32, [2, 3, 4])
    z = expected.op(
        "FusedMatMul", x, expected.const(WEIGHTS), expected.const(bias), trans_b=0, alpha=0.5
    )
    assert structure(graph) == structure(finished(expected, z))
    assert carried(graph, only(graph, "FusedMatMul")) == (["product"], [])


def test_a_product_of_matrices_keeps_its_operator() -> None:
    build = GraphBuilder()
    y = build.op(
        "MatMul", build.input("x", DType.F32, [6, 4]), build.const(WEIGHTS), name="product"
    )
    graph = finished(build, reshape(build, y, 2, 3, 6, name="divide"))
    rewrite(graph, ReshapeBeforeProduct())
    assert operators(graph) == ["Reshape", "MatMul"]
    assert carried(graph, only(graph, "Reshape")) == (["divide"], [])


def test_the_transposed_right_hand_side_stays_so() -> None:
    build = GraphBuilder()
    y = build.op(
        "Gemm", build.input("x", DType.F32, [6, 4]), build.const(WEIGHTS.T.copy()), transB=1
    )
    graph = finished(build, reshape(build, y, 2, 3, 6))
    rewrite(graph, ReshapeBeforeProduct())
    assert only(graph, "FusedMatMul").attrs["trans_b"] == 1


@pytest.mark.parametrize(
    ("shape", "attrs", "bias", "why"),
    [
        ((4, 9), {}, None, "the columns are divided too"),
        ((36,), {}, None, "no axis is left for columns"),
        ((2, 3, 6), {"transA": 1}, None, "a is transposed"),
        ((2, 3, 6), {}, (6, 1), "each row has its own bias"),
        ((2, 3, 6), {"beta": 2.0}, (6,), "the bias is scaled"),
    ],
)
def test_what_must_stay(
    shape: tuple[int, ...], attrs: dict[str, Any], bias: tuple[int, ...] | None, why: str
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 6] if attrs.get("transA") else [6, 4])
    addend = [] if bias is None else [build.const(np.ones(bias, np.float32))]
    y = build.op("Gemm", x, build.const(WEIGHTS), *addend, **attrs)
    assert is_left_alone(finished(build, reshape(build, y, *shape)), ReshapeBeforeProduct()), why
