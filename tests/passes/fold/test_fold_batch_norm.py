"""Batch normalisation goes into the weights beside it, and nowhere else."""

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
from whence.passes.fold.fold_batch_norm import FoldBatchNorm
from whence.passes.fold.fold_scale_bias import FoldScaleBias
from whence.types import DType

RNG = np.random.default_rng(7)


def weights(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def batch_norm(
    build: GraphBuilder, x: Symbol, channels: int, dtype: Any = np.float32, **attrs: Any
) -> Symbol:
    scale, bias, mean = (build.const(weights(channels, dtype=dtype)) for _ in range(3))
    variance = build.const((np.abs(weights(channels)) + 0.5).astype(dtype))
    return build.op("BatchNormalization", x, scale, bias, mean, variance, name="bn", **attrs)


def test_conv_and_batch_norm_become_one_conv_with_the_stated_numbers() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 2, 4, 4])
    w, b = weights(3, 2, 3, 3), weights(3)
    scale, beta, mean, variance = (
        np.array(v, np.float32) for v in ([2, 3, -1], [0.5, 0, 1], [1, -1, 2], [1, 4, 9])
    )
    y = build.op("Conv", x, build.const(w), build.const(b), name="conv", pads=(1, 1, 1, 1))
    y = build.op(
        "BatchNormalization",
        y,
        *map(build.const, (scale, beta, mean, variance)),
        name="bn",
        epsilon=0.0,
    )
    build.output("y", build.op("Relu", y))
    graph = build.finish()

    expected = GraphBuilder()
    x = expected.input("x", DType.F32, [1, 2, 4, 4])
    s = scale.astype(np.float64) / np.sqrt(variance)
    folded = (
        (w * s.reshape(3, 1, 1, 1)).astype(np.float32),
        ((b - mean) * s + beta).astype(np.float32),
    )
    y = expected.op("Conv", x, *map(expected.const, folded), pads=(1, 1, 1, 1))
    expected.output("y", expected.op("Relu", y))

    assert rewrite(graph, FoldBatchNorm()) == {
        "BN(conv(x, w, b)) = conv(x, w·s, (b-mean)·s+beta)": 1
    }
    assert structure(graph) == structure(expected.finish())
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["bn"])
    assert edges_into(graph, only(graph, "Conv"))["bn"] == "fold"
    assert only(graph, "Conv").name == "conv"


def linear_graph(op: str, dtype: Any = np.float32, bias: bool = False, **attrs: Any) -> Graph:
    build = GraphBuilder()
    if op in {"Conv", "ConvTranspose"}:
        x = build.input("x", DType.of(np.zeros(0, dtype)), [2, 4, 5, 5])
        w = weights(*((6, 2, 3, 3) if op == "Conv" else (4, 3, 3, 3)), dtype=dtype)
        attrs = {"group": 2, "strides": (2, 2), **attrs}
    else:
        x = build.input("x", DType.of(np.zeros(0, dtype)), [2, 4])
        w = weights(*((6, 4) if attrs.get("transB") else (4, 6)), dtype=dtype)
    inputs = [x, build.const(w), *([build.const(weights(6, dtype=dtype))] if bias else [])]
    build.output("y", batch_norm(build, build.op(op, *inputs, name="linear", **attrs), 6, dtype))
    return build.finish()


@pytest.mark.parametrize(
    "graph",
    [
        linear_graph("Conv"),
        linear_graph("Conv", bias=True, auto_pad="SAME_UPPER"),
        linear_graph("ConvTranspose"),
        linear_graph("ConvTranspose", bias=True, output_padding=(1, 1)),
        linear_graph("Gemm"),
        linear_graph("Gemm", bias=True, alpha=0.5, beta=2.0, transB=1),
        linear_graph("Conv", np.float64, bias=True),
    ],
)
def test_every_linear_operator_takes_it(graph: Graph) -> None:
    op = operators(graph)[0]
    rewrite(graph, FoldBatchNorm(), tolerance=1e-5)
    assert operators(graph) == [op]
    assert carried(graph, only(graph, op)) == (["linear"], ["bn"])


def test_float16_weights_are_rounded_once() -> None:
    graph = linear_graph("Conv", np.float16, bias=True)
    rewrite(graph, FoldBatchNorm(), tolerance=5e-3)
    assert operators(graph) == ["Conv"]
    assert {str(node.type) for node in graph if node.is_const} == {"f16[6,2,3,3]", "f16[6]"}


def test_matmul_of_matrices_becomes_gemm() -> None:
    graph = linear_graph("MatMul")
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == ["Gemm"]
    assert carried(graph, only(graph, "Gemm")) == (["linear"], ["bn"])


def test_it_is_found_through_reshape_and_transpose() -> None:
    build = GraphBuilder()
    y = build.op(
        "MatMul", build.input("x", DType.F32, [3, 5]), build.const(weights(5, 4)), name="matmul"
    )
    y = build.op("Reshape", y, build.const(np.array([3, 1, 1, 4])), name="reshape")
    y = build.op("Transpose", y, name="transpose", perm=(0, 3, 1, 2))
    build.output("y", batch_norm(build, y, 4))
    graph = build.finish()
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == ["Gemm", "Reshape", "Transpose"]
    assert carried(graph, only(graph, "Gemm")) == (["matmul"], ["bn"])
    assert edges_into(graph, only(graph, "Reshape")) == {"reshape": "copy"}
    assert edges_into(graph, only(graph, "Transpose")) == {"transpose": "copy"}


def test_a_stack_of_matrices_keeps_the_addition() -> None:
    build = GraphBuilder()
    y = build.op(
        "MatMul",
        build.input("x", DType.F32, ["batch", 3, 5]),
        build.const(weights(5, 4)),
        name="matmul",
    )
    build.output("y", batch_norm(build, build.op("Transpose", y, perm=(0, 2, 1)), 4))
    graph = build.finish()
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == ["MatMul", "Add", "Transpose"]
    assert edges_into(graph, only(graph, "MatMul")) == {"matmul": "fuse", "bn": "fuse"}
    assert edges_into(graph, only(graph, "Add")) == {"bn": "lower"}


def test_a_reshape_that_splits_the_channels_is_in_the_way() -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("x", DType.F32, [3, 5]), build.const(weights(5, 4)))
    y = build.op("Reshape", y, build.const(np.array([3, 2, 2])))
    build.output("y", batch_norm(build, y, 2))
    assert is_left_alone(build.finish(), FoldBatchNorm())


@pytest.mark.parametrize("group", [1, 2, 4])
def test_batch_norm_before_a_conv_without_padding(group: int) -> None:
    build = GraphBuilder()
    y = batch_norm(build, build.input("x", DType.F32, [1, 4, 6, 6]), 4)
    build.output(
        "y",
        build.op(
            "Conv",
            y,
            build.const(weights(8, 4 // group, 3, 3)),
            build.const(weights(8)),
            name="conv",
            group=group,
        ),
    )
    graph = build.finish()
    assert rewrite(graph, FoldBatchNorm()) == {"conv(BN(x), w, b) = conv(x, w·s, b+Σw·t)": 1}
    assert operators(graph) == ["Conv"]
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["bn"])


@pytest.mark.parametrize("attrs", [{}, {"transB": 1, "alpha": 3.0}])
def test_batch_norm_before_gemm(attrs: dict[str, Any]) -> None:
    build = GraphBuilder()
    y = batch_norm(build, build.input("x", DType.F32, [3, 4]), 4)
    build.output("y", build.op("Gemm", y, build.const(weights(4, 4)), name="gemm", **attrs))
    graph = build.finish()
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == ["Gemm"]


def test_padding_or_a_transposed_input_is_in_the_way_of_what_follows() -> None:
    for op, shape, attrs in (
        ("Conv", [1, 4, 6, 6], {"pads": (1, 1, 1, 1)}),
        ("Conv", [1, 4, 6, 6], {"auto_pad": "SAME_LOWER"}),
        ("ConvTranspose", [1, 4, 6, 6], {}),
        ("Gemm", [4, 4], {"transA": 1}),
    ):
        build = GraphBuilder()
        y = batch_norm(build, build.input("x", DType.F32, shape), 4)
        build.output(
            "y", build.op(op, y, build.const(weights(4, 4, *[3] * (len(shape) - 2))), **attrs)
        )
        assert is_left_alone(build.finish(), FoldBatchNorm()), (op, attrs)


def test_a_second_reader_keeps_both() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [1, 2, 4, 4]), build.const(weights(3, 2, 1, 1))
    )
    build.output("y", batch_norm(build, y, 3))
    build.output("raw", y)
    assert is_left_alone(build.finish(), FoldBatchNorm())


def test_weights_and_parameters_must_be_constant() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [1, 2, 4, 4]), build.input("w", DType.F32, [3, 2, 1, 1])
    )
    build.output("y", batch_norm(build, y, 3))
    assert is_left_alone(build.finish(), FoldBatchNorm())

    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [1, 2, 4, 4]), build.const(weights(3, 2, 1, 1))
    )
    one = build.const(np.ones(3, np.float32))
    build.output(
        "y", build.op("BatchNormalization", y, build.input("scale", DType.F32, [3]), one, one, one)
    )
    assert is_left_alone(build.finish(), FoldBatchNorm())


def test_training_mode_and_a_lone_normalisation_stay() -> None:
    build = GraphBuilder()
    build.output(
        "y", batch_norm(build, build.op("Relu", build.input("x", DType.F32, [2, 3, 4, 4])), 3)
    )
    assert is_left_alone(build.finish(), FoldBatchNorm())

    build = GraphBuilder()
    y = build.op(
        "Conv", build.input("x", DType.F32, [2, 2, 4, 4]), build.const(weights(3, 2, 1, 1))
    )
    build.output("y", batch_norm(build, y, 3, training_mode=1))
    assert is_left_alone(build.finish(), FoldBatchNorm())


def test_a_scale_that_leaves_the_range_of_the_weights_stays() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv",
        build.input("x", DType.F16, [1, 1, 2, 2]),
        build.const(np.full((1, 1, 1, 1), 60000, np.float16)),
    )
    one, zero = build.const(np.full(1, 100, np.float16)), build.const(np.zeros(1, np.float16))
    build.output(
        "y", build.op("BatchNormalization", y, one, zero, zero, build.const(np.ones(1, np.float16)))
    )
    assert is_left_alone(build.finish(), FoldBatchNorm())


@given(data=st.data())
def test_random_convolutions(data: st.DataObject) -> None:
    """Any rank, grouping and stride; before or after; the outputs stay and nothing is left of the
    normalisation.
    """
    spatial = data.draw(st.integers(1, 3), "spatial axes")
    group = data.draw(st.integers(1, 3), "group")
    c_in, c_out = (
        group * data.draw(st.integers(1, 3), "inputs"),
        group * data.draw(st.integers(1, 3), "outputs"),
    )
    transposed, first = data.draw(st.booleans(), "transposed"), data.draw(st.booleans(), "before")
    kernel = data.draw(st.tuples(*[st.integers(1, 3)] * spatial), "kernel")
    attrs: dict[str, Any] = {
        "group": group,
        "strides": data.draw(st.tuples(*[st.integers(1, 2)] * spatial), "strides"),
    }
    if not first and data.draw(st.booleans(), "padded"):
        attrs["pads"] = tuple(min(size - 1, 1) for size in kernel) * 2
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, c_in, *[5] * spatial])
    w = (
        weights(c_in, c_out // group, *kernel)
        if transposed
        else weights(c_out, c_in // group, *kernel)
    )
    inputs = [
        build.const(w),
        *([build.const(weights(c_out))] if data.draw(st.booleans(), "bias") else []),
    ]
    op = "ConvTranspose" if transposed else "Conv"
    y = (
        build.op(op, batch_norm(build, x, c_in), *inputs, **attrs)
        if first
        else batch_norm(build, build.op(op, x, *inputs, **attrs), c_out)
    )
    build.output("y", y)
    graph = build.finish()
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == (["BatchNormalization", op] if first and transposed else [op])


def test_bias_addition_between_conv_and_batch_norm() -> None:
    build = GraphBuilder()
    y = build.op(
        "Conv",
        build.input("x", DType.F32, [1, 2, 4, 4]),
        build.const(weights(3, 2, 3, 3)),
        name="conv",
    )
    y = build.op("Add", y, build.const(weights(1, 3, 1, 1)), name="add")
    build.output("y", batch_norm(build, y, 3))
    graph = build.finish()
    rewrite(graph, FoldScaleBias(), FoldBatchNorm())
    assert operators(graph) == ["Conv"]
    assert carried(graph, only(graph, "Conv")) == (["conv"], ["add", "bn"])
