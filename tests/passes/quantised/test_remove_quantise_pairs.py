"""Dequantise-quantise pairs that undo each other go; the rounding of quantise-dequantise stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import (
    buried,
    carried,
    edges_into,
    is_left_alone,
    only,
    operators,
    rewrite,
)
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
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


def test_a_pair_vanishes() -> None:
    graph = pair(Coding(), Coding())
    expected = GraphBuilder()
    expected.output("y", expected.input("x", DType.U8, [2, 3, 4]))
    assert rewrite(graph, RemoveQuantisePairs()) == {"quantise(dequantise(x)) = x": 1}
    assert structure(graph) == structure(expected.finish())
    assert buried(graph) == {"dq": Reason.CANCELLED, "q": Reason.CANCELLED}


def test_four_in_a_row_become_two() -> None:
    build = GraphBuilder()
    coding, y = Coding(), build.input("x", DType.F32, [2, 3])
    for number in (1, 2, 3):
        y = coding.dequantise(build, coding.quantise(build, y, f"q{number}"), f"dq{number}")
    build.output("y", y)
    graph = build.finish()
    rewrite(graph, RemoveQuantisePairs())
    assert operators(graph) == ["QuantizeLinear", "DequantizeLinear"]
    assert buried(graph) == dict.fromkeys(("dq1", "q2", "dq2", "q3"), Reason.CANCELLED)


def test_quantise_then_dequantise_rounds_and_stays() -> None:
    build = GraphBuilder()
    coding = Coding()
    build.output(
        "y", coding.dequantise(build, coding.quantise(build, build.input("x", DType.F32, [2, 3])))
    )
    assert is_left_alone(build.finish(), RemoveQuantisePairs())


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        (Coding(zero=None), Coding(zero=0), DType.U8),
        (Coding(zero=-7, dtype=DType.I8), Coding(zero=[-7], scale=[0.1], dtype=DType.I8), DType.I8),
        (Coding(zero=100, dtype=DType.U16), Coding(zero=100, dtype=DType.U16), DType.U16),
        (
            Coding(scale=[0.1, 0.2, 0.3], zero=[1, 2, 3], axis=1),
            Coding(scale=[0.1, 0.2, 0.3], zero=[1, 2, 3], axis=-2),
            DType.U8,
        ),
        (Coding(scale=0.5, axis=0), Coding(scale=0.5, axis=2), DType.U8),
        (Coding(real=np.float16), Coding(real=np.float16), DType.U8),
    ],
)
def test_equal_codings(first: Coding, second: Coding, dtype: DType) -> None:
    graph = pair(first, second, dtype)
    rewrite(graph, RemoveQuantisePairs())
    assert operators(graph) == []


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        (Coding(), Coding(scale=0.2), DType.U8),
        (Coding(), Coding(zero=4), DType.U8),
        (Coding(zero=3), Coding(zero=3, dtype=DType.I8), DType.U8),
        (Coding(zero=0, dtype=DType.I8), Coding(zero=None), DType.I8),
        (
            Coding(scale=[0.1, 0.2, 0.3], zero=[3, 3, 3], axis=0),
            Coding(scale=[0.1, 0.2, 0.3], zero=[3, 3, 3], axis=1),
            DType.U8,
        ),
        # Not every code survives: too many codes for the type, or a scale at the edge of its range.
        (
            Coding(zero=0, dtype=DType.U16, real=np.float16),
            Coding(zero=0, dtype=DType.U16, real=np.float16),
            DType.U16,
        ),
        (Coding(scale=1e-42), Coding(scale=1e-42), DType.U8),
        (Coding(scale=0.0), Coding(scale=0.0), DType.U8),
        (Coding(scale=-0.1), Coding(scale=-0.1), DType.U8),
    ],
)
def test_different_codings(first: Coding, second: Coding, dtype: DType) -> None:
    assert is_left_alone(pair(first, second, dtype, (3, 3, 3)), RemoveQuantisePairs())


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


def test_another_reader_of_the_numbers_keeps_the_dequantiser() -> None:
    build = GraphBuilder()
    coding = Coding()
    real = coding.dequantise(build, build.input("x", DType.U8, [2, 3]), "dq")
    build.output("real", real)
    build.output("y", coding.quantise(build, real, "q"))
    graph = build.finish()
    rewrite(graph, RemoveQuantisePairs())
    assert operators(graph) == ["DequantizeLinear"]
    assert buried(graph) == {"q": Reason.CANCELLED}


def test_parameters_must_be_constant() -> None:
    build = GraphBuilder()
    scale = build.input("scale", DType.F32, [])
    build.output(
        "y",
        build.op(
            "QuantizeLinear",
            build.op("DequantizeLinear", build.input("x", DType.U8, [2]), scale),
            scale,
        ),
    )
    assert is_left_alone(build.finish(), RemoveQuantisePairs())


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
    assert buried(graph) == {"dq": Reason.CANCELLED, "q": Reason.CANCELLED}


@pytest.mark.parametrize(
    "graph",
    [
        moved(("Relu", [], {})),
        moved(("AveragePool", [], {"kernel_shape": (2, 2)})),
        # A scale per channel would have to move too.
        moved(
            ("Transpose", [], {"perm": (0, 1, 3, 2)}),
            coding=Coding(scale=[0.1, 0.2, 0.3, 0.4], zero=[1, 2, 3, 4], axis=1),
        ),
        # MaxPool is not defined on 16-bit integers.
        moved(
            ("MaxPool", [], {"kernel_shape": (2, 2)}),
            coding=Coding(dtype=DType.U16),
            dtype=DType.U16,
        ),
    ],
)
def test_what_computes_stays(graph: Graph) -> None:
    assert is_left_alone(graph, RemoveQuantisePairs())


def test_a_second_reader_between_keeps_the_pair() -> None:
    build = GraphBuilder()
    coding = Coding()
    y = build.op("Flatten", coding.dequantise(build, build.input("x", DType.U8, [2, 3, 4])))
    build.output("real", y)
    build.output("y", coding.quantise(build, y))
    assert is_left_alone(build.finish(), RemoveQuantisePairs())


def test_the_numbers_are_still_there_for_others() -> None:
    build = GraphBuilder()
    coding = Coding()
    real = coding.dequantise(build, build.input("x", DType.U8, [2, 3, 4]), "dq")
    build.output("real", real)
    build.output("y", coding.quantise(build, build.op("Flatten", real), "q"))
    graph = build.finish()
    rewrite(graph, RemoveQuantisePairs())
    assert sorted(operators(graph)) == ["DequantizeLinear", "Flatten"]
    assert only(graph, "Flatten").type == graph.type_of(only(graph, "Flatten").ref())
    assert str(only(graph, "Flatten").type) == "u8[2,12]"
