"""Scales and biases per channel go into weights; whatever is not per channel stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.fold.fold_scale_bias import FoldScaleBias
from whence.types import DType

RNG = np.random.default_rng(11)


def weights(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (RNG.standard_normal(shape) + 2).astype(dtype)


def conv(
    build: GraphBuilder, x: Symbol | None = None, *, bias: bool = False, **attrs: Any
) -> Symbol:
    """A convolution from 2 channels to 3."""
    x = build.input("x", DType.F32, [1, 2, 5, 5]) if x is None else x
    extra = [build.const(weights(3))] if bias else []
    return build.op("Conv", x, build.const(weights(3, 2, 3, 3)), *extra, name="conv", **attrs)


def applied(
    build: GraphBuilder, op: str, value: Symbol, const: Any, *, const_first: bool = False
) -> Symbol:
    operand = build.const(np.asarray(const, np.float32))
    return (
        build.op(op, operand, value, name="scale")
        if const_first
        else build.op(op, value, operand, name="scale")
    )


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("const_first", [False, True])
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Div", "Sum"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1), (1, 1, 1, 1)])
def test_after_a_convolution(
    op: str, shape: tuple[int, ...], const_first: bool, bias: bool
) -> None:
    build = GraphBuilder()
    graph = finished(
        build,
        applied(
            build,
            op,
            conv(build, bias=bias, pads=(1, 1, 1, 1)),
            weights(*shape),
            const_first=const_first,
        ),
    )
    if op == "Div" and const_first:
        assert is_left_alone(graph, FoldScaleBias())
        return
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["Conv"]
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["scale"])


@given(data=st.data())
def test_random_chains_around_a_convolution(data: st.DataObject) -> None:
    group = data.draw(st.integers(1, 2), "group")
    padded = data.draw(st.booleans(), "padded")
    shapes = {"before": [(), (4, 1), (1, 4, 1)], "after": [(), (6, 1), (1, 6, 1)]}
    steps = st.lists(
        st.tuples(st.sampled_from(["Mul", "Div", "Add", "Sub"]), st.integers(0, 2), st.booleans()),
        max_size=3,
    )
    build = GraphBuilder()

    def chain(value: Symbol, side: str) -> Symbol:
        for op, shape, swapped in data.draw(steps, side):
            const = build.const(weights(*shapes[side][shape]))
            swapped = swapped and op != "Div"
            value = build.op(op, const, value) if swapped else build.op(op, value, const)
        return value

    y = chain(build.input("x", DType.F32, [2, 4, 7]), "before")
    y = build.op(
        "Conv",
        y,
        build.const(weights(6, 4 // group, 3)),
        group=group,
        pads=(1, 1) if padded else (0, 0),
    )
    graph = finished(build, chain(y, "after"))
    rewrite(graph, FoldScaleBias())
    left = operators(graph)
    assert left[-1] == "Conv"
    assert padded or left == ["Conv"]
