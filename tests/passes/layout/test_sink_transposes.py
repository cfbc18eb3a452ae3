"""Transposes move through operators to where they meet, and only where that makes them fewer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.rewriting import operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.layout import sink_transposes
from whence.passes.layout.sink_transposes import SinkTransposes
from whence.passes.layout.transposed_op import rewritten
from whence.passes.manager import run_passes
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.types import DType

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Channels last, and channels first again."""
SHAPE = (2, 3, 4, 5)


def turn(build: GraphBuilder, x: Symbol, perm: tuple[int, ...], name: str = "") -> Symbol:
    return build.op("Transpose", x, name=name, perm=perm)


def ints(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def floats(build: GraphBuilder, *shape: int) -> Symbol:
    return build.const(
        (np.arange(np.prod(shape, dtype=int)) % 7 + 1).reshape(shape).astype(np.float32)
    )


def finished(build: GraphBuilder, *results: Symbol) -> Graph:
    for index, y in enumerate(results):
        build.output(f"y{index}", y)
    return build.finish()


def test_transposes_meet_over_any_distance() -> None:
    build = GraphBuilder()
    y = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    for _ in range(500):
        y = build.op("Abs", y)
    graph = finished(build, turn(build, y, FIRST))
    rewrite(graph, SinkTransposes())
    assert set(operators(graph)) == {"Abs"}


UNARY = ("Relu", "Neg", "Tanh")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs of transposes, elementwise operators, sums, concatenations and reductions over
    values of one shape and two orders.
    """
    build = GraphBuilder()
    values: dict[tuple[int, ...], list[Symbol]] = {
        (2, 3, 4): [build.input("x", DType.F32, [2, 3, 4]), build.input("y", DType.F32, [2, 3, 4])]
    }
    for _ in range(draw(st.integers(1, 14))):
        shape = draw(st.sampled_from(sorted(values)))
        value = draw(st.sampled_from(values[shape]))
        kind = draw(
            st.sampled_from(
                ["turn", "turn", "turn", "unary", "unary", "join", "const", "softmax", "reduce"]
            )
        )
        if kind == "turn":
            perm = draw(st.sampled_from([(1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2)]))
            value, shape = turn(build, value, perm), tuple(shape[axis] for axis in perm)
        elif kind == "unary":
            value = build.op(draw(st.sampled_from(UNARY)), value)
        elif kind == "join":
            value = build.op("Add", value, draw(st.sampled_from(values[shape])))
        elif kind == "const":
            value = build.op("Mul", value, floats(build, shape[2]))
        elif kind == "softmax":
            value = build.op("Softmax", value, axis=draw(st.integers(-3, 2)))
        else:
            axis = draw(st.integers(0, 2))
            value = build.op(
                "Add", value, build.op("ReduceMax", value, ints(build, axis), keepdims=1)
            )
        values.setdefault(shape, []).append(value)
    build.output("last", value)
    build.output("other", draw(st.sampled_from(values[draw(st.sampled_from(sorted(values)))])))
    return build.finish()


@settings(max_examples=200)
@given(graphs())
def test_transposes_never_grow_in_number(graph: Graph) -> None:
    run_passes(graph, (RemoveDeadNodes(),))
    before = graph.op_counts.get("Transpose", 0)
    rewrite(graph, SinkTransposes())
    assert graph.op_counts.get("Transpose", 0) <= before


def _chain(cycle: tuple[str, ...], length: int) -> Graph:
    """Operators in a row: "there" and "back" are transposes that undo each other."""
    build = GraphBuilder()
    x: Symbol = build.input("x", DType.F32, [3, 4, 5])
    table = floats(build, 3, 4, 5)
    for number in range(length):
        op = cycle[number % len(cycle)]
        if op in ("there", "back"):
            x = turn(build, x, (2, 0, 1) if op == "there" else (1, 2, 0))
        else:
            x = build.op(op, x, table) if op == "Add" else build.op(op, x)
    return finished(build, x)


def test_neighbours_cancel_before_anything_moves() -> None:
    """Or whole chains would be turned, constants with them, for transposes that stand together."""
    graph = _chain(("Relu", "Add", "there", "back"), 40)
    (report,) = run_passes(graph, [SinkTransposes()])
    assert report.rules == {"transpose(transpose(x)) = x": 10}
    assert report.added == 0
    assert operators(graph) == ["Relu", "Add"] * 10


@pytest.mark.parametrize(
    "cycle",
    [
        ("Relu", "there", "Exp", "Sigmoid", "back"),
        ("there", "Relu", "Exp"),
        ("there", *("Relu",) * 70),
        ("there", "Relu", "Softplus", "back", "Exp", "back"),
    ],
)
def test_work_grows_as_the_graph_does(
    cycle: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    def count(*args: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return rewritten(*args)

    monkeypatch.setattr(sink_transposes, "rewritten", count)
    work = []
    for length in (420, 1680):
        looked_at = 0
        (report,) = run_passes(_chain(cycle, length), [SinkTransposes()])
        work.append((looked_at, report.changes))
    for small, large in zip(*work, strict=True):
        assert large <= 5 * small


def test_a_pad_of_no_axes_stays_where_it_is() -> None:
    build = GraphBuilder()
    nothing = build.const(np.array([], np.int64))
    transposed = build.op("Transpose", build.input("x", DType.F32, [3, 4]), perm=(1, 0))
    padded = build.op("Pad", transposed, nothing, None, nothing)
    build.output("y", build.op("Transpose", padded, perm=(1, 0)))
    graph = build.finish()
    assert run_passes(graph, [SinkTransposes()])[0].changes == 0
