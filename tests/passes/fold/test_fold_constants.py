"""Operators on constants become constants; what is random, quantised, huge or broken does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import only
from whence.graph import Graph, Node, Rewriter
from whence.graph.builder import GraphBuilder
from whence.ops.registry import evaluate
from whence.passes.fold import fold_constants
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.manager import CheckLevel, run_passes
from whence.types import DType, TensorType

ONE = np.ones((2, 3), np.float32)


def numbers(constant: Node) -> Any:
    assert constant.value is not None
    return constant.value.tolist()


def test_random_numbers_are_drawn_at_run_time() -> None:
    build = GraphBuilder()
    build.output("y", build.op("RandomNormalLike", build.const(ONE)))
    graph = build.finish()
    assert run_passes(graph, [FoldConstants()])[0].changes == 0


def test_nothing_is_counted_of_tensors_that_have_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    build = GraphBuilder()
    build.output("y", build.op("Relu", build.input("x", DType.F32, [2, 3])))
    graph = build.finish()

    def counted(kind: TensorType) -> int:
        raise AssertionError(f"the elements of {kind} were counted")

    # Every walk comes by every node: in a long chain, it would be a third of all preparation.
    monkeypatch.setattr(TensorType, "elements", property(counted))
    assert run_passes(graph, [FoldConstants()])[0].changes == 0


def test_what_fails_is_left_to_fail_at_run_time() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("Gather", build.const(np.arange(3)), build.const(np.array([7])), axis=0)
    )
    graph = build.finish()
    assert run_passes(graph, [FoldConstants()], check=CheckLevel.INVARIANTS)[0].changes == 0


def test_a_hostile_fill_is_neither_folded_nor_allocated() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("Shape", build.op("ConstantOfShape", build.const([1 << 40, 1 << 20])))
    )
    assert run_passes(build.finish(), [FoldConstants()])[0].changes == 0


def test_every_node_is_evaluated_at_most_once(monkeypatch) -> None:
    """A constant with many readers costs nothing extra, and a long chain of constants is linear."""
    build = GraphBuilder()
    c = build.const(ONE)
    value = c
    for _ in range(500):
        value = build.op("Add", value, c)
    build.output("y", value)
    graph = build.finish()
    calls = 0

    def counting(call: Any) -> Any:
        nonlocal calls
        calls += 1
        return evaluate(call)

    monkeypatch.setattr(fold_constants, "evaluate", counting)
    FoldConstants().run(Rewriter(graph, "fold_constants"))
    assert calls == 500
    assert len(graph) == 2
    # Each constant carries one operator only: the sets do not grow along the chain.
    assert only(graph, "Const").origin == {500}
    assert len(graph.ledger.edges) == 500


def test_readers_of_many_outputs_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    build = GraphBuilder()
    parts = build.op(
        "Split", build.const(np.arange(count, dtype=np.float32)), num_outputs=count, n_outputs=count
    )
    build.output("y", build.op("Sum", *(build.op("Sin", parts[at]) for at in range(count))))
    graph = build.finish()
    seen, consumers = 0, Graph.consumers

    def counting(self: Graph, node: Node) -> list[Node]:
        nonlocal seen
        found = consumers(self, node)
        seen += len(found)
        return found

    monkeypatch.setattr(Graph, "consumers", counting)
    run_passes(graph, [FoldConstants()])
    assert numbers(only(graph, "Const"))
    assert seen <= 10 * count


def test_weights_that_integer_arithmetic_left_are_dequantised_when_asked() -> None:
    build = GraphBuilder()
    weights = build.op(
        "DequantizeLinear", build.const(np.array([1, -2, 3], np.int8)), build.const(np.float32(0.5))
    )
    build.output("y", build.op("Mul", build.input("x", DType.F32, (3,)), weights))
    graph = build.finish()
    FoldConstants().run(Rewriter(graph, "fold_constants"))
    assert graph.op_counts["DequantizeLinear"] == 1
    FoldConstants(dequantise=True).run(Rewriter(graph, "fold_constants"))
    assert numbers(only(graph, "Const")) == [0.5, -1.0, 1.5]


def _sliced(start: int, end: int) -> GraphBuilder:
    build = GraphBuilder()
    bounds = [build.const([value]) for value in (start, end, 0)]
    build.output("y", build.op("Slice", build.input("x", DType.F32, [4, 3]), *bounds))
    return build


def test_what_has_no_elements_is_a_constant() -> None:
    empty, other = _sliced(2, 2).finish(), _sliced(2, 3).finish()
    run_passes(empty, [FoldConstants()], check=CheckLevel.INVARIANTS)
    run_passes(other, [FoldConstants()], check=CheckLevel.INVARIANTS)
    assert only(empty, "Const").type == TensorType(DType.F32, (0, 3))
    assert empty.run([np.ones((4, 3), np.float32)])[0].shape == (0, 3)
    assert other.op_counts["Slice"] == 1


def test_an_index_outside_its_axis_is_an_error_where_nothing_is_read() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 0])
    build.output("y", build.op("Gather", x, build.input("i", DType.I64, [2]), axis=0))
    graph = build.finish()
    assert run_passes(graph, [FoldConstants()])[0].changes == 0
