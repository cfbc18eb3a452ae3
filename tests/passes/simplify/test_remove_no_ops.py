"""Operators that return their input leave; those that only look like it stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import only, operators
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.remove_no_ops import RemoveNoOps
from whence.types import Dim, DType, TensorType

Make = Callable[[GraphBuilder, Symbol], Symbol]


def between(make: Make, *shape: Dim, dtype: DType = DType.F32) -> Graph:
    """x -> Neg -> the operator -> Abs -> y."""
    build = GraphBuilder()
    x = build.op("Neg", build.input("x", dtype, shape), name="before")
    build.output("y", build.op("Abs", make(build, x), name="after"))
    return build.finish()


def test_dropout_in_training_and_dropout_whose_mask_is_read_stay() -> None:
    training = between(
        lambda b, x: b.op("Dropout", x, b.const(np.float32(0.5)), b.const(np.array(True))), 2, 3
    )
    assert run_passes(training, [RemoveNoOps()], check=CheckLevel.INVARIANTS)[0].changes == 0
    build = GraphBuilder()
    dropout = build.op("Dropout", build.input("x", DType.F32, [4]), n_outputs=2)
    build.output("y", dropout[0])
    build.output("mask", dropout[1])
    assert run_passes(build.finish(), [RemoveNoOps()], check=CheckLevel.INVARIANTS)[0].changes == 0


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("mode", ["default", "constant"])
def test_dropout_outside_training_leaves_unless_its_mask_is_read(mode: str, outputs: int) -> None:
    build = GraphBuilder()
    given = (
        (build.const(np.float32(0.5)), build.const(np.array(False))) if mode == "constant" else ()
    )
    build.output(
        "y", build.op("Dropout", build.input("x", DType.F32, [4]), *given, n_outputs=outputs)[0]
    )
    graph = build.finish()
    x = np.array([1, -2, 3, 0], np.float32)
    np.testing.assert_array_equal(graph.run([x])[0], x)
    (report,) = run_passes(graph, [RemoveNoOps()], check=CheckLevel.INVARIANTS)
    assert report.rules == {"Dropout returns its input outside training": 1}
    assert operators(graph) == []
    np.testing.assert_array_equal(graph.run([x])[0], x)


def test_what_a_no_op_knew_of_its_type_is_not_lost() -> None:
    build = GraphBuilder()
    x = build.op("Neg", build.input("x", DType.F32, None))
    build.output("y", build.op("Abs", build.op("Identity", x)))
    graph = build.finish()
    graph.set_types(only(graph, "Identity"), [TensorType(DType.F32, ("n", 3))])
    run_passes(graph, [RemoveNoOps()], check=CheckLevel.INVARIANTS)
    assert only(graph, "Neg").type == TensorType(DType.F32, ("n", 3))
    assert graph.inputs[0].type == TensorType(DType.F32, None)


def test_a_declared_type_that_contradicts_is_not_acted_on() -> None:
    graph = between(lambda b, x: b.op("Identity", x), 2, 3)
    graph.set_types(only(graph, "Identity"), [TensorType(DType.F32, (3, 2))])
    assert run_passes(graph, [RemoveNoOps()], check=CheckLevel.INVARIANTS)[0].changes == 0


def test_every_node_is_reconnected_at_most_once(monkeypatch) -> None:
    """A node that reads a thousand no-ops, and a no-op with a thousand readers, cost a thousand
    steps and not a million.
    """
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1])
    shared = build.op("Identity", build.op("Neg", x))
    parts = [build.op("Identity", build.op("Abs", shared)) for _ in range(1000)]
    build.output("y", build.op("Concat", *parts, axis=0))
    graph = build.finish()
    reconnected = 0
    set_inputs = Graph.set_inputs

    def counting(self: Graph, node: Any, inputs: Any) -> None:
        nonlocal reconnected
        reconnected += 1
        set_inputs(self, node, inputs)

    monkeypatch.setattr(Graph, "set_inputs", counting)
    rewriter = Rewriter(graph, "remove_no_ops")
    RemoveNoOps().run(rewriter)
    assert rewriter.rules == {"Identity returns its input": 1001}
    assert reconnected == 1000 + 1


@pytest.mark.parametrize(("axis", "leaves"), [(0, True), (1, False)])
def test_a_concatenation_with_nothing_leaves(axis: int, leaves: bool) -> None:
    """[0,3] adds nothing along axis 0; along axis 1, it makes [0,6] of another."""
    shape = (2, 3) if axis == 0 else (0, 3)
    nothing = np.empty((0, 3), np.float32)
    graph = between(
        lambda b, x: b.op("Concat", b.const(nothing), x, b.const(nothing), axis=axis), *shape
    )
    x = np.ones(shape, np.float32)
    (before,) = graph.run([x])
    run_passes(graph, [RemoveNoOps()], check=CheckLevel.INVARIANTS)
    assert ("Concat" not in operators(graph)) is leaves
    np.testing.assert_array_equal(graph.run([x])[0], before)


def test_an_input_without_elements_stays_though_nobody_reads_it() -> None:
    """It is part of the model's signature: callers give it."""
    build = GraphBuilder()
    past = build.input("past", DType.F32, [0, 3])
    x = build.input("x", DType.F32, [2, 3])
    build.output("y", build.op("Concat", past, x, axis=0))
    graph = build.finish()
    run_passes(graph, [RemoveNoOps()], check=CheckLevel.INVARIANTS)
    assert "Concat" not in operators(graph)
    assert [node.name for node in graph.inputs] == ["past", "x"]
