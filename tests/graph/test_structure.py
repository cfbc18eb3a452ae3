"""Equal texts mean equal computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.making import F32X4, chain, diamond, fresh, with_branches
from tests.graph.structure import structure
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder
from whence.types import DType


def with_const(value: np.ndarray) -> Graph:
    build = GraphBuilder()
    build.output("y", build.op("Add", build.input("x", DType.F32, [1]), build.const(value)))
    return build.finish()


def with_attr(**attrs: Any) -> Graph:
    graph = Graph()
    x = graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name="x"))
    op = graph.append(Node(graph.new_id(), "vendor::Op", (x.ref(),), (F32X4,), attrs))
    graph.append(Node(graph.new_id(), "Output", (op.ref(),), (), name="y"))
    return graph


def test_ids_names_and_order_do_not_matter() -> None:
    first = diamond()
    second = diamond()
    second[1].name = "something else"
    second.move_before(second[3], second[2])
    assert structure(first) == structure(second)


def test_what_outputs_do_not_need_does_not_matter() -> None:
    first, second = chain("Relu"), chain("Relu")
    second.append(fresh(second, "Neg", second[1]))
    assert structure(first) == structure(second)


def test_operators_and_connections_matter() -> None:
    texts = {
        structure(graph)
        for graph in (
            chain("Relu"),
            chain("Neg"),
            chain("Relu", "Neg"),
            chain("Neg", "Relu"),
            diamond(),
        )
    }
    assert len(texts) == 5


def test_names_of_the_signature_matter() -> None:
    other = chain("Relu")
    other.inputs[0].name = "image"
    assert structure(other) != structure(chain("Relu"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.ones(1, np.float32), np.nextafter(np.ones(1, np.float32), np.float32(2))),
        (np.zeros(1, np.float32), -np.zeros(1, np.float32)),
        (np.arange(9, dtype=np.float32), np.arange(9, dtype=np.float32)[::-1]),
        (np.arange(9, dtype=np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)),
    ],
)
def test_values_of_constants_matter(left: np.ndarray, right: np.ndarray) -> None:
    assert structure(with_const(left)) != structure(with_const(right))
    assert structure(with_const(left)) == structure(with_const(left.copy()))
    if left.shape == right.shape:
        assert structure(with_const(left), values=False) == structure(
            with_const(right), values=False
        )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1.0, 1.0000001),
        (1, 1.0),
        ("1", 1),
        ((1,), (1, 1)),
        (np.arange(20), np.arange(20)[::-1]),
        (np.arange(2), np.arange(2.0)),
        (b"a", "a"),
    ],
)
def test_attributes_matter_to_the_last_digit(left: Any, right: Any) -> None:
    assert structure(with_attr(a=left)) != structure(with_attr(a=right))
    assert structure(with_attr(a=left)) == structure(with_attr(a=left))


def test_bodies_matter_but_not_what_they_call_their_inputs() -> None:
    first, second = with_branches(), with_branches()
    second[1].bodies["then_branch"].inputs[0].name = "renamed"
    second[1].bodies["then_branch"].outputs[0].name = "renamed too"
    assert structure(first) == structure(second)
    assert structure(first) != structure(with_branches(("Exp",)))
    assert structure(first) != structure(with_branches(("Neg",), ("Relu",)))


def test_every_node_is_one_line() -> None:
    graph = with_branches()
    graph.inputs[1].name = "evil\nname"
    assert len(structure(graph).splitlines()) == 1 + 5


def test_a_chain_deeper_than_pythons_stack() -> None:
    graph = Graph()
    node = graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name="x"))
    for _ in range(20_000):
        node = graph.append(Node(graph.new_id(), "Relu", (node.ref(),), (F32X4,)))
    graph.append(Node(graph.new_id(), "Output", (node.ref(),), (), name="y"))
    assert len(structure(graph).splitlines()) == 20_003
