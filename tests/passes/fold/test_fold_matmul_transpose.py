"""Transposes and factors around products of matrices become attributes of Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import carried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.fold.fold_matmul_transpose import FoldMatmulTranspose
from whence.types import DType


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_transposed_operands(op: str) -> None:
    build = GraphBuilder()
    a = build.op("Transpose", build.input("a", DType.F32, [4, 3]), name="ta", perm=(1, 0))
    b = build.op("Transpose", build.input("b", DType.F32, [5, 4]), name="tb")
    graph = finished(build, build.op(op, a, b, name="product"))
    expected = GraphBuilder()
    y = expected.op(
        "Gemm",
        expected.input("a", DType.F32, [4, 3]),
        expected.input("b", DType.F32, [5, 4]),
        transA=1,
        transB=1,
    )
    assert rewrite(graph, FoldMatmulTranspose()) == {
        "gemm with transposed a = gemm with transA": 1,
        "gemm with transposed b = gemm with transB": 1,
    }
    assert structure(graph) == structure(finished(expected, y))
    assert carried(graph, only(graph, "Gemm")) == (["ta", "tb", "product"], [])


def test_a_flag_is_turned_over_and_left_out_when_it_is_zero() -> None:
    build = GraphBuilder()
    a = build.op("Transpose", build.input("a", DType.F32, [3, 4]), name="ta")
    c = build.input("c", DType.F32, [5])
    graph = finished(
        build,
        build.op(
            "Gemm", a, build.input("b", DType.F32, [4, 5]), c, name="gemm", transA=1, beta=2.0
        ),
    )
    rewrite(graph, FoldMatmulTranspose())
    assert operators(graph) == ["Gemm"]
    assert dict(only(graph, "Gemm").attrs) == {"beta": 2.0}
    assert edges_into(graph, only(graph, "Gemm")) == {"ta": "fuse", "gemm": "fuse"}


def test_a_shared_transpose_is_taken_by_each() -> None:
    build = GraphBuilder()
    t = build.op("Transpose", build.input("a", DType.F32, [3, 4]), name="t")
    build.output("one", build.op("MatMul", t, build.input("b", DType.F32, [3, 5]), name="one"))
    build.output("two", build.op("MatMul", build.input("c", DType.F32, [2, 4]), t, name="two"))
    graph = build.finish()
    rewrite(graph, FoldMatmulTranspose())
    assert operators(graph) == ["Gemm", "Gemm"]
    assert [carried(graph, node)[0] for node in graph if node.op == "Gemm"] == [
        ["t", "one"],
        ["t", "two"],
    ]


@pytest.mark.parametrize("c", [None, (), (5,), (3, 1), (3, 5)])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_transposed_result(op: str, c: tuple[int, ...] | None) -> None:
    build = GraphBuilder()
    extra = (
        []
        if c is None or op == "MatMul"
        else [build.const(np.random.default_rng(1).standard_normal(c).astype(np.float32))]
    )
    attrs: dict[str, Any] = {} if op == "MatMul" else {"transA": 1, "alpha": 3.0}
    a = build.input("a", DType.F32, [3, 4] if op == "MatMul" else [4, 3])
    y = build.op(op, a, build.input("b", DType.F32, [4, 5]), *extra, name="product", **attrs)
    graph = finished(build, build.op("Transpose", y, name="t", perm=(1, 0)))
    assert rewrite(graph, FoldMatmulTranspose()) == {"gemm(a, b, c)^T = gemm(b^T, a^T, c^T)": 1}
    assert operators(graph) == ["Gemm"]
    assert carried(graph, only(graph, "Gemm")) == (["product", "t"], [])


def test_a_variable_addend_cannot_be_transposed() -> None:
    build = GraphBuilder()
    y = build.op(
        "Gemm",
        build.input("a", DType.F32, [3, 4]),
        build.input("b", DType.F32, [4, 5]),
        build.input("c", DType.F32, [3, 5]),
    )
    assert is_left_alone(finished(build, build.op("Transpose", y)), FoldMatmulTranspose())


def test_factors_meet_in_alpha() -> None:
    build = GraphBuilder()
    a = build.op(
        "Mul", build.const(np.float32(3)), build.input("a", DType.F32, [3, 4]), name="scale_a"
    )
    b = build.op(
        "Div",
        build.input("b", DType.F32, [4, 5]),
        build.const(np.full((1, 1), 4, np.float32)),
        name="scale_b",
    )
    y = build.op("Gemm", a, b, build.input("c", DType.F32, [5]), name="gemm", alpha=2.0)
    graph = finished(build, build.op("Mul", y, build.const(np.float32(0.5)), name="scale_y"))
    rewrite(graph, FoldMatmulTranspose())
    assert operators(graph) == ["Gemm"]
    assert dict(only(graph, "Gemm").attrs) == {"alpha": 0.75, "beta": 0.5}
    assert carried(graph, only(graph, "Gemm"))[0] == ["scale_a", "scale_b", "gemm", "scale_y"]


def test_one_multiple_on_both_sides_counts_twice() -> None:
    build = GraphBuilder()
    a = build.op("Mul", build.input("a", DType.F32, [4, 4]), build.const(np.float32(3)))
    graph = finished(build, build.op("MatMul", a, a))
    rewrite(graph, FoldMatmulTranspose())
    assert only(graph, "Gemm").attrs["alpha"] == 9.0


def scaled(
    a: list[int],
    factor: Any,
    *,
    op: str = "Mul",
    first: bool = False,
    dtype: DType = DType.F32,
    b: list[int] | None = None,
) -> Graph:
    build = GraphBuilder()
    x, c = build.input("a", dtype, list(a)), build.const(np.asarray(factor, dtype.numpy))
    y = build.op(op, c, x) if first else build.op(op, x, c)
    return finished(build, build.op("MatMul", y, build.input("b", dtype, list(b or [4, 5]))))


@pytest.mark.parametrize(
    "graph",
    [
        scaled([3, 4], [2, 3, 4, 5]),
        scaled([3, 4], 2.0, op="Div", first=True),
        scaled([3, 4], 0.0, op="Div"),
        scaled([3, 4], [[[2.0]]]),
        scaled([2, 3, 4], 2.0),
        scaled([3, 4], 2, dtype=DType.I32),
        # float32 attributes would lose digits of a float64 model.
        scaled([3, 4], 0.1, dtype=DType.F64),
    ],
)
def test_factors_left_alone(graph: Graph) -> None:
    assert is_left_alone(graph, FoldMatmulTranspose())


def test_an_exact_factor_of_a_float64_product_is_folded() -> None:
    graph = scaled([3, 4], 0.5, dtype=DType.F64)
    rewrite(graph, FoldMatmulTranspose())
    assert operators(graph) == ["Gemm"]


def test_second_readers_keep_their_values() -> None:
    build = GraphBuilder()
    a = build.op("Mul", build.input("a", DType.F32, [3, 4]), build.const(np.float32(2)))
    y = build.op("MatMul", a, build.input("b", DType.F32, [4, 5]))
    build.output("a2", a)
    build.output("raw", y)
    assert is_left_alone(finished(build, build.op("Transpose", y)), FoldMatmulTranspose())


def test_stacks_of_matrices_stay() -> None:
    build = GraphBuilder()
    a = build.op("Transpose", build.input("a", DType.F32, [2, 4, 3]), perm=(0, 2, 1))
    assert is_left_alone(
        finished(build, build.op("MatMul", a, build.input("b", DType.F32, [4, 5]))),
        FoldMatmulTranspose(),
    )


@given(data=st.data())
def test_random_surroundings(data: st.DataObject) -> None:
    """Whatever stands around the product, the result stays and only the Gemm is left."""
    build = GraphBuilder()
    steps = st.lists(st.sampled_from(["t", "s"]), max_size=4)

    def chain(value: Symbol, name: str) -> Symbol:
        for step in data.draw(steps, name):
            value = (
                build.op("Transpose", value)
                if step == "t"
                else build.op("Mul", value, build.const(np.float32(2)))
            )
        return value

    n = 3
    a, b = (
        chain(build.input("a", DType.F32, [n, n]), "a"),
        chain(build.input("b", DType.F32, [n, n]), "b"),
    )
    c = (
        [build.const(np.arange(9, dtype=np.float32).reshape(3, 3))]
        if data.draw(st.booleans(), "c")
        else []
    )
    op = "Gemm" if c else data.draw(st.sampled_from(["Gemm", "MatMul"]), "op")
    attrs: dict[str, Any] = (
        {"transA": data.draw(st.integers(0, 1), "transA")} if op == "Gemm" else {}
    )
    graph = finished(build, chain(build.op(op, a, b, *c, **attrs), "y"))
    rewrite(graph, FoldMatmulTranspose())
    assert operators(graph) in (["Gemm"], ["MatMul"])
