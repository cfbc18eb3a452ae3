"""The small questions passes ask while they match."""

from __future__ import annotations

import numpy as np
import pytest

from whence.graph import Node
from whence.graph.builder import GraphBuilder
from whence.passes.const_values import const_ints
from whence.passes.parameters import reduced_axes
from whence.passes.pattern import (
    few_consumers,
    is_closed,
    near,
    operand_orders,
    same_but_one,
    same_dim,
    scalar,
    without_casts,
)
from whence.passes.recognise.gate import polynomial
from whence.types import Dim, DType


def test_constants_as_numbers() -> None:
    build = GraphBuilder()
    values = [
        np.float32(2.5),
        np.full((1, 1), 3),
        np.array([1, 2]),
        np.array([True]),
        np.array(["text"], dtype=object),
        np.array([1j]),
    ]
    x = build.input("x", DType.F32, [1])
    consts = [build.const(value) for value in values]
    build.output("y", build.op("Relu", x))
    graph = build.finish()
    refs = [node.ref() for node in graph if node.is_const]
    assert len(consts) == len(refs)
    assert [scalar(graph, ref) for ref in refs] == [2.5, 3.0, None, None, None, None]
    assert [const_ints(graph, ref) for ref in refs[:3]] == [None, (3,), (1, 2)]
    assert scalar(graph, None) is None
    assert scalar(graph, graph.inputs[0].ref()) is None


def test_near() -> None:
    assert near(1.41421, 2**0.5)
    assert not near(1.4137, 2**0.5)
    assert near(1.4137, 2**0.5, DType.F16)
    assert near(0.0, 0.0)
    assert not near(1e-6, 0.0)
    assert not near(None, 0.0)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ((2, 3), (2, 3), True),
        ((2, 3), (3, 2), False),
        (("n", 3), ("n", 3), True),
        (("n", 3), (None, 3), True),
        (("n", 3), (3, 3), True),
        ((2, 3), (6, 3), False),
        (("n", "m"), ("m", "n"), False),
        ((None, None), (None, None), False),
        (("n", 0), (None, 0), False),
        ((2,), (2, 1), False),
    ],
)
def test_shapes_of_the_same_number_of_elements(
    left: tuple[Dim, ...], right: tuple[Dim, ...], equal: bool
) -> None:
    assert same_but_one(left, right) is equal
    assert same_but_one(None, right) is False


def test_dimensions() -> None:
    assert same_dim("n", "n")
    assert same_dim(3, 3)
    assert not same_dim("n", "m")
    assert not same_dim(None, None)


def test_matches_that_nobody_else_looks_into() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2])
    a = build.op("Relu", x)
    b = build.op("Add", a, build.op("Neg", a))
    build.output("y", build.op("Exp", b))
    build.output("z", build.op("Abs", a))
    graph = build.finish()
    relu, neg, add, exp, other = (graph[index] for index in range(1, 6))
    assert is_closed([neg, add], add)
    assert is_closed([relu, neg, add, other], add) is False
    assert is_closed([relu, neg, add], add) is False
    assert few_consumers(graph, relu, 3) == [neg, add, other]
    assert few_consumers(graph, relu, 2) is None
    assert list(operand_orders(add)) == [(relu.ref(), neg.ref()), (neg.ref(), relu.ref())]
    assert list(operand_orders(exp)) == []


def test_axes_of_reductions() -> None:
    build = GraphBuilder()
    x, given = build.input("x", DType.F32, [2, 3, 4]), build.input("axes", DType.I64, [1])
    build.output("a", build.op("ReduceSum", x, build.const(np.array([-1, 0]))))
    build.output("b", build.op("ReduceSum", x))
    build.output("c", build.op("ReduceSum", x, noop_with_empty_axes=1))
    build.output("d", build.op("ReduceSum", x, given))
    graph = build.finish()
    assert [reduced_axes(graph, graph[index], 3) for index in range(1, 5)] == [
        (0, 2),
        (0, 1, 2),
        (),
        None,
    ]


def test_values_before_casts() -> None:
    build = GraphBuilder()
    x = build.op("Cast", build.input("x", DType.I32, [2]), to=int(DType.F32))
    build.output("y", build.op("Cast", build.op("Cast", x, to=int(DType.F16)), to=int(DType.F64)))
    graph = build.finish()
    ref, casts = without_casts(graph, graph[3].ref())
    assert ref == graph[1].ref()
    assert [cast.id for cast in casts] == [3, 2]


def test_polynomials() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2])
    two = build.const(np.float32(2))
    square = build.op("Mul", x, x)
    cubic = build.op(
        "Sub",
        build.op("Pow", build.op("Add", x, two), build.const(np.float32(3))),
        build.op("Neg", square),
    )
    build.output("y", build.op("Div", cubic, two))
    build.output("z", build.op("Mul", build.op("Mul", square, square), two))
    graph = build.finish()
    base = graph.inputs[0].ref()
    nodes: list[Node] = [node for node in graph if node.op == "Div"]
    found = polynomial(graph, nodes[0].ref(), base)
    assert found is not None
    assert dict(found.terms) == {0: 4.0, 1: 6.0, 2: 3.5, 3: 0.5}
    assert sorted(node.op for node in found.nodes) == ["Add", "Div", "Mul", "Neg", "Pow", "Sub"]
    last = max(graph, key=lambda node: node.id if node.op == "Mul" else 0)
    assert polynomial(graph, last.ref(), base) is None
