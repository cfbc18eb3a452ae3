"""Graphs written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.making import X
from whence.errors import GraphError, ModelError, WhenceError
from whence.graph import Check, check_graph
from whence.graph.builder import GraphBuilder
from whence.types import DType, TensorType


def test_operators_are_numbered_as_written() -> None:
    build = GraphBuilder("tiny")
    x = build.input("x", DType.F32, [4])
    y = build.op("Relu", build.op("Add", x, build.const(np.ones(4, np.float32)), name="sum"))
    build.output("y", y)
    graph = build.finish()
    assert [(source.id, source.name, source.op) for source in graph.ledger.sources] == [
        (1, "sum", "Add"),
        (2, "Relu_2", "Relu"),
    ]
    assert [node.op for node in graph] == ["Const", "Input", "Add", "Relu", "Output"]
    assert graph.run([X])[0].tolist() == [0, 0.5, 2, 4]
    check_graph(graph, Check.ALL)


def test_types_are_inferred() -> None:
    build = GraphBuilder()
    parts = build.op(
        "Split", build.input("x", DType.F32, ["n", 6]), n_outputs=2, axis=1, num_outputs=2
    )
    build.output("y", build.op("MatMul", parts[1], build.const(np.ones((3, 5), np.float32))))
    graph = build.finish()
    assert graph[1].outputs == (TensorType(DType.F32, ("n", 3)),) * 2
    assert graph[2].type == TensorType(DType.F32, ("n", 5))


def test_absent_inputs() -> None:
    build = GraphBuilder()
    build.output(
        "y", build.op("Clip", build.input("x", DType.F32, [4]), None, build.const(np.float32(1)))
    )
    assert build.finish().run([X])[0].tolist() == [-2, -0.5, 1, 1]


def test_values_of_another_builder_are_refused() -> None:
    other = GraphBuilder()
    foreign = other.input("x", DType.F32, [4])
    build = GraphBuilder()
    build.input("x", DType.F32, [4])
    with pytest.raises(GraphError, match="reads a value of another builder"):
        build.op("Relu", foreign)


def test_what_does_not_fit_is_refused() -> None:
    build = GraphBuilder()
    build.op("MatMul", build.input("x", DType.F32, [4]), build.const(np.ones((3, 5), np.float32)))
    with pytest.raises(WhenceError):
        build.finish()


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "found"),
    [
        ("Add", 1, {}, "has 1 input; it takes 2"),
        ("Add", 3, {}, "has 3 inputs; it takes 2"),
        ("Relu", 0, {}, "has 0 inputs; it takes 1"),
        ("Conv", 1, {}, "has 1 input; it takes 2 to 3"),
        ("FusedConv", 1, {}, "has 1 input; it takes 2 to 4"),
        ("LookUp", 1, {}, "has 1 input; it takes 2"),
        ("Neg", 2, {}, "has 2 inputs; it takes 1"),
        ("Relu", 1, {"nonsense": 3}, "has no attribute 'nonsense'; it has none"),
        ("Swish", 1, {"alpa": 1.0}, "has no attribute 'alpa'; it has alpha"),
        ("Concat", 2, {}, "lacks its attribute 'axis'"),
        ("ToBlocked", 1, {"blocks": 8}, "has no attribute 'blocks'; it has block"),
    ],
)
def test_an_operator_that_is_malformed(
    op: str, operands: int, attrs: dict[str, Any], found: str
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    build.output("y", build.op(op, *[x] * operands, name="mine", **attrs))
    with pytest.raises(ModelError, match=rf"^operator 'mine' \({op}\) {found}$"):
        build.finish()


@pytest.mark.parametrize(
    ("op", "attrs", "found"),
    [
        ("Flatten", {"axis": "one"}, "'axis' is of the wrong kind: it takes an integer"),
        ("MaxPool", {"kernel_shape": 2}, "it takes a list of integers"),
        ("ToBlocked", {"block": 2.5}, "'block' is of the wrong kind: it takes an integer"),
        ("Swish", {"alpha": "x"}, "'alpha' is of the wrong kind: it takes a number"),
    ],
)
def test_the_kind_that_an_attribute_should_be_is_told(
    op: str, attrs: dict[str, Any], found: str
) -> None:
    build = GraphBuilder()
    build.op(op, build.input("x", DType.F32, [1, 3, 4, 4]), attrs=attrs)
    with pytest.raises(ModelError, match=f"{found}$"):
        build.finish()


def test_an_operator_has_as_many_outputs_as_it_says() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    parts = build.op("Split", x, num_outputs=2, n_outputs=2)
    assert [parts[at].index for at in range(2)] == [0, 1]
    with pytest.raises(IndexError, match="no output 2"):
        parts[2]


def test_lists_are_attributes_too() -> None:
    build = GraphBuilder()
    found: Any = [2, 2]
    build.output(
        "y", build.op("MaxPool", build.input("x", DType.F32, [1, 3, 4, 4]), kernel_shape=found)
    )
    assert build.finish()[1].attrs == {"kernel_shape": (2, 2)}


def test_edges_of_the_graph_are_no_operators() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3])
    with pytest.raises(ModelError, match=r"^operator 'odd' \(Input\) is none: `input`, "):
        build.op("Input", x, name="odd")


def test_attributes_of_a_file_and_where_an_operator_stems_from() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    found: dict[str, int | float] = {"axis": 0}
    y = build.op("Softmax", x, attrs=found, name="s", module="head.softmax", line="net.py:12")
    build.output("y", y)
    graph = build.finish()
    assert graph[1].attrs == {"axis": 0}
    (source,) = graph.ledger.sources
    assert (source.module, source.line) == ("head.softmax", "net.py:12")
    build.op("Softmax", x, name="odd", attrs={"name": 1, "op": 2})
    with pytest.raises(ModelError, match=r"'odd' .*has no attribute 'name'; it has axis"):
        build.finish()


def test_the_type_of_an_operator_is_told_once() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.I32, [3])
    build.output("y", build.op("Sigmoid", x, name="gate"))
    with pytest.raises(ModelError, match=r"^operator 'gate' \(Sigmoid\): input 0 is i32\[3\], it"):
        build.finish()
