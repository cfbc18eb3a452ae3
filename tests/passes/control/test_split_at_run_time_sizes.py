"""What depends on a size that only a run knows becomes a nested graph; the rest stays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.structure import structure
from tests.passes.rewriting import operators
from tests.runtime.models import assert_same
from whence.building.prepare import prepare_graph
from whence.errors import ModelError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.outcomes import coverage
from whence.passes.control.split_at_run_time_sizes import SplitAtRunTimeSizes
from whence.passes.manager import CheckLevel, run_passes
from whence.types import DType, TensorType

X = np.array([-1, 2, 3, -4, 5, 6], np.float32)
ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def _picked(*, product: bool = True) -> Graph:
    """Rows where x is positive, through a product; beside it an output that needs none of it."""
    build = GraphBuilder()
    x, rows = build.input("x", DType.F32, [6]), build.input("rows", DType.F32, [6, 4])
    found = build.op("Compress", rows, build.op("Greater", x, build.const(np.float32(0))), axis=0)
    build.output("y", build.op("MatMul", found, build.const(W)) if product else found)
    build.output("z", build.op("Neg", x))
    build.output("twice", build.op("Add", found, found))
    return build.finish()


def _split(graph: Graph) -> Graph:
    (report,) = run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    assert sum(report.rules.values()) == 1
    (node,) = (node for node in graph if node.op == "Continuation")
    return node.bodies["body"]


def test_what_is_behind_the_size_moves() -> None:
    graph = _picked()
    before = graph.run([X, ROWS])
    body = _split(graph)
    assert sorted(operators(graph)) == ["Compress", "Continuation", "Greater", "Neg"]
    assert sorted(operators(body)) == ["Add", "MatMul"]
    assert coverage(graph).lost == 0
    assert_same(graph.run([X, ROWS]), before)
    assert [node.name for node in graph.outputs] == ["y", "z", "twice"]


def test_moving_twice_changes_nothing() -> None:
    graph = _picked()
    _split(graph)
    before = structure(graph)
    run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    assert structure(graph) == before


def _chosen(*, apart: bool) -> Graph:
    """One side of a choice needs rows that only a run can count; with `apart`, an output does, too,
    but not all that is computed from them.
    """
    build = GraphBuilder()
    x, rows = build.input("x", DType.F32, [6]), build.input("rows", DType.F32, [6, 4])
    c, at = build.input("c", DType.BOOL, []), build.input("at", DType.I64, [6])
    found = build.op("Compress", rows, build.op("Greater", x, build.const(np.float32(0))), axis=0)
    product = build.op("MatMul", found, build.const(W))
    one = build.op("Gather", x, at, name="may fail")
    total = build.op("ReduceSum", product, keepdims=0)
    build.output("y", build.op("Choose", c, one, build.op("Add", x, total)))
    if apart:
        build.output("twice", build.op("Add", product, product))
    return build.finish()


@pytest.mark.parametrize(
    "graph",
    [_picked(product=False), _chosen(apart=True)],
    ids=["too little to be worth it", "one runs without the other"],
)
def test_what_is_left_alone(graph: Graph) -> None:
    before = structure(graph)
    run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    assert structure(graph) == before


def test_what_one_condition_guards() -> None:
    graph = _chosen(apart=False)
    body = _split(graph)
    assert sorted(operators(body)) == ["MatMul", "ReduceSum"]
    outside = np.full(6, 100)
    (y,) = graph.run([X, ROWS, np.array(False), outside])
    np.testing.assert_allclose(y, X + (ROWS[X > 0] @ W).sum(), rtol=1e-5)
    (y,) = graph.run([X, ROWS, np.array(True), np.zeros(6, np.int64)])
    np.testing.assert_array_equal(y, X[[0] * 6])


def test_sizes_that_are_known_again_stay_outside() -> None:
    """What follows a sum over the rows, and stands before the next such size, moves only if it is
    between two of them.
    """
    build = GraphBuilder()
    x, rows = build.input("x", DType.F32, [6]), build.input("rows", DType.F32, [6, 4])
    early = build.op("Neg", x, name="early")
    found = build.op("Compress", rows, build.op("Greater", x, build.const(np.float32(0))), axis=0)
    product = build.op("MatMul", found, build.const(W))
    total = build.op("ReduceSum", product, keepdims=0)
    after = build.op("Add", build.op("Exp", total), early)
    late = build.op("Sin", build.op("Cos", x))
    build.output("y", build.op("Mul", after, late))
    build.output("z", build.op("Mul", product, total))
    graph = build.finish()
    before = graph.run([X, ROWS])
    body = _split(graph)
    assert sorted(operators(body)) == ["MatMul", "Mul", "ReduceSum"]
    assert {"Exp", "Add", "Mul", "Neg", "Sin", "Cos"} <= set(operators(graph))
    assert_same(graph.run([X, ROWS]), before)


def test_every_pass_over_a_model_that_is_split() -> None:
    graph = _picked()
    before = graph.run([X, ROWS])
    prepare_graph(graph, check=CheckLevel.OUTPUTS)
    assert "Continuation" in graph.op_counts
    assert_same(graph.run([X, ROWS]), before)
    (node,) = (node for node in graph if node.op == "Continuation")
    kinds = [each.type for each in node.bodies["body"].inputs]
    assert any(isinstance(kind, TensorType) and not kind.is_static for kind in kinds)


def _filled() -> Graph:
    """As many rows as a number says, counted and all alike."""
    build = GraphBuilder()
    n, x = build.input("n", DType.I64, [1]), build.input("x", DType.F32, [6, 4])
    one, zero = build.const(np.array(1)), build.const(np.array([0]))
    value = np.array([2], np.float32)
    alike = build.op("ConstantOfShape", n, value=value, name="alike")
    numbers = build.op("Range", one, build.op("Squeeze", n, zero), one, name="numbers")
    rows = build.op("Gather", x, numbers, axis=0)
    build.output("y", build.op("MatMul", rows, build.const(W)))
    total = build.op("ReduceSum", alike, keepdims=0)
    build.output("z", build.op("Mul", total, build.op("ReduceMax", rows, keepdims=0)))
    return build.finish()


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_only_the_number_of_what_is_filled_is_taken(n: int) -> None:
    graph = _filled()
    before = graph.run([np.array([n]), ROWS])
    run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    (node,) = (node for node in graph if node.op == "Continuation")
    assert {"Range", "ConstantOfShape", "Rows"}.isdisjoint(operators(graph))
    assert {"Range", "ConstantOfShape"} <= set(operators(node.bodies["body"]))
    assert coverage(graph).lost == 0
    assert_same(graph.run([np.array([n]), ROWS]), before)


def test_a_size_that_cannot_be_names_its_operator() -> None:
    graph = _filled()
    run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    with pytest.raises(
        ModelError, match=r"^operator 'alike' \(ConstantOfShape\): -2 is not a size"
    ):
        graph.run([np.array([-2]), ROWS])


def test_only_the_rows_that_are_meant_are_taken() -> None:
    build = GraphBuilder()
    x, rows = build.input("x", DType.F32, [6]), build.input("rows", DType.F32, [6, 4])
    places = build.op("Places", x, n_outputs=2)
    at = build.op("Prefix", places[0], places[1])
    build.output("y", build.op("MatMul", build.op("GatherND", rows, at), build.const(W)))
    graph = build.finish()
    before = graph.run([X, ROWS])
    run_passes(graph, [SplitAtRunTimeSizes()], check=CheckLevel.INVARIANTS)
    assert sorted(operators(graph)) == ["Continuation", "Places"]
    assert coverage(graph).lost == 0
    assert_same(graph.run([X, ROWS]), before)
