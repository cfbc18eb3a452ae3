"""Convolutions and products take in what is added to them and applied to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.ops.neural.fused import FUSED_ACTIVATIONS
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.lower.fuse_activations import FuseActivations
from whence.types import DType


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


def conv(build: GraphBuilder, x: Symbol | None = None, **attrs: Any) -> Symbol:
    x = build.input("x", DType.F32, [1, 2, 5, 5]) if x is None else x
    return build.op(
        "Conv", x, build.const(weights(3, 2, 3, 3)), build.const(weights(3)), name="conv", **attrs
    )


def test_conv_residual_and_relu_become_one() -> None:
    build = GraphBuilder()
    y = conv(build, strides=(2, 2))
    z = build.input("z", DType.F32, [1, 3, 2, 2])
    graph = finished(build, build.op("Relu", build.op("Add", z, y, name="add"), name="relu"))

    expected = GraphBuilder()
    x, w, b = (
        expected.input("x", DType.F32, [1, 2, 5, 5]),
        expected.const(weights(3, 2, 3, 3)),
        expected.const(weights(3)),
    )
    z = expected.input("z", DType.F32, [1, 3, 2, 2])
    y = expected.op("FusedConv", x, w, b, z, strides=(2, 2), activation="Relu")

    assert rewrite(graph, FuseActivations()) == {"Relu·Add·Conv = FusedConv": 1}
    assert structure(graph) == structure(finished(expected, y))
    assert edges_into(graph, only(graph, "FusedConv")) == {
        "conv": "fuse",
        "add": "fuse",
        "relu": "fuse",
    }
    assert carried(graph, only(graph, "FusedConv")) == (["conv", "add", "relu"], [])


def _clip(low: float | None, high: float | None) -> Callable[[GraphBuilder, Symbol], Symbol]:
    def build_clip(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op(
            "Clip",
            x,
            *(None if bound is None else build.const(np.float32(bound)) for bound in (low, high)),
        )

    return build_clip


def _op(op: str, **attrs: Any) -> Callable[[GraphBuilder, Symbol], Symbol]:
    return lambda build, x: build.op(op, x, **attrs)


ACTIVATIONS: list[tuple[Callable[[GraphBuilder, Symbol], Symbol], dict[str, Any]]] = [
    (_op("Relu"), {"activation": "Relu"}),
    (_op("LeakyRelu"), {"activation": "LeakyRelu", "activation_alpha": 0.01}),
    (_op("LeakyRelu", alpha=0.3), {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    (
        lambda build, x: build.op("PRelu", x, build.const(np.full((1, 1), 0.25, np.float32))),
        {"activation": "LeakyRelu", "activation_alpha": 0.25},
    ),
    (_clip(0, 6), {"activation": "Clip", "activation_alpha": 0.0, "activation_beta": 6.0}),
    (_clip(None, 1), {"activation": "Clip", "activation_alpha": -math.inf, "activation_beta": 1.0}),
    (
        _clip(-1, None),
        {"activation": "Clip", "activation_alpha": -1.0, "activation_beta": math.inf},
    ),
    (_op("Sigmoid"), {"activation": "Sigmoid"}),
    (_op("Tanh"), {"activation": "Tanh"}),
    (
        _op("HardSigmoid", alpha=0.5),
        {"activation": "HardSigmoid", "activation_alpha": 0.5, "activation_beta": 0.5},
    ),
    (_op("HardSwish"), {"activation": "HardSwish"}),
    (_op("Swish", alpha=2.0), {"activation": "Swish", "activation_alpha": 2.0}),
    (_op("Gelu"), {"activation": "Gelu"}),
    (_op("Gelu", approximate="tanh"), {"activation": "GeluTanh"}),
    (_op("Elu", alpha=0.5), {"activation": "Elu", "activation_alpha": 0.5}),
    (_op("Softplus"), {"activation": "Softplus"}),
    (_op("Mish"), {"activation": "Mish"}),
    (
        lambda build, x: build.op("Mul", build.op("Sigmoid", x), x),
        {"activation": "Swish", "activation_alpha": 1.0},
    ),
    (
        lambda build, x: build.op("Mul", x, build.op("HardSigmoid", x, alpha=1 / 6)),
        {"activation": "HardSwish"},
    ),
]


def test_every_activation_of_a_supernode_is_reached() -> None:
    assert {attrs["activation"] for _, attrs in ACTIVATIONS} == set(FUSED_ACTIVATIONS)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
@pytest.mark.parametrize("index", range(len(ACTIVATIONS)))
def test_every_operator_with_every_activation(op: str, index: int) -> None:
    activation, attrs = ACTIVATIONS[index]
    build = GraphBuilder()
    if op in {"Conv", "ConvTranspose"}:
        y = build.op(
            op,
            build.input("x", DType.F32, [1, 4, 4, 4]),
            build.const(weights(4, 2, 3, 3)),
            group=2,
            name="base",
        )
    else:
        y = build.op(
            op, build.input("x", DType.F32, [4, 4]), build.const(weights(4, 4)), name="base"
        )
    graph = finished(build, activation(build, y))
    rewrite(graph, FuseActivations())
    assert operators(graph) == [f"Fused{op}"]
    assert {
        name: value
        for name, value in only(graph, f"Fused{op}").attrs.items()
        if name.startswith("activation")
    } == attrs
    assert only(graph, f"Fused{op}").name == "base"


def test_nothing_to_take_in() -> None:
    for op, shape, extra in (
        ("Conv", [1, 2, 5, 5], (3, 2, 3, 3)),
        ("ConvTranspose", [1, 2, 5, 5], (2, 3, 3, 3)),
        ("Gemm", [3, 4], (4, 5)),
        ("MatMul", [2, 3, 4], (4, 5)),
    ):
        build = GraphBuilder()
        y = build.op(op, build.input("x", DType.F32, shape), build.const(weights(*extra)))
        assert is_left_alone(finished(build, build.op("Exp", y)), FuseActivations())


def test_a_residual_alone_is_worth_it() -> None:
    build = GraphBuilder()
    graph = finished(
        build, build.op("Add", conv(build), build.input("z", DType.F32, [1, 3, 3, 3]), name="add")
    )
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedConv"]
    assert "activation" not in only(graph, "FusedConv").attrs


def test_a_symbolic_batch_is_one_shape() -> None:
    build = GraphBuilder()
    y = conv(build, build.input("x", DType.F32, ["batch", 2, 5, 5]))
    graph = finished(build, build.op("Add", y, build.input("z", DType.F32, ["batch", 3, 3, 3])))
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedConv"]


@pytest.mark.parametrize("shape", [[1, 3, 1, 1], [3, 3], [2, 3, 3, 3], [1, 3, 3, 1], []])
def test_a_value_of_another_shape_is_no_residual(shape: list[int]) -> None:
    build = GraphBuilder()
    assert is_left_alone(
        finished(build, build.op("Add", conv(build), build.input("z", DType.F32, list(shape)))),
        FuseActivations(),
    )


def test_second_readers_are_in_the_way() -> None:
    build = GraphBuilder()
    y = conv(build)
    build.output("raw", y)
    assert is_left_alone(finished(build, build.op("Relu", y)), FuseActivations())

    build = GraphBuilder()
    y = build.op("Add", conv(build), build.input("z", DType.F32, [1, 3, 3, 3]), name="add")
    build.output("sum", y)
    graph = finished(build, build.op("Relu", y))
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedConv", "Relu"]


def test_a_gate_that_is_read_elsewhere_is_no_swish() -> None:
    build = GraphBuilder()
    y = conv(build)
    gate = build.op("Sigmoid", y)
    build.output("gate", gate)
    assert is_left_alone(finished(build, build.op("Mul", y, gate)), FuseActivations())

    build = GraphBuilder()
    y = conv(build)
    assert is_left_alone(
        finished(build, build.op("Mul", y, build.op("HardSigmoid", y))), FuseActivations()
    )


def test_bounds_and_slopes_must_be_constant_scalars() -> None:
    build = GraphBuilder()
    assert is_left_alone(
        finished(build, build.op("Clip", conv(build), build.input("low", DType.F32, []))),
        FuseActivations(),
    )

    build = GraphBuilder()
    assert is_left_alone(
        finished(build, build.op("PRelu", conv(build), build.const(weights(3, 1, 1)))),
        FuseActivations(),
    )


def test_only_one_activation_is_taken() -> None:
    build = GraphBuilder()
    graph = finished(build, build.op("Tanh", build.op("Relu", conv(build))))
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedConv", "Tanh"]


def test_two_convolutions_in_one_sum() -> None:
    """The residual is computed by a later node than the convolution that takes it in."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 2, 5, 5])
    first = build.op("Conv", x, build.const(weights(3, 2, 3, 3)), name="first")
    second = build.op("Conv", build.op("Exp", x), build.const(weights(3, 2, 3, 3)), name="second")
    graph = finished(
        build, build.op("Relu", build.op("Add", first, second, name="add"), name="relu")
    )
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["Exp", "Conv", "FusedConv"]
    assert carried(graph, only(graph, "FusedConv"))[0] == ["first", "add", "relu"]


def test_a_convolution_added_to_itself_stays() -> None:
    build = GraphBuilder()
    y = conv(build)
    assert is_left_alone(finished(build, build.op("Add", y, y)), FuseActivations())


def test_residual_blocks_in_a_row() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 4, 6, 6])
    for _ in range(3):
        y = build.op(
            "Relu", build.op("Conv", x, build.const(weights(4, 4, 3, 3)), pads=(1, 1, 1, 1))
        )
        y = build.op("Conv", y, build.const(weights(4, 4, 3, 3)), pads=(1, 1, 1, 1))
        x = build.op("Relu", build.op("Add", y, x))
    graph = finished(build, x)
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedConv"] * 6


def test_matmul_with_bias_and_gelu() -> None:
    build = GraphBuilder()
    y = build.op(
        "MatMul",
        build.input("x", DType.F32, ["batch", 3, 4]),
        build.const(weights(4, 5)),
        name="matmul",
    )
    y = build.op("Add", build.const(weights(5)), y, name="bias")
    graph = finished(build, build.op("Gelu", y, name="gelu"))
    assert rewrite(graph, FuseActivations()) == {"Gelu·Add·MatMul = FusedMatMul": 1}
    assert carried(graph, only(graph, "FusedMatMul"))[0] == ["matmul", "bias", "gelu"]
    assert len(only(graph, "FusedMatMul").inputs) == 3


@pytest.mark.parametrize("shape", [(1, 5), (1, 1, 5)])
def test_a_bias_may_have_leading_ones(shape: tuple[int, ...]) -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("x", DType.F32, [2, 3, 4]), build.const(weights(4, 5)))
    graph = finished(build, build.op("Add", y, build.const(weights(*shape))))
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedMatMul"]


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 1), (1, 1, 1, 5), (4, 2, 3, 5)])
def test_another_addend_of_a_matmul_stays(shape: tuple[int, ...]) -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("x", DType.F32, [2, 3, 4]), build.const(weights(4, 5)))
    assert is_left_alone(
        finished(build, build.op("Add", y, build.const(weights(*shape)))), FuseActivations()
    )


def test_transposed_and_scaled_operands() -> None:
    build = GraphBuilder()
    q = build.op(
        "Mul", build.input("q", DType.F32, [2, 3, 4]), build.const(np.float32(0.5)), name="scale_q"
    )
    k = build.op(
        "Transpose", build.input("k", DType.F32, [2, 5, 4]), name="transpose", perm=(0, 2, 1)
    )
    y = build.op(
        "MatMul", q, build.op("Mul", k, build.const(np.float32(3)), name="scale_k"), name="matmul"
    )
    y = build.op("Div", y, build.const(np.float32(8)), name="scale_y")
    y = build.op("Add", y, build.input("mask", DType.F32, [2, 3, 5]), name="mask")
    graph = finished(build, y)
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["FusedMatMul"]
    assert dict(only(graph, "FusedMatMul").attrs) == {"alpha": 0.5 * 3 / 8, "trans_b": 1}
    assert carried(graph, only(graph, "FusedMatMul"))[0] == [
        "scale_q",
        "transpose",
        "scale_k",
        "matmul",
        "scale_y",
        "mask",
    ]


def test_transposed_left_operand() -> None:
    build = GraphBuilder()
    a = build.op("Transpose", build.input("a", DType.F32, [2, 2, 4, 3]), perm=(0, 1, 3, 2))
    graph = finished(build, build.op("MatMul", a, build.input("b", DType.F32, [4, 5])))
    rewrite(graph, FuseActivations())
    assert dict(only(graph, "FusedMatMul").attrs) == {"trans_a": 1}


def test_one_scaled_value_as_both_operands() -> None:
    build = GraphBuilder()
    a = build.op("Mul", build.input("a", DType.F32, [2, 3, 3]), build.const(np.float32(2)))
    graph = finished(build, build.op("MatMul", a, build.op("Transpose", a, perm=(0, 2, 1))))
    rewrite(graph, FuseActivations())
    # The transpose goes first; then the product is the only reader of the multiple, twice over.
    assert operators(graph) == ["FusedMatMul"]
    assert dict(only(graph, "FusedMatMul").attrs) == {"alpha": 4.0, "trans_b": 1}


def test_a_shared_transpose_is_taken_by_each_but_not_what_is_before_it() -> None:
    build = GraphBuilder()
    t = build.op(
        "Transpose",
        build.op("Mul", build.input("a", DType.F32, [2, 3, 4]), build.const(np.float32(2))),
        perm=(0, 2, 1),
    )
    build.output("one", build.op("MatMul", t, build.input("b", DType.F32, [3, 5])))
    build.output("two", t)
    graph = build.finish()
    rewrite(graph, FuseActivations())
    assert operators(graph) == ["Mul", "Transpose", "FusedMatMul"]


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 1, 0), None])
def test_other_transposes_stay(perm: tuple[int, ...] | None) -> None:
    build = GraphBuilder()
    attrs: dict[str, Any] = {} if perm is None else {"perm": perm}
    a = build.op("Transpose", build.input("a", DType.F32, [3, 3, 3]), **attrs)
    assert is_left_alone(
        finished(build, build.op("MatMul", a, build.input("b", DType.F32, [3, 5]))),
        FuseActivations(),
    )


def test_integers_stay() -> None:
    build = GraphBuilder()
    y = build.op("MatMul", build.input("a", DType.I32, [2, 2]), build.input("b", DType.I32, [2, 2]))
    assert is_left_alone(
        finished(build, build.op("Clip", y, build.const(np.int32(0)))), FuseActivations()
    )


def test_float16_rounds_once() -> None:
    build = GraphBuilder()
    y = build.op("Gemm", build.input("a", DType.F16, [3, 4]), build.input("b", DType.F16, [4, 5]))
    graph = finished(build, build.op("Sigmoid", y))
    rewrite(graph, FuseActivations(), tolerance=2e-3)
    assert operators(graph) == ["FusedGemm"]


def test_bounds_that_were_computed_are_part_of_the_supernode() -> None:
    build = GraphBuilder()
    high = build.op("Neg", build.const(np.float32(-6)), name="neg")
    graph = finished(
        build, build.op("Clip", conv(build), build.const(np.float32(0)), high, name="clip")
    )
    rewrite(graph, FoldConstants(), FuseActivations())
    assert carried(graph, only(graph, "FusedConv")) == (["conv", "clip"], ["neg"])
