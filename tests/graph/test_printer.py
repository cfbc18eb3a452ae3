"""The printed graph is an interface: stable, one node a line, whatever a model calls its things."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.making import F32X4, X, chain, with_branches
from whence.graph import Graph, Node, Ref, Rewriter, print_graph, print_node
from whence.graph.builder import GraphBuilder
from whence.graph.escaping import escape
from whence.provenance import Reason
from whence.types import DType, TensorType

HOSTILE = [
    "two\nlines",
    "carriage\r\nreturn",
    "null\0byte",
    "\x1b[31mred",
    "*/ int main(){}",
    "]]> <x>",
    "tab\there",
    "\u2028line\u2029paragraph",
    "\\n",
    "\udc80",
    "\x85",
    "'\"",
]


def test_golden() -> None:
    build = GraphBuilder("golden")
    x = build.input("x", DType.F32, ["batch", 4])
    total = build.op(
        "Add",
        x,
        build.const(np.array([1, 0.1, -0.0, np.inf], np.float32), name="bias"),
        name="layer/add",
    )
    parts = build.op("Split", total, name="cut", n_outputs=2, axis=1, num_outputs=2)
    build.output("left", build.op("Cast", parts[0], name="narrow", to=int(DType.F16)))
    build.output("right", build.op("LeakyRelu", parts[1], name="leak", alpha=0.25))
    assert print_graph(build.finish()) == (
        "%5 f32[4] = Const() {1.0, 0.1, -0.0, inf}  # bias\n"
        "%6 f32[batch,4] = Input()  # x\n"
        "%1 f32[batch,4] = Add(%6, %5) from[1]  # layer/add\n"
        "%2 f32[batch,2], f32[batch,2] = Split(%1) axis=1 num_outputs=2 from[2]  # cut\n"
        "%3 f16[batch,2] = Cast(%2) to=f16 from[3]  # narrow\n"
        "%7 = Output(%3)  # left\n"
        "%4 f32[batch,2] = LeakyRelu(%2.1) alpha=0.25 from[4]  # leak\n"
        "%8 = Output(%4)  # right\n"
    )


def test_golden_nested() -> None:
    assert print_graph(with_branches()) == (
        "%9 bool[] = Input()  # c\n"
        "%10 f32[4] = Input()  # x\n"
        "%1 f32[4] = If(%9, %10) captures=1 from[1]  # If_1\n"
        "  then_branch:\n"
        "    %5 f32[4] = Input()  # captured\n"
        "    %2 f32[4] = Relu(%5) from[2]  # Relu_2\n"
        "    %6 = Output(%2)  # result\n"
        "  else_branch:\n"
        "    %7 f32[4] = Input()  # captured\n"
        "    %3 f32[4] = Neg(%7) from[3]  # Neg_3\n"
        "    %8 = Output(%3)  # result\n"
        "%4 f32[4] = Abs(%1) from[4]  # Abs_4\n"
        "%11 = Output(%4)  # y\n"
    )


def test_passes_are_named_in_order() -> None:
    graph = chain("Relu", "Neg", "Abs")
    first = Rewriter(graph, "first_pass").edit(graph[1], graph[2], rule="a")
    first.replace(graph[2], first.node("Exp", [graph.inputs[0].ref()], inherit=graph[2]))
    first.apply()
    second = Rewriter(graph, "second_pass").edit(graph[2], graph[3], rule="b")
    second.replace(graph[3], second.node("Log", [graph.inputs[0].ref()], inherit=graph[2]))
    second.apply()
    assert (
        print_node(graph[2])
        == f"%2 f32[4] = Log(%{graph.inputs[0].id}) from[1,2,3] by first_pass,second_pass  # node3"
    )


def test_constants_can_be_left_out() -> None:
    build = GraphBuilder()
    build.output("y", build.op("Add", build.input("x", DType.F32, [4]), build.const(X)))
    graph = build.finish()
    assert "Const" in print_graph(graph)
    assert "Const" not in print_graph(graph, consts=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([0.1, 1e-7, 3], np.float32), "{0.1, 1e-07, 3.0}"),
        (np.array([True, False]), "{True, False}"),
        (np.array(7, np.int64), "{7}"),
        (np.array(["a\nb", "c"], object), "{'a\\nb', 'c'}"),
        (np.zeros(0, np.float32), "{}"),
        (np.zeros(9, np.float32), "{...}"),
        (np.array([1.5], DType.BF16.numpy), "{1.5}"),
    ],
)
def test_values(value: np.ndarray, text: str) -> None:
    assert print_node(Node(1, "Const", (), (TensorType.of(value),), value=value)).endswith(
        f"= Const() {text}"
    )


@pytest.mark.parametrize(
    ("attr", "text"),
    [
        (1.5, "1.5"),
        ((1, 2, 3), "[1,2,3]"),
        ((0.5, 2.0), "[0.5,2.0]"),
        (float(np.float32(0.1)), "0.1f"),
        (0.1, "0.1"),
        ("linear", "linear"),
        ("two words", "'two words'"),
        ("text\n", "'text\\n'"),
        ("1", "'1'"),
        (("a", "1"), "[a,'1']"),
        (b"\x00b", "b'\\x00b'"),
        (np.array([[1, 2]]), "i64[1,2]{1, 2}"),
        ((), "[]"),
    ],
)
def test_attributes(attr: object, text: str) -> None:
    assert print_node(Node(1, "Op", (), (), {"a": attr})) == f"%1 = Op() a={text}"  # type: ignore[dict-item]


def test_element_types_are_shown_by_name_where_an_attribute_is_one() -> None:
    assert print_node(Node(1, "Cast", (), (), {"to": 10})) == "%1 = Cast() to=f16"
    assert print_node(Node(1, "Cast", (), (), {"to": 999})) == "%1 = Cast() to=999"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_on_one_line_wherever_it_comes_from(name: str) -> None:
    graph = Graph(name)
    graph.append(Node(graph.new_id(), "Input", (), (TensorType(DType.F32, (name, 4)),), name=name))
    graph.append(
        Node(
            graph.new_id(),
            f"vendor::{name}",
            (Ref(1),),
            (F32X4,),
            {name: name, "list": (name, name)},
            name=name,
        )
    )
    text = print_graph(graph)
    assert len(text.splitlines()) == 2
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert len(repr(graph[2]).splitlines()) == 1


@given(st.text(st.characters(codec=None)))
def test_escape_is_printable_and_reversible(text: str) -> None:
    escaped = escape(text)
    assert escaped.isprintable()
    assert ast.literal_eval("'" + escaped.replace("'", "\\'") + "'") == text


def test_a_node_outside_any_graph_prints() -> None:
    assert print_node(Node(7, "Clip", (Ref(3, 1), None), (F32X4,))) == "%7 f32[4] = Clip(%3.1, -)"


def test_printing_does_not_change_anything() -> None:
    graph = chain("Relu", "Identity")
    Rewriter(graph, "p").bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")
    assert print_graph(graph) == print_graph(graph)
