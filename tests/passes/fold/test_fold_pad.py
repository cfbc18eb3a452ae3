"""Explicit padding becomes the padding of the next operator, where that means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.fold.fold_pad import FoldPad
from whence.types import DType

SPATIAL = (0, 0, 1, 2, 0, 0, 2, 1)


def padded(
    build: GraphBuilder,
    x: Symbol,
    pads: tuple[int, ...] = SPATIAL,
    value: float | None = 0.0,
    axes: Any = None,
    **attrs: Any,
) -> Symbol:
    constant = None if value is None else build.const(np.float32(value))
    extra = [] if axes is None else [build.const(np.asarray(axes, np.int64))]
    return build.op(
        "Pad", x, build.const(np.asarray(pads, np.int64)), constant, *extra, name="pad", **attrs
    )


def before(
    op: str, pad: dict[str, Any] | None = None, first: str | None = None, **attrs: Any
) -> Graph:
    """[first →] Pad → op."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 2, 6, 6])
    y = padded(build, x if first is None else build.op(first, x, name="first"), **(pad or {}))
    extra = (
        [build.const(np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3))] if op == "Conv" else []
    )
    attrs = attrs if op == "Conv" else {"kernel_shape": (3, 3), **attrs}
    build.output("y", build.op(op, y, *extra, name="reader", **attrs))
    return build.finish()


def test_the_pads_are_added_in_order() -> None:
    graph = before("Conv", pads=(1, 0, 0, 1), auto_pad="NOTSET")
    expected = GraphBuilder()
    x = expected.input("x", DType.F32, [1, 2, 6, 6])
    w = expected.const(np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3))
    expected.output("y", expected.op("Conv", x, w, pads=(2, 2, 2, 2)))
    assert rewrite(graph, FoldPad()) == {"conv(pad(x, 0)) = conv'(x)": 1}
    assert structure(graph) == structure(expected.finish())
    assert edges_into(graph, only(graph, "Conv")) == {"pad": "fuse", "reader": "fuse"}
    assert carried(graph, only(graph, "Conv")) == (["pad", "reader"], [])


@pytest.mark.parametrize(
    "graph",
    [
        before("Conv"),
        before("Conv", {"value": None}),
        before("Conv", {"pads": (1, 2, 2, 1), "axes": [2, -1]}),
        before("Conv", {"mode": "constant"}, auto_pad="VALID"),
        before("Conv", strides=(2, 2), dilations=(2, 2)),
        before("AveragePool"),
        before(
            "AveragePool",
            {"pads": (0, 0, 1, 1, 0, 0, 1, 1)},
            pads=(1, 1, 0, 0),
            count_include_pad=1,
        ),
        before("AveragePool", auto_pad="VALID", strides=(2, 2)),
        before("MaxPool", {"value": -np.inf}),
        before("MaxPool", {"value": -np.inf}, dilations=(2, 2)),
        before(
            "MaxPool",
            {"value": -np.inf, "pads": (0, 0, 1, 1, 0, 0, 1, 1)},
            pads=(1, 1, 1, 1),
            strides=(2, 2),
        ),
        before("MaxPool", first="Relu"),
        before("MaxPool", {"value": -3.0}, first="Sigmoid"),
    ],
)
def test_folded(graph: Graph) -> None:
    reader = operators(graph)[-1]
    rewrite(graph, FoldPad())
    assert [op for op in operators(graph) if op not in {"Relu", "Sigmoid"}] == [reader]
    assert "pad" in carried(graph, only(graph, reader))[0]


def test_average_pool_counts_the_padding_from_now_on() -> None:
    graph = before("AveragePool")
    rewrite(graph, FoldPad())
    assert dict(only(graph, "AveragePool").attrs) == {
        "kernel_shape": (3, 3),
        "pads": (1, 2, 2, 1),
        "count_include_pad": 1,
    }


@pytest.mark.parametrize(
    "graph",
    [
        before("Conv", {"value": 1.0}),
        before("Conv", {"pads": (1, 0, 1, 1, 0, 0, 1, 1)}),
        before("Conv", {"pads": (0, 0, 1, -1, 0, 0, 1, 1)}),
        before("Conv", {"mode": "reflect"}),
        before("Conv", auto_pad="SAME_UPPER"),
        before("AveragePool", {"value": 1.0}),
        # Its own padding is not counted, the Pad's is.
        before("AveragePool", {"pads": (0, 0, 1, 1, 0, 0, 1, 1)}, pads=(1, 1, 0, 0)),
        before("AveragePool", ceil_mode=1, strides=(2, 2)),
        # Zero may be the maximum of negative data.
        before("MaxPool"),
        before("MaxPool", {"value": 0.5}, first="Relu"),
        # A window of dilated taps may lie in the padding alone.
        before("MaxPool", first="Relu", dilations=(2, 2)),
        # Runtimes refuse pools with padding as large as the kernel.
        before("MaxPool", {"value": -np.inf, "pads": (0, 0, 3, 0, 0, 0, 0, 0)}),
        before("AveragePool", {"pads": (0, 0, 0, 0, 0, 0, 3, 0)}),
    ],
)
def test_left_alone(graph: Graph) -> None:
    assert is_left_alone(graph, FoldPad())


def test_padded_channels_stay() -> None:
    build = GraphBuilder()
    y = padded(build, build.input("x", DType.F32, [1, 1, 6, 6]), (0, 0, 1, 1, 0, 1, 1, 1))
    build.output("y", build.op("Conv", y, build.const(np.ones((2, 2, 3, 3), np.float32))))
    assert is_left_alone(build.finish(), FoldPad())


def test_clip_bounds_what_a_maximum_sees() -> None:
    for low, high, folds in (
        (0.0, 6.0, True),
        (0.0, None, True),
        (-1.0, 6.0, False),
        (None, 6.0, False),
        (2.0, -1.0, False),
    ):
        build = GraphBuilder()
        bounds = [
            None if bound is None else build.const(np.float32(bound)) for bound in (low, high)
        ]
        y = padded(build, build.op("Clip", build.input("x", DType.F32, [1, 2, 6, 6]), *bounds))
        build.output("y", build.op("MaxPool", y, kernel_shape=(3, 3)))
        graph = build.finish()
        rewrite(graph, FoldPad())
        assert ("Pad" not in operators(graph)) == folds, (low, high)


def test_positions_of_the_maximum_count_the_padding() -> None:
    build = GraphBuilder()
    y = build.op(
        "MaxPool",
        padded(build, build.input("x", DType.F32, [1, 2, 6, 6]), value=-np.inf),
        n_outputs=2,
        kernel_shape=(3, 3),
    )
    build.output("y", y)
    build.output("indices", y[1])
    assert is_left_alone(build.finish(), FoldPad())


def test_amounts_must_be_constant() -> None:
    build = GraphBuilder()
    y = build.op(
        "Pad", build.input("x", DType.F32, [1, 1, 6, 6]), build.input("pads", DType.I64, [8])
    )
    build.output("y", build.op("Conv", y, build.const(np.ones((1, 1, 1, 1), np.float32))))
    graph = build.finish()
    text = structure(graph)
    # Random amounts cannot be run, so only the structure is compared.
    FoldPad().run(Rewriter(graph, FoldPad.name))
    assert structure(graph) == text


def test_two_readers_each_take_it() -> None:
    build = GraphBuilder()
    y = padded(build, build.input("x", DType.F32, [1, 2, 6, 6]))
    w = build.const(np.ones((2, 2, 3, 3), np.float32))
    build.output("a", build.op("Conv", y, w, name="a"))
    build.output("b", build.op("Conv", y, w, name="b"))
    graph = build.finish()
    rewrite(graph, FoldPad())
    assert operators(graph) == ["Conv", "Conv"]
    assert [carried(graph, node)[0] for node in graph if node.op == "Conv"] == [
        ["pad", "a"],
        ["pad", "b"],
    ]


def test_a_reader_that_needs_the_padded_value_keeps_it() -> None:
    build = GraphBuilder()
    y = padded(build, build.input("x", DType.F32, [1, 2, 6, 6]))
    build.output("a", build.op("Conv", y, build.const(np.ones((2, 2, 3, 3), np.float32))))
    build.output("b", build.op("Relu", y))
    graph = build.finish()
    rewrite(graph, FoldPad())
    assert operators(graph) == ["Pad", "Conv", "Relu"]
    assert only(graph, "Conv").attrs["pads"] == (1, 2, 2, 1)
