"""Operators on constants become constants; what is random, quantised, huge or broken does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.passes.control.nested import read_text
from tests.passes.rewriting import buried, is_left_alone, only, operators, rewrite
from whence.graph import Graph, Node, Rewriter
from whence.graph.builder import GraphBuilder
from whence.graph.structure import structure
from whence.ops.registry import evaluate
from whence.passes.fold import fold_constants
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.manager import CheckLevel, run_passes
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType

ONE = np.ones((2, 3), np.float32)


def numbers(constant: Node) -> Any:
    assert constant.value is not None
    return constant.value.tolist()


def test_a_chain_of_constant_operators_becomes_one_constant() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3, 2])
    w = build.op(
        "Mul",
        build.op("Add", build.const(ONE), build.const(ONE * 2), name="add"),
        build.const(ONE * 5),
        name="mul",
    )
    build.output(
        "y",
        build.op("Add", x, build.op("Transpose", w, perm=(1, 0), name="transpose"), name="last"),
    )
    graph = build.finish()

    expected = GraphBuilder()
    x = expected.input("x", DType.F32, [3, 2])
    expected.output("y", expected.op("Add", x, expected.const(np.full((3, 2), 15, np.float32))))

    assert rewrite(graph, FoldConstants()) == {"an operator on constants is a constant": 3}
    assert structure(graph) == structure(expected.finish())
    # The last constant carries the last operator; the others were folded into it, and nothing else
    # is left of them.
    constant = only(graph, "Const")
    assert constant.origin == {3}
    assert constant.value is not None
    assert constant.value.flags.c_contiguous
    assert [
        (edge.parent, edge.kind) for edge in graph.ledger.edges if edge.child == constant.id
    ] == [(3, EdgeKind.FOLD)]
    assert buried(graph) == {"add": Reason.FOLDED, "mul": Reason.FOLDED}
    assert [stone.into for stone in graph.ledger.tombstones if stone.origin == {2}] == [constant.id]


def test_a_constant_with_other_readers_stays() -> None:
    build = GraphBuilder()
    x, c = build.input("x", DType.F32, [2, 3]), build.const(ONE)
    build.output("y", build.op("Add", build.op("Add", x, c), build.op("Neg", build.op("Exp", c))))
    graph = build.finish()
    rewrite(graph, FoldConstants())
    assert operators(graph) == ["Add", "Add"]
    assert buried(graph) == {"Exp_2": Reason.FOLDED}


def test_only_used_outputs_are_kept() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 3])
    parts = build.op(
        "Split",
        build.const(np.arange(6, dtype=np.float32).reshape(2, 3)),
        n_outputs=2,
        axis=0,
        num_outputs=2,
        name="split",
    )
    build.output("y", build.op("Add", x, parts[1]))
    graph = build.finish()
    rewrite(graph, FoldConstants())
    assert numbers(only(graph, "Const")) == [[3, 4, 5]]
    assert only(graph, "Const").name == "split.1"


def test_an_output_may_be_a_constant() -> None:
    build = GraphBuilder()
    build.output("y", build.op("Exp", build.const(ONE)))
    graph = build.finish()
    rewrite(graph, FoldConstants())
    assert operators(graph) == []


def test_types_after_a_folded_shape_become_known() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 6])
    shape = build.op(
        "Concat",
        build.const([-1]),
        build.op("Add", build.const([1]), build.const([1])),
        build.const([3]),
        axis=0,
    )
    build.output("y", build.op("Relu", build.op("Reshape", x, shape)))
    graph = build.finish()
    assert only(graph, "Relu").type == TensorType(DType.F32, (None, None, None))
    rewrite(graph, FoldConstants())
    assert only(graph, "Reshape").type == TensorType(DType.F32, ("n", 2, 3))
    assert only(graph, "Relu").type == TensorType(DType.F32, ("n", 2, 3))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("QuantizeLinear", {}), ("DequantizeLinear", {})],
)
def test_quantised_constants_stay_quantised(op: str, attrs: dict[str, Any]) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    scale, zero = build.const(np.array(0.5, np.float32)), build.const(np.array(3, np.int8))
    if op == "DequantizeLinear":
        w = build.op(op, build.const(np.ones((2, 3), np.int8)), scale, zero, **attrs)
        build.output("y", build.op("Add", x, w))
    else:
        build.output("y", build.op(op, build.const(ONE), scale, zero, **attrs))
    assert is_left_alone(build.finish(), FoldConstants())


def test_random_numbers_are_drawn_at_run_time() -> None:
    build = GraphBuilder()
    build.output("y", build.op("RandomNormalLike", build.const(ONE)))
    graph = build.finish()
    assert run_passes(graph, [FoldConstants()])[0].changes == 0


def test_what_fails_is_left_to_fail_at_run_time() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("Gather", build.const(np.arange(3)), build.const(np.array([7])), axis=0)
    )
    graph = build.finish()
    assert run_passes(graph, [FoldConstants()], check=CheckLevel.INVARIANTS)[0].changes == 0


def test_sequences_are_not_constants() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("SequenceAt", build.op("SequenceConstruct", build.const(ONE)), build.const(0))
    )
    assert is_left_alone(build.finish(), FoldConstants())


def grown(op: str, rows: int) -> Graph:
    """A result of `rows` times 1,024 floats that is made from next to nothing."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 1024])
    row = build.const(np.zeros((1, 1024), np.float32))
    if op == "Expand":
        big = build.op("Expand", row, build.const([rows, 1024]))
    elif op == "Tile":
        big = build.op("Tile", row, build.const([rows, 1]))
    else:
        big = build.op("ConstantOfShape", build.const([rows, 1024]))
    build.output("y", build.op("Add", x, big))
    return build.finish()


@pytest.mark.parametrize("op", ["Expand", "Tile"])
def test_large_results_made_from_little_are_left(op: str) -> None:
    small, large = grown(op, 16), grown(op, 17)
    rewrite(small, FoldConstants())
    assert operators(small) == ["Add"]
    assert is_left_alone(large, FoldConstants())


def test_constant_of_shape_has_a_budget_of_its_own() -> None:
    graph = grown("ConstantOfShape", 512)
    rewrite(graph, FoldConstants())
    assert operators(graph) == ["Add"]
    assert is_left_alone(grown("ConstantOfShape", 512), FoldConstants(max_fill_bytes=(2 << 20) - 1))


def test_a_hostile_fill_is_neither_folded_nor_allocated() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("Shape", build.op("ConstantOfShape", build.const([1 << 40, 1 << 20])))
    )
    assert run_passes(build.finish(), [FoldConstants()])[0].changes == 0


def transposed(readers: int) -> Graph:
    build = GraphBuilder()
    x, w = build.input("x", DType.F32, [1, 128]), build.const(np.ones((256, 128), np.float32))
    y = build.op("MatMul", x, build.op("Transpose", w, perm=(1, 0)))
    for _ in range(readers):
        y = build.op(
            "Add",
            y,
            build.op("MatMul", build.op("MatMul", y, w), build.op("Transpose", w, perm=(1, 0))),
        )
    build.output("y", y)
    return build.finish()


def test_above_the_limit_a_constant_may_only_take_the_place_of_another() -> None:
    alone = transposed(0)
    rewrite(alone, FoldConstants(max_bytes=1024))
    assert operators(alone) == ["MatMul"]
    assert is_left_alone(transposed(1), FoldConstants(max_bytes=1024))


def test_long_computations_are_left_to_the_run() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [256, 256])
    a = build.const(np.ones((256, 256), np.float32))
    build.output("y", build.op("Add", x, build.op("MatMul", a, a)))
    assert is_left_alone(build.finish(), FoldConstants(max_flops=1 << 20))


CAPTURED = """
<ir_version: 10, opset_import: ["" : 21]>
main (bool c, float[2] x) => (float[2] y)
<float[2] one = {1.0, 1.0}>
{
    two = Add(one, one)
    y = If (c) <
        then_branch = yes () => (float[2] p) { four = Mul(two, two) p = Add(x, four) },
        else_branch = no () => (float[2] q) { q = Sub(x, two) }
    >
}
"""


def test_a_captured_constant_becomes_one_of_the_branch_and_is_folded_there(tmp_path: Path) -> None:
    graph = read_text(CAPTURED, tmp_path)
    branch = only(graph, "If")
    assert branch.attrs["captures"] == 2
    rules = rewrite(graph, FoldConstants())
    assert rules == {
        "an operator on constants is a constant": 2,
        "a captured constant is a constant of the nested graph": 1,
    }
    assert branch.attrs["captures"] == 1
    assert [operators(body) for body in branch.bodies.values()] == [["Add"], ["Sub"]]
    folded = [only(body, "Const") for body in branch.bodies.values()]
    assert [numbers(constant) for constant in folded] == [[4, 4], [2, 2]]
    # The addition was folded, went into both branches, and in one of them into what was folded
    # there.
    assert folded[1].origin == {1}
    assert graph.op_counts.get("Const", 0) == 0


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
