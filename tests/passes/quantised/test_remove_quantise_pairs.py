"""Dequantise-quantise pairs that undo each other go; the rounding of quantise-dequantise stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import (
    carried,
    edges_into,
    operators,
    rewrite,
    tombstone_reasons,
)
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.quantised.remove_quantise_pairs import RemoveQuantisePairs
from whence.provenance import Reason
from whence.types import DType


class Coding:
    """Scale, zero point and attributes of a pair."""

    def __init__(
        self,
        scale: Any = 0.1,
        zero: Any = 3,
        dtype: DType = DType.U8,
        real: Any = np.float32,
        **attrs: Any,
    ) -> None:
        self.scale, self.attrs = np.asarray(scale, real), attrs
        self.zero = None if zero is None else np.asarray(zero, dtype.numpy)

    def op(self, build: GraphBuilder, op: str, x: Symbol, name: str = "") -> Symbol:
        zero = [] if self.zero is None else [build.const(self.zero)]
        return build.op(op, x, build.const(self.scale), *zero, name=name, **self.attrs)

    def quantise(self, build: GraphBuilder, x: Symbol, name: str = "") -> Symbol:
        return self.op(build, "QuantizeLinear", x, name)

    def dequantise(self, build: GraphBuilder, x: Symbol, name: str = "") -> Symbol:
        return self.op(build, "DequantizeLinear", x, name)


def pair(
    first: Coding, second: Coding, dtype: DType = DType.U8, shape: tuple[int, ...] = (2, 3, 4)
) -> Graph:
    """q(dq(x)), between operators that make the ends visible."""
    build = GraphBuilder()
    x = build.input("x", dtype, list(shape))
    build.output("y", second.quantise(build, first.dequantise(build, x, "dq"), "q"))
    return build.finish()


def test_every_code_survives_what_is_called_exact() -> None:
    """The claim behind the rule, code by code, at scales all over the range."""
    codes = np.arange(256, dtype=np.uint8)
    for real, scales in (
        (np.float32, (1e-37, 1 / 3, 0.1, 7.3, 1e36)),
        (np.float16, (2e-4, 1 / 3, 0.1, 200.0)),
    ):
        for scale in scales:
            graph = pair(
                Coding(scale=scale, zero=77, real=real),
                Coding(scale=scale, zero=77, real=real),
                shape=(256,),
            )
            assert np.array_equal(graph.run([codes])[0], codes)
            rewrite(graph, RemoveQuantisePairs())
            assert operators(graph) == []


def moved(
    *steps: tuple[str, list[Any], dict[str, Any]],
    coding: Coding | None = None,
    dtype: DType = DType.U8,
) -> Graph:
    coding = coding or Coding()
    build = GraphBuilder()
    y = coding.dequantise(build, build.input("x", dtype, [1, 4, 6, 6]), "dq")
    for op, extra, attrs in steps:
        y = build.op(op, y, *(build.const(np.asarray(value)) for value in extra), name=op, **attrs)
    build.output("y", coding.quantise(build, y, "q"))
    return build.finish()


@pytest.mark.parametrize(
    "steps",
    [
        [("Reshape", [[4, 36]], {})],
        [("Transpose", [], {"perm": (0, 2, 3, 1)}), ("Flatten", [], {})],
        [("Squeeze", [[0]], {}), ("Unsqueeze", [[1]], {})],
        [("Slice", [[0], [2], [1]], {})],
        [("Gather", [[3, 0]], {"axis": 1})],
        [("MaxPool", [], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})],
        [
            ("DepthToSpace", [], {"blocksize": 2}),
            ("Expand", [[2, 1, 12, 12]], {}),
            ("Tile", [[1, 1, 2, 1]], {}),
        ],
    ],
)
def test_moves_are_done_on_the_codes(steps: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    graph = moved(*steps)
    x = np.random.default_rng(5).integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)
    (expected,) = graph.run([x])
    assert rewrite(graph, RemoveQuantisePairs()) == {"quantise(move(dequantise(x))) = move(x)": 1}
    assert np.array_equal(graph.run([x])[0], expected)
    assert operators(graph) == [op for op, _, _ in steps]
    for node in graph:
        if node.op in operators(graph):
            assert edges_into(graph, node) == {node.op: "copy"}
            assert carried(graph, node) == ([node.op], [])
    assert tombstone_reasons(graph) == {"dq": Reason.CANCELLED, "q": Reason.CANCELLED}
