"""Operators that return their input leave; those that only look like it stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import buried, is_left_alone, only, operators, rewrite
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.remove_no_ops import RemoveNoOps
from whence.provenance import Reason
from whence.types import Dim, DType, TensorType

Make = Callable[[GraphBuilder, Symbol], Symbol]


def ints(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def floats(build: GraphBuilder, *values: float) -> Symbol:
    return build.const(np.array(values, np.float32))


def between(make: Make, *shape: Dim, dtype: DType = DType.F32) -> Graph:
    """x -> Neg -> the operator -> Abs -> y."""
    build = GraphBuilder()
    x = build.op("Neg", build.input("x", dtype, shape), name="before")
    build.output("y", build.op("Abs", make(build, x), name="after"))
    return build.finish()


NO_OPS: dict[str, tuple[Make, tuple[Dim, ...]]] = {
    "Identity": (lambda b, x: b.op("Identity", x), (2, 3)),
    "Cast": (lambda b, x: b.op("Cast", x, to=int(DType.F32)), (2, 3)),
    "CastLike": (lambda b, x: b.op("CastLike", x, floats(b, 1.0)), (2, 3)),
    "Reshape": (lambda b, x: b.op("Reshape", x, ints(b, 2, 3)), (2, 3)),
    "Reshape that copies": (lambda b, x: b.op("Reshape", x, ints(b, 0, -1)), ("n", 3)),
    "Reshape that copies an unknown": (lambda b, x: b.op("Reshape", x, ints(b, 0, 3)), (None, 3)),
    "Reshape by names": (lambda b, x: b.op("Reshape", x, ints(b, -1, 3)), ("n", 3)),
    "Flatten": (lambda b, x: b.op("Flatten", x, axis=1), (None, 3)),
    "Flatten of one row": (lambda b, x: b.op("Flatten", x, axis=0), (1, 3)),
    "Squeeze of nothing": (lambda b, x: b.op("Squeeze", x, ints(b)), (None, 3)),
    "Squeeze without ones": (lambda b, x: b.op("Squeeze", x), (2, 3)),
    "Unsqueeze of nothing": (lambda b, x: b.op("Unsqueeze", x, ints(b)), (None, 3)),
    "Transpose": (lambda b, x: b.op("Transpose", x, perm=(0, 1)), (None, 3)),
    "Transpose of a vector": (lambda b, x: b.op("Transpose", x), (None,)),
    "Expand": (lambda b, x: b.op("Expand", x, ints(b, 2, 1)), (2, 3)),
    "Expand by ones": (lambda b, x: b.op("Expand", x, ints(b, 1, 1)), (None, "n")),
    "Tile": (lambda b, x: b.op("Tile", x, ints(b, 1, 1)), (2, 3)),
    "Pad": (lambda b, x: b.op("Pad", x, ints(b, 0, 0, 0, 0)), (2, 3)),
    "Slice": (
        lambda b, x: b.op("Slice", x, ints(b, 0), ints(b, 2**63 - 1), ints(b, 1)),
        (None, None),
    ),
    "Slice of a known length": (
        lambda b, x: b.op("Slice", x, ints(b, -3), ints(b, 3), ints(b, 1)),
        (2, 3),
    ),
    "Concat": (lambda b, x: b.op("Concat", x, axis=0), (2, 3)),
    "Split": (lambda b, x: b.op("Split", x, ints(b, 2), axis=0), (2, 3)),
    "Split without sizes": (lambda b, x: b.op("Split", x, axis=0, num_outputs=1), (2, 3)),
    "DepthToSpace": (lambda b, x: b.op("DepthToSpace", x, blocksize=1), (1, 2, 3, 3)),
    "SpaceToDepth": (lambda b, x: b.op("SpaceToDepth", x, blocksize=1), (1, 2, 3, 3)),
    "Resize by scales": (
        lambda b, x: b.op("Resize", x, None, floats(b, 1, 1, 1, 1), mode="linear"),
        (1, 2, 3, 3),
    ),
    "Resize by sizes": (
        lambda b, x: b.op("Resize", x, None, None, ints(b, 1, 2, 3, 3), mode="cubic"),
        (1, 2, 3, 3),
    ),
    "Resize of axes": (
        lambda b, x: b.op("Resize", x, None, None, ints(b, 3, 3), axes=(2, 3), mode="nearest"),
        (1, 2, 3, 3),
    ),
    "MaxPool": (lambda b, x: b.op("MaxPool", x, kernel_shape=(1, 1)), (1, 2, 3, 3)),
    "AveragePool": (
        lambda b, x: b.op("AveragePool", x, kernel_shape=(1, 1), strides=(1, 1)),
        (1, 2, 3, 3),
    ),
    "GlobalAveragePool": (lambda b, x: b.op("GlobalAveragePool", x), ("n", 2, 1, 1)),
    "Sum": (lambda b, x: b.op("Sum", x), (2, 3)),
    "Max": (lambda b, x: b.op("Max", x), (2, 3)),
    "Min": (lambda b, x: b.op("Min", x), (2, 3)),
    "Mean": (lambda b, x: b.op("Mean", x), (2, 3)),
    "Clip": (lambda b, x: b.op("Clip", x), (2, 3)),
    "Clip by infinities": (
        lambda b, x: b.op("Clip", x, b.const(np.float32(-np.inf)), b.const(np.float32(np.inf))),
        (2, 3),
    ),
    "ReduceSum of no axes": (
        lambda b, x: b.op("ReduceSum", x, ints(b), noop_with_empty_axes=1),
        (2, 3),
    ),
    "ReduceMean of an axis of one": (lambda b, x: b.op("ReduceMean", x, ints(b, -1)), (None, 1)),
    "ReduceMax of one element": (lambda b, x: b.op("ReduceMax", x), (1, 1)),
    "OptionalGetElement": (lambda b, x: b.op("OptionalGetElement", x), (2, 3)),
}


@pytest.mark.parametrize("name", NO_OPS)
def test_leaves(name: str) -> None:
    make, shape = NO_OPS[name]
    graph, expected = between(make, *shape), between(lambda _, x: x, *shape)
    assert sum(rewrite(graph, RemoveNoOps()).values()) == 1
    assert structure(graph) == structure(expected)
    (stone,) = graph.ledger.tombstones
    assert (stone.node, stone.reason, stone.into) == (2, Reason.IDENTITY, 1)


KEPT: dict[str, tuple[Make, tuple[Dim, ...]]] = {
    "Cast": (lambda b, x: b.op("Cast", x, to=int(DType.F64)), (2, 3)),
    "Reshape": (lambda b, x: b.op("Reshape", x, ints(b, 3, 2)), (2, 3)),
    "Reshape of unknown sizes": (lambda b, x: b.op("Reshape", x, ints(b, 2, 2)), (None, None)),
    "Reshape to another rank": (lambda b, x: b.op("Reshape", x, ints(b, 0, 0, 1)), ("n", 3)),
    "Flatten": (lambda b, x: b.op("Flatten", x, axis=0), (2, 3)),
    "Squeeze": (lambda b, x: b.op("Squeeze", x, ints(b, 0)), (1, 3)),
    "Squeeze of what may be one": (lambda b, x: b.op("Squeeze", x), (None, 3)),
    "Transpose": (lambda b, x: b.op("Transpose", x, perm=(1, 0)), (3, 3)),
    "Transpose without perm": (lambda b, x: b.op("Transpose", x), (3, 3)),
    "Expand": (lambda b, x: b.op("Expand", x, ints(b, 2, 3)), (1, 3)),
    "Expand to a higher rank": (lambda b, x: b.op("Expand", x, ints(b, 1, 1, 1)), (2, 3)),
    "Expand of what may be one": (lambda b, x: b.op("Expand", x, ints(b, 2, 3)), (None, 3)),
    "Tile": (lambda b, x: b.op("Tile", x, ints(b, 1, 2)), (2, 3)),
    "Pad": (lambda b, x: b.op("Pad", x, ints(b, 0, 1, 0, -1)), (2, 3)),
    "Slice": (lambda b, x: b.op("Slice", x, ints(b, 1), ints(b, 2**63 - 1), ints(b, 1)), (2, 3)),
    "Slice backwards": (
        lambda b, x: b.op("Slice", x, ints(b, -1), ints(b, -(2**63)), ints(b, 1), ints(b, -1)),
        (2, 3),
    ),
    "Concat": (lambda b, x: b.op("Concat", x, x, axis=0), (2, 3)),
    "DepthToSpace": (lambda b, x: b.op("DepthToSpace", x, blocksize=2), (1, 4, 3, 3)),
    "Resize": (
        lambda b, x: b.op("Resize", x, None, floats(b, 1, 1, 2, 2), mode="linear"),
        (1, 2, 3, 3),
    ),
    "MaxPool with strides": (
        lambda b, x: b.op("MaxPool", x, kernel_shape=(1, 1), strides=(2, 2)),
        (1, 2, 3, 3),
    ),
    "GlobalAveragePool": (lambda b, x: b.op("GlobalAveragePool", x), (1, 2, 1, 2)),
    "Clip": (lambda b, x: b.op("Clip", x, b.const(np.float32(0))), (2, 3)),
    "ReduceSum": (lambda b, x: b.op("ReduceSum", x), (2, 3)),
    "ReduceSum without the axis": (
        lambda b, x: b.op("ReduceSum", x, ints(b, 0), keepdims=0),
        (1, 3),
    ),
    "ReduceL1 of one": (lambda b, x: b.op("ReduceL1", x, ints(b, 0)), (1, 3)),
}


@pytest.mark.parametrize("name", KEPT)
def test_stays(name: str) -> None:
    make, shape = KEPT[name]
    assert is_left_alone(between(make, *shape), RemoveNoOps())


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


def test_what_is_wrapped_and_taken_out_is_what_went_in() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [4]), build.input("z", DType.F32, [4])
    a = build.op("OptionalGetElement", build.op("Optional", x, name="wrap"), name="get")
    b = build.op(
        "SequenceAt", build.op("SequenceConstruct", x, z, name="list"), build.const(-1), name="at"
    )
    c = build.op(
        "ConcatFromSequence", build.op("SequenceConstruct", z, name="single"), axis=0, name="concat"
    )
    build.output("y", build.op("Sum", a, b, c))
    graph = build.finish()
    rewrite(graph, RemoveNoOps())
    assert operators(graph) == ["Sum"]
    # What was taken out is no more, and with it goes what it was wrapped in.
    assert buried(graph) == {
        "get": Reason.IDENTITY,
        "wrap": Reason.CANCELLED,
        "at": Reason.IDENTITY,
        "list": Reason.CANCELLED,
        "concat": Reason.IDENTITY,
        "single": Reason.CANCELLED,
    }


def test_a_chain_of_no_ops_between_input_and_output() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    value = x
    for make in (
        NO_OPS[name][0] for name in ("Identity", "Cast", "Reshape", "Pad", "Identity", "Sum")
    ):
        value = make(build, value)
    build.output("y", value)
    build.output("z", value)
    graph = build.finish()
    rewrite(graph, RemoveNoOps())
    assert operators(graph) == []
    assert [output.inputs for output in graph.outputs] == [(graph.inputs[0].ref(),)] * 2
    assert {stone.into for stone in graph.ledger.tombstones} == {graph.inputs[0].id}


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
