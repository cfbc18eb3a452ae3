"""Convolutions with three spatial axes as ones with two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import operators, rewrite
from whence.api import compile_model
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.lower import flatten_depth
from whence.passes.lower.flatten_depth import FlattenDepth
from whence.types import DType

RNG = np.random.default_rng(2)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def conv(
    shape: tuple[int, ...], weights: tuple[int, ...], *, addend: bool = False, **attrs: Any
) -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)
    inputs = [x, build.const(real(*weights)), build.const(real(weights[0]))]
    op = "Conv"
    if addend:
        same = tuple(size - 2 for size in shape[2:])
        inputs.append(build.input("z", DType.F32, (shape[0], weights[0], *same)))
        op, attrs = "FusedConv", {**attrs, "activation": "Relu"}
    build.output("y", build.op(op, *inputs, kernel_shape=weights[2:], name="conv", **attrs))
    return build.finish()


CASES: dict[str, Graph] = {
    "slices side by side": conv((1, 3, 6, 7, 8), (5, 3, 3, 3, 3)),
    "padded": conv((2, 3, 5, 6, 7), (4, 3, 3, 3, 3), pads=(1, 2, 0, 2, 1, 1)),
    "same": conv((1, 2, 6, 5, 7), (4, 2, 3, 2, 3), auto_pad="SAME_UPPER", strides=(2, 1, 2)),
    "strides": conv((1, 3, 9, 8, 7), (4, 3, 3, 3, 3), strides=(2, 3, 1)),
    "dilations": conv((1, 3, 9, 8, 7), (4, 3, 3, 2, 2), dilations=(3, 2, 1), pads=(1,) * 6),
    "one slice": conv((1, 3, 4, 6, 7), (4, 3, 1, 3, 3)),
    "every other slice": conv((1, 3, 5, 6, 7), (4, 3, 1, 3, 3), strides=(2, 1, 1)),
    "groups": conv((1, 4, 5, 6, 7), (8, 2, 3, 3, 3), group=2, pads=(1,) * 6),
    "an addend": conv((2, 3, 5, 6, 7), (4, 3, 3, 3, 3), addend=True),
    "an addend, groups": conv((2, 4, 5, 6, 7), (4, 1, 3, 3, 3), addend=True, group=4),
}


def test_much_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatten_depth, "_MUCH_MEMORY", 0)
    graph = CASES["padded"].copy()
    rewrite(graph, FlattenDepth())
    assert "Concat" not in operators(graph)
    assert operators(graph).count("Conv") + operators(graph).count("FusedConv") == 3


def test_slices_stay_images_between_convolutions() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, (1, 16, 6, 7, 8))
    for number in range(3):
        weights = build.const(real(16, 16, 3, 3, 3))
        x = build.op("Conv", x, weights, kernel_shape=(3, 3, 3), pads=(1,) * 6, name=f"c{number}")
        x = build.op("Relu", x, name=f"r{number}")
    build.output("y", x)
    graph = build.finish()
    rewrite(graph.copy(), FlattenDepth())
    data = {"x": real(1, 16, 6, 7, 8)}
    compiled = compile_model(graph)
    expected = graph.run(data)[0]
    assert np.abs(compiled(**data) - expected).max() <= 1e-5 * np.abs(expected).max()
    names = [step.name for step in compiled.programs[0].steps]
    assert sum("blockedconv" in name for name in names) == 3
    assert sum("transpose" in name for name in names) == 2
