"""x + 0, x * 1, -(-x) and the like are x, unless broadcasting makes more of x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import buried, is_left_alone, operators, rewrite
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder
from whence.graph.structure import structure
from whence.passes.const_values import is_filled_with
from whence.passes.simplify import remove_neutral_arithmetic
from whence.passes.simplify.remove_neutral_arithmetic import RemoveNeutralArithmetic
from whence.provenance import Reason
from whence.types import Dim, DType


def with_constant(
    op: str,
    value: Any,
    shape: tuple[Dim, ...] | None,
    *,
    left: bool = False,
    dtype: Any = np.float32,
) -> Graph:
    build = GraphBuilder()
    x, c = (
        build.input("x", DType.of(np.zeros(0, dtype)), shape),
        build.const(np.asarray(value, dtype)),
    )
    build.output("y", build.op(op, *((c, x) if left else (x, c)), name="neutral"))
    return build.finish()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize(
    ("op", "neutral", "law"),
    [
        ("Add", 0, "x + 0 = x"),
        ("Sub", 0, "x - 0 = x"),
        ("Mul", 1, "x * 1 = x"),
        ("Div", 1, "x / 1 = x"),
        ("Pow", 1, "x ^ 1 = x"),
    ],
)
def test_neutral_on_the_right(op: str, neutral: int, law: str, dtype: Any) -> None:
    graph = with_constant(op, [neutral] * 3, (2, 3), dtype=dtype)
    assert rewrite(graph, RemoveNeutralArithmetic()) == {law: 1}
    assert operators(graph) == []
    (stone,) = graph.ledger.tombstones
    assert (stone.reason, stone.rule, stone.into) == (Reason.IDENTITY, law, graph.inputs[0].id)


@pytest.mark.parametrize(
    ("op", "neutral", "leaves"),
    [("Add", 0, True), ("Mul", 1, True), ("Sub", 0, False), ("Div", 1, False), ("Pow", 1, False)],
)
def test_on_the_left_only_where_the_operator_is_commutative(
    op: str, neutral: int, leaves: bool
) -> None:
    graph = with_constant(op, neutral, (2, 3), left=True)
    rewrite(graph, RemoveNeutralArithmetic())
    assert (operators(graph) == []) is leaves


@pytest.mark.parametrize(("op", "neutral"), [("And", True), ("Or", False), ("Xor", False)])
def test_truth_values(op: str, neutral: bool) -> None:
    for left in (False, True):
        graph = with_constant(op, neutral, (2, 3), left=left, dtype=np.bool_)
        rewrite(graph, RemoveNeutralArithmetic())
        assert operators(graph) == []
    assert is_left_alone(
        with_constant(op, not neutral, (2, 3), dtype=np.bool_), RemoveNeutralArithmetic()
    )


@pytest.mark.parametrize(
    ("constant", "shape", "leaves"),
    [
        ((), (), True),
        ((), None, True),
        ((1,), None, False),
        ((1,), (), False),
        ((3,), (2, 3), True),
        ((1, 1), (2, 3), True),
        ((2, 3), (2, 3), True),
        ((2, 1), (2, 3), True),
        ((1, 1, 1), (2, 3), False),
        ((4, 1, 1), (2, 3), False),
        ((2, 3), (1, 3), False),
        ((2, 3), (None, 3), False),
        ((1, 3), (None, 3), True),
        ((3,), ("n", 3), True),
        ((0,), (1,), False),
    ],
)
def test_a_constant_that_enlarges_is_not_neutral(
    constant: tuple[int, ...], shape: tuple[Dim, ...] | None, leaves: bool
) -> None:
    graph = with_constant("Add", np.zeros(constant), shape)
    RemoveNeutralArithmetic().run(Rewriter(graph, "test"))
    assert (operators(graph) == []) is leaves


@pytest.mark.parametrize("value", [[0, 0, 1], [1, 0, 0], [0, 0, np.nan]])
def test_one_other_element_is_enough_to_stay(value: list[float]) -> None:
    assert is_left_alone(with_constant("Add", value, (2, 3)), RemoveNeutralArithmetic())


def test_a_negative_zero_is_a_zero() -> None:
    graph = with_constant("Add", -0.0, (2, 3))
    rewrite(graph, RemoveNeutralArithmetic())
    assert operators(graph) == []


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("Neg", DType.F32), ("Not", DType.BOOL), ("BitwiseNot", DType.I32), ("Reciprocal", DType.F32)],
)
def test_what_undoes_itself_cancels(op: str, dtype: DType) -> None:
    build = GraphBuilder()
    x = build.input("x", dtype, [4])
    value = x
    for number in range(5):
        value = build.op(op, value, name=f"n{number}")
    build.output("y", value)
    graph = build.finish()
    rewrite(graph, RemoveNeutralArithmetic())
    assert operators(graph) == [op]
    assert buried(graph) == {f"n{number}": Reason.CANCELLED for number in range(4)}


def test_the_inner_of_a_pair_stays_when_it_has_other_readers() -> None:
    build = GraphBuilder()
    inner = build.op("Neg", build.input("x", DType.F32, [4]))
    build.output("y", build.op("Neg", inner))
    build.output("z", inner)
    graph = build.finish()
    rewrite(graph, RemoveNeutralArithmetic())
    assert operators(graph) == ["Neg"]
    assert graph.outputs[0].inputs == (graph.inputs[0].ref(),)


@pytest.mark.parametrize("op", ["Relu", "Abs", "Sign", "Ceil", "Floor", "Round"])
def test_what_changes_nothing_the_second_time(op: str) -> None:
    build = GraphBuilder()
    build.output("y", build.op(op, build.op(op, build.op(op, build.input("x", DType.F32, [4])))))
    graph = build.finish()
    assert rewrite(graph, RemoveNeutralArithmetic()) == {f"{op} of {op} is {op}": 2}
    assert operators(graph) == [op]
    assert {stone.into for stone in graph.ledger.tombstones} == {1}


def test_a_choice_between_equals() -> None:
    build = GraphBuilder()
    c, wide = build.input("c", DType.BOOL, [4]), build.input("wide", DType.BOOL, [3, 4])
    x, z = build.input("x", DType.F32, [4]), build.input("z", DType.F32, [4])
    build.output("same", build.op("Where", c, x, x, name="same"))
    build.output("other", build.op("Where", c, x, z))
    build.output("wider", build.op("Where", wide, x, x))
    graph = build.finish()
    rewrite(graph, RemoveNeutralArithmetic())
    assert buried(graph) == {"same": Reason.IDENTITY}


def test_rules_see_what_other_rules_left() -> None:
    """-(1 · (-x + 0)) is x."""
    build = GraphBuilder()
    x, zero, one = (
        build.input("x", DType.F32, [4]),
        build.const(np.float32(0)),
        build.const(np.float32(1)),
    )
    build.output(
        "y", build.op("Neg", build.op("Mul", one, build.op("Add", build.op("Neg", x), zero)))
    )
    expected = GraphBuilder()
    expected.output("y", expected.input("x", DType.F32, [4]))
    graph = build.finish()
    rewrite(graph, RemoveNeutralArithmetic())
    assert structure(graph) == structure(expected.finish())


def test_a_constant_is_looked_at_once_however_many_read_it(monkeypatch) -> None:
    build = GraphBuilder()
    value, one, two = (
        build.input("x", DType.F32, [4]),
        build.const(np.ones(4, np.float32)),
        build.const(np.full(4, 2, np.float32)),
    )
    for _ in range(300):
        value = build.op("Mul", build.op("Mul", value, one), two)
    build.output("y", value)
    graph = build.finish()
    looks = 0

    def counting(array: np.ndarray, item: float) -> bool:
        nonlocal looks
        looks += 1
        return is_filled_with(array, item)

    monkeypatch.setattr(remove_neutral_arithmetic, "is_filled_with", counting)
    RemoveNeutralArithmetic().run(Rewriter(graph, "test"))
    assert looks == 2
    assert operators(graph) == ["Mul"] * 300
