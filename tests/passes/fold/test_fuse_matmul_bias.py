"""Products of matrices and sums become Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.structure import structure
from whence.passes.fold.fuse_matmul_bias import FuseMatmulBias
from whence.types import Dim, DType


def product_and_sum(
    op: str = "MatMul",
    *,
    a: list[Dim] | None = None,
    b: list[Dim] | None = None,
    c: list[Dim] | None = None,
    gemm_c: Any = None,
    swapped: bool = False,
    addition: str = "Add",
    dtype: DType = DType.F32,
    **attrs: Any,
) -> Graph:
    build = GraphBuilder()
    left = build.input("a", dtype, a or [3, 4])
    right = build.input("b", dtype, b or [4, 5])
    extra = [] if gemm_c is None else [build.const(np.asarray(gemm_c, np.float32))]
    y = build.op(op, left, right, *extra, name="product", **attrs)
    z = build.input("c", dtype, [5] if c is None else c)
    build.output(
        "y",
        build.op(addition, z, y, name="sum") if swapped else build.op(addition, y, z, name="sum"),
    )
    return build.finish()


def test_matmul_and_add_become_gemm() -> None:
    graph = product_and_sum()
    expected = GraphBuilder()
    a, b, c = (
        expected.input(name, DType.F32, shape)
        for name, shape in (("a", [3, 4]), ("b", [4, 5]), ("c", [5]))
    )
    expected.output("y", expected.op("Gemm", a, b, c))
    assert rewrite(graph, FuseMatmulBias()) == {"matmul(a, b) + c = gemm(a, b, c)": 1}
    assert structure(graph) == structure(expected.finish())
    assert edges_into(graph, only(graph, "Gemm")) == {"product": "fuse", "sum": "fuse"}
    assert carried(graph, only(graph, "Gemm")) == (["product", "sum"], [])


@pytest.mark.parametrize(
    "graph",
    [
        product_and_sum(c=[]),
        product_and_sum(c=[1, 5], swapped=True),
        product_and_sum(c=[3, 1], addition="Sum"),
        product_and_sum(c=[3, 5], dtype=DType.F16),
        product_and_sum(a=["rows", 4], c=["rows", 5]),
        product_and_sum("Gemm", alpha=0.5),
        product_and_sum("Gemm", gemm_c=np.zeros(5), swapped=True),
        product_and_sum("Gemm", gemm_c=np.ones(5), beta=0.0, a=[4, 3], transA=1),
    ],
)
def test_fused(graph: Graph) -> None:
    rewrite(graph, FuseMatmulBias(), tolerance=2e-3)
    assert operators(graph) == ["Gemm"]
    assert len(only(graph, "Gemm").inputs) == 3
    assert "beta" not in only(graph, "Gemm").attrs


@pytest.mark.parametrize(
    "graph",
    [
        product_and_sum(a=[2, 3, 4]),
        product_and_sum(b=[2, 4, 5]),
        # The sum is larger than the product.
        product_and_sum(c=[1, 3, 5]),
        product_and_sum(a=[1, 4], c=[3, 5]),
        product_and_sum(b=[4, 1], c=[5]),
        # It may be larger: nothing says that the two dimensions are equal.
        product_and_sum(a=["rows", 4], c=["other", 5]),
        product_and_sum("Gemm", gemm_c=np.ones(5)),
        product_and_sum(dtype=DType.I32),
    ],
)
def test_left_alone(graph: Graph) -> None:
    assert is_left_alone(graph, FuseMatmulBias())


def test_a_second_reader_keeps_the_product() -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("a", DType.F32, [3, 4]), build.input("b", DType.F32, [4, 5]))
    build.output("sum", build.op("Add", y, build.input("c", DType.F32, [5])))
    build.output("raw", y)
    assert is_left_alone(build.finish(), FuseMatmulBias())


def test_a_product_added_to_itself_and_a_sum_of_three_stay() -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("a", DType.F32, [3, 4]), build.input("b", DType.F32, [4, 5]))
    build.output("y", build.op("Add", y, y))
    assert is_left_alone(build.finish(), FuseMatmulBias())

    build = GraphBuilder()
    y = build.op("MatMul", build.input("a", DType.F32, [3, 4]), build.input("b", DType.F32, [4, 5]))
    c = build.input("c", DType.F32, [3, 5])
    build.output("y", build.op("Sum", y, c, c))
    assert is_left_alone(build.finish(), FuseMatmulBias())


def test_two_products_in_one_sum() -> None:
    build = GraphBuilder()
    a, b = build.input("a", DType.F32, [3, 4]), build.input("b", DType.F32, [4, 5])
    first = build.op("MatMul", a, b, name="first")
    second = build.op("MatMul", build.op("Relu", a), b, name="second")
    build.output("y", build.op("Add", first, second, name="sum"))
    graph = build.finish()
    rewrite(graph, FuseMatmulBias())
    assert sorted(operators(graph)) == ["Gemm", "MatMul", "Relu"]
    assert carried(graph, only(graph, "Gemm"))[0] == ["first", "sum"]
