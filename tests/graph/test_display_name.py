"""Messages speak of the operators of the user's file."""

from __future__ import annotations

import pytest

from whence.graph import Graph, Node, Rewriter
from whence.graph.builder import GraphBuilder
from whence.graph.display_name import display_name
from whence.types import DType


def _graph(op: str = "Relu") -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.output("y", build.op(op, build.op("Neg", x, name="first"), name="second"))
    return build.finish()


def test_an_operator_as_it_was_read() -> None:
    assert [display_name(node) for node in _graph() if node.op in ("Neg", "Relu")] == [
        "'first' (Neg)",
        "'second' (Relu)",
    ]


def test_what_a_pass_made_of_several_goes_by_the_one_it_is_named_after() -> None:
    graph = _graph()
    first, second = (node for node in graph if node.op in ("Neg", "Relu"))
    edit = Rewriter(graph, "test").edit(first, second, rule="both are one")
    both = edit.node("Abs", first.inputs)
    edit.replace(second, both)
    edit.apply()
    assert both.origin == {1, 2}
    assert display_name(both) == "'second' (Relu)"


def test_a_node_without_an_operator_of_the_file() -> None:
    assert display_name(Node(1, "Const", name="weights")) == "'weights' (Const)"


@pytest.mark.parametrize("op", ["Re\nlu", "Re\x1blu"])
def test_a_message_stays_one_line(op: str) -> None:
    words = display_name(Node(1, op, name="a\nb"))
    assert words.isprintable()
