"""Scales and biases per channel go into weights; whatever is not per channel stays."""

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
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.fold.fold_scale_bias import FoldScaleBias
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
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


def test_the_numbers_are_those_of_the_law() -> None:
    w, b, c = weights(3, 2, 1, 1), weights(3), weights(3, 1, 1)
    build = GraphBuilder()
    y = build.op(
        "Conv",
        build.input("x", DType.F32, [1, 2, 4, 4]),
        build.const(w),
        build.const(b),
        name="conv",
    )
    graph = finished(build, build.op("Mul", y, build.const(c), name="scale"))
    expected = GraphBuilder()
    scaled = (
        (w.astype(np.float64) * c[:, np.newaxis]).astype(np.float32),
        (b.astype(np.float64) * c.reshape(-1)).astype(np.float32),
    )
    y = expected.op(
        "Conv", expected.input("x", DType.F32, [1, 2, 4, 4]), *map(expected.const, scaled)
    )
    assert rewrite(graph, FoldScaleBias()) == {"c·f(x) = f'(x)": 1}
    assert structure(graph) == structure(finished(expected, y))
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["scale"])
    assert edges_into(graph, only(graph, "Conv"))["scale"] == "fold"


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


def test_an_addition_does_not_copy_the_weights() -> None:
    build = GraphBuilder()
    graph = finished(build, applied(build, "Add", conv(build), weights(3, 1, 1)))
    before = only(graph, "Conv").inputs[1]
    rewrite(graph, FoldScaleBias())
    assert only(graph, "Conv").inputs[1] == before


def test_a_whole_chain_goes_in() -> None:
    build = GraphBuilder()
    y = conv(build, auto_pad="SAME_UPPER")
    for op, shape in (
        ("Mul", (1, 3, 1, 1)),
        ("Mul", (3, 1, 1)),
        ("Add", ()),
        ("Div", (3, 1, 1)),
        ("Sub", (1, 3, 1, 1)),
    ):
        y = build.op(op, y, build.const(weights(*shape)))
    graph = finished(build, y)
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["Conv"]
    assert len(only(graph, "Conv").origin) == 6


def test_a_constant_that_is_the_same_at_every_position() -> None:
    build = GraphBuilder()
    everywhere = np.broadcast_to(weights(1, 3, 1, 1), (1, 3, 3, 3)).copy()
    graph = finished(build, applied(build, "Mul", conv(build), everywhere))
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["Conv"]


@pytest.mark.parametrize(
    "shape", [(3,), (3, 1), (3, 3), (2, 1, 1, 1), (1, 1, 1, 1, 1), (3, 3, 3), (2, 3, 1, 1)]
)
def test_what_varies_along_another_axis_or_changes_the_shape_stays(shape: tuple[int, ...]) -> None:
    for op in ("Mul", "Add"):
        build = GraphBuilder()
        assert is_left_alone(
            finished(build, applied(build, op, conv(build), weights(*shape))), FoldScaleBias()
        )


def test_one_output_channel_does_not_broadcast_to_many() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [1, 2, 4, 4]), build.const(weights(1, 2, 1, 1))
    )
    assert is_left_alone(
        finished(build, applied(build, "Mul", y, weights(3, 1, 1))), FoldScaleBias()
    )


@pytest.mark.parametrize(
    "case", ["Gemm", "GemmBias", "GemmColumn", "GemmVariable", "MatMul", "Stack"]
)
@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_after_a_matrix_product(case: str, op: str) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 4] if case == "Stack" else [3, 4])
    extra = {
        "GemmBias": lambda: [build.const(weights(1, 5))],
        "GemmColumn": lambda: [build.const(weights(3, 1))],
        "GemmVariable": lambda: [build.input("c", DType.F32, [5])],
    }.get(case, list)()
    kind = "Gemm" if case.startswith("Gemm") else "MatMul"
    attrs: dict[str, Any] = {"alpha": 2.0, "beta": 0.5} if kind == "Gemm" else {}
    graph = finished(
        build,
        applied(
            build,
            op,
            build.op(kind, x, build.const(weights(4, 5)), *extra, name="linear", **attrs),
            weights(5),
        ),
    )
    if case in {"GemmColumn", "GemmVariable"} or (case == "Stack" and op == "Add"):
        assert is_left_alone(graph, FoldScaleBias())
        return
    rewrite(graph, FoldScaleBias())
    (left,) = operators(graph)
    assert left == ("Gemm" if kind == "Gemm" or op == "Add" else "MatMul")
    assert carried(graph, only(graph, left)) == (["linear"], ["scale"])


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("shape", [(), (2, 1, 1), (1, 2, 1, 1)])
def test_before_a_convolution_without_padding(op: str, shape: tuple[int, ...]) -> None:
    build = GraphBuilder()
    x = applied(build, op, build.input("x", DType.F32, [1, 2, 5, 5]), weights(*shape))
    graph = finished(build, conv(build, x, bias=True))
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["Conv"]
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["scale"])


def test_padding_lets_a_factor_through_but_no_addition() -> None:
    build = GraphBuilder()
    x = applied(build, "Sub", build.input("x", DType.F32, [1, 2, 5, 5]), weights(2, 1, 1))
    x = build.op("Div", x, build.const(np.float32(3)))
    graph = finished(build, conv(build, x, pads=(1, 1, 1, 1)))
    assert rewrite(graph, FoldScaleBias()) == {"f(x/c) = f'(x)": 1}
    assert operators(graph) == ["Sub", "Conv"]


def test_a_factor_goes_into_a_transposed_convolution_after_it() -> None:
    build = GraphBuilder()
    x = applied(build, "Mul", build.input("x", DType.F32, [1, 4, 3, 3]), weights(4, 1, 1))
    graph = finished(
        build,
        build.op("ConvTranspose", x, build.const(weights(4, 3, 2, 2)), group=2, strides=(2, 2)),
    )
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["ConvTranspose"]


def test_before_a_matrix_product() -> None:
    for shape, op, expected in (
        ([3, 4], "Add", ["Gemm"]),
        ([2, 3, 4], "Mul", ["MatMul"]),
        ([2, 3, 4], "Add", ["Add", "MatMul"]),
    ):
        build = GraphBuilder()
        x = applied(build, op, build.input("x", DType.F32, shape), weights(4))
        graph = finished(build, build.op("MatMul", x, build.const(weights(4, 5))))
        rewrite(graph, FoldScaleBias())
        assert operators(graph) == expected


@pytest.mark.parametrize(
    ("op", "shape"), [("Mul", (3, 1, 1)), ("Add", (1, 3, 1, 1)), ("Div", ()), ("Sub", (3, 1, 1))]
)
def test_after_a_batch_norm_that_no_weights_can_take(op: str, shape: tuple[int, ...]) -> None:
    build = GraphBuilder()
    parameters = [build.const(weights(3)) for _ in range(3)] + [build.const(np.abs(weights(3)) + 1)]
    y = build.op(
        "BatchNormalization",
        build.op("Relu", build.input("x", DType.F32, [2, 3, 4, 4])),
        *parameters,
        name="bn",
    )
    graph = finished(build, applied(build, op, y, weights(*shape)))
    rewrite(graph, FoldScaleBias())
    assert operators(graph) == ["Relu", "BatchNormalization"]
    assert carried(graph, only(graph, "BatchNormalization")) == (["bn"], ["scale"])


@pytest.mark.parametrize("case", ["axis", "training", "readers", "variable"])
def test_a_batch_norm_that_does_not_take_it(case: str) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 4, 4, 4])
    first = build.input("scale", DType.F32, [4]) if case == "variable" else build.const(weights(4))
    parameters = [
        first,
        build.const(weights(4)),
        build.const(weights(4)),
        build.const(np.abs(weights(4)) + 1),
    ]
    y = build.op("BatchNormalization", x, *parameters, training_mode=int(case == "training"))
    if case == "readers":
        build.output("raw", y)
    factor = weights(4, 1) if case == "axis" else weights(4, 1, 1)
    assert is_left_alone(finished(build, applied(build, "Mul", y, factor)), FoldScaleBias())


def test_a_value_that_broadcasts_up_to_the_channels_stays() -> None:
    build = GraphBuilder()
    x = applied(build, "Mul", build.input("x", DType.F32, [1, 1, 5, 5]), weights(2, 1, 1))
    assert is_left_alone(finished(build, conv(build, x)), FoldScaleBias())


def test_a_second_reader_keeps_the_scale() -> None:
    build = GraphBuilder()
    y = conv(build)
    build.output("raw", y)
    assert is_left_alone(finished(build, applied(build, "Mul", y, 2.0)), FoldScaleBias())

    build = GraphBuilder()
    x = applied(build, "Mul", build.input("x", DType.F32, [1, 2, 5, 5]), 2.0)
    build.output("scaled", x)
    assert is_left_alone(finished(build, conv(build, x)), FoldScaleBias())


def test_constants_must_be_constant_finite_floats() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [1, 2, 5, 5]), build.input("w", DType.F32, [3, 2, 3, 3])
    )
    assert is_left_alone(finished(build, applied(build, "Mul", y, 2.0)), FoldScaleBias())

    build = GraphBuilder()
    assert is_left_alone(
        finished(build, build.op("Mul", conv(build), build.input("c", DType.F32, []))),
        FoldScaleBias(),
    )

    build = GraphBuilder()
    assert is_left_alone(finished(build, applied(build, "Div", conv(build), 0.0)), FoldScaleBias())

    build = GraphBuilder()
    y = build.op(
        "MatMul", build.input("x", DType.I32, [2, 2]), build.const(np.ones((2, 2), np.int32))
    )
    assert is_left_alone(
        finished(build, build.op("Mul", y, build.const(np.int32(2)))), FoldScaleBias()
    )


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


def test_what_made_the_constants_is_folded_too() -> None:
    """An operator that constant folding turned into a constant lives on in the weights that take
    the constant in.
    """
    build = GraphBuilder()
    factor = build.op(
        "Unsqueeze", build.const(weights(3)), build.const(np.array([1, 2])), name="unsqueeze"
    )
    w = build.op(
        "Reshape", build.const(weights(3, 18)), build.const(np.array([3, 2, 3, 3])), name="reshape"
    )
    y = build.op("Conv", build.input("x", DType.F32, [1, 2, 5, 5]), w, name="conv")
    graph = finished(build, build.op("Mul", y, factor, name="scale"))
    rewrite(graph, FoldConstants(), RemoveDeadNodes(), FoldScaleBias(), RemoveDeadNodes())
    assert operators(graph) == ["Conv"]
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["unsqueeze", "reshape", "scale"])
