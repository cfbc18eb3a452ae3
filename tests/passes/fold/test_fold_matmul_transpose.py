"""Transposes and factors around products of matrices become attributes of Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.fold.fold_matmul_transpose import FoldMatmulTranspose
from whence.types import DType


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


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
