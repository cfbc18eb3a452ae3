"""What is computed twice is computed once, and the ledger says by whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import rewrite
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify import merge_duplicates
from whence.passes.simplify.merge_duplicates import MergeDuplicates
from whence.types import DType


@pytest.mark.parametrize(
    ("op", "left", "right"),
    [
        ("Softmax", {"axis": 0}, {"axis": 1}),
        ("Softmax", {"axis": 0}, {}),
        ("Softmax", {}, {"axis": 1}),
        ("LeakyRelu", {"alpha": 1}, {"alpha": 1.0}),
    ],
)
def test_other_attributes_are_another_operator(
    op: str, left: dict[str, Any], right: dict[str, Any]
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3, 3])
    build.output("a", build.op(op, x, **left))
    build.output("b", build.op(op, x))
    graph = build.finish()
    other = next(node for node in graph if node.id == 2)
    graph.set_attrs(other, right)
    assert run_passes(graph, [MergeDuplicates()], check=CheckLevel.INVARIANTS)[0].changes == 0


def test_random_twins_differ() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.output(
        "y", build.op("Add", build.op("RandomNormalLike", x), build.op("RandomNormalLike", x))
    )
    assert (
        run_passes(build.finish(), [MergeDuplicates()], check=CheckLevel.INVARIANTS)[0].changes == 0
    )


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def constants(*values: np.ndarray) -> Graph:
    build = GraphBuilder()
    for number, value in enumerate(values):
        build.output(f"y{number}", build.op("Identity", build.const(value)))
    return build.finish()


def count(graph: Graph) -> int:
    run_passes(graph, [MergeDuplicates()], check=CheckLevel.INVARIANTS)
    return graph.op_counts["Const"]


BIG = np.arange(10_000, dtype=np.float32)


def test_equal_constants_are_one() -> None:
    late = BIG.copy()
    late[9_999] = -1
    middle = BIG.copy()
    middle[5] = -1
    assert count(constants(BIG, BIG.copy(), BIG)) == 1
    assert count(constants(BIG, late, middle, late.copy(), middle.copy(), BIG.copy())) == 3
    assert count(constants(BIG.reshape(100, 100), BIG)) == 2
    assert (
        count(constants(BIG.reshape(100, 100), np.ascontiguousarray(BIG.reshape(100, 100).T).T))
        == 1
    )


def test_bits_decide_not_numbers() -> None:
    assert count(constants(scalar(0.0), scalar(-0.0))) == 2
    assert count(constants(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))) == 1
    assert count(constants(scalar(1, np.int32), scalar(1, np.int64), scalar(1))) == 3
    assert (
        count(
            constants(
                np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros((0, 2), np.float32)
            )
        )
        == 2
    )
    assert (
        count(
            constants(
                np.array(["a", "b"], object),
                np.array(["a", "b"], object),
                np.array(["a", "c"], object),
            )
        )
        == 2
    )


def test_large_constants_are_read_whole_only_when_samples_agree_and_then_once(monkeypatch) -> None:
    digests = 0
    digest = merge_duplicates._digest

    def counting(node: Any) -> bytes:
        nonlocal digests
        digests += 1
        return digest(node)

    monkeypatch.setattr(merge_duplicates, "_digest", counting)
    graph = constants(*(np.full(1000, number, np.float32) for number in range(50)))
    MergeDuplicates().run(Rewriter(graph, "test"))
    assert digests == 0
    alike = []
    for number in range(50):
        alike.append(np.zeros(1000, np.float32))
        alike[-1][1] = number
    graph = constants(*alike)
    MergeDuplicates().run(Rewriter(graph, "test"))
    assert digests == 50
    assert graph.op_counts["Const"] == 50


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Add", "Mul", "Sub", "Max"]), st.integers(0, 5), st.integers(0, 5)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_random_graphs_compute_the_same_afterwards(steps: list[tuple[str, int, int]]) -> None:
    build = GraphBuilder()
    values = [build.input("x", DType.F32, [2]), build.input("z", DType.F32, [2])]
    for op, left, right in steps:
        values.append(build.op(op, values[left % len(values)], values[right % len(values)]))
    build.output("y", build.op("Sum", *values))
    graph = build.finish()
    rewrite(graph, MergeDuplicates())
    keys = [
        (node.op, node.inputs if node.op == "Sub" else frozenset(node.inputs))
        for node in graph
        if node.op in ("Add", "Mul", "Sub", "Max")
    ]
    assert len(set(keys)) == len(keys)
