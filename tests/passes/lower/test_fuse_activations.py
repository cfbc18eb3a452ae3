"""Convolutions and products take in what is added to them and applied to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.ops.neural.fused import FUSED_ACTIVATIONS
from whence.passes.lower.fuse_activations import FuseActivations
from whence.types import DType


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def finished(build: GraphBuilder, y: Symbol) -> Graph:
    build.output("y", y)
    return build.finish()


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
