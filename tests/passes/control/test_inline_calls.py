"""Calls become the operators that they hold."""

from __future__ import annotations

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.graph.state import BOUNDARY
from whence.passes.control.inline_calls import InlineCalls
from whence.passes.manager import CheckLevel, run_passes
from whence.types import DType, TensorType

KIND = TensorType(DType.F32, (4,))


def call(graph: Graph, x: Ref, depth: int) -> Ref:
    """A Call of a Call ... of Neg, so many deep."""
    if depth == 0:
        return graph.append(Node(graph.new_id(), "Neg", [x], [KIND])).ref()
    body = Graph(f"{depth} deep", graph.ledger, graph.inference)
    entry = body.append(Node(body.new_id(), "Input", (), [KIND], name="x"))
    body.append(Node(body.new_id(), "Output", [call(body, entry.ref(), depth - 1)], name="y"))
    return graph.append(Node(graph.new_id(), "Call", [x], [KIND], bodies={"body": body})).ref()


def test_calls_in_calls_are_inlined() -> None:
    graph = Graph()
    x = graph.append(Node(graph.new_id(), "Input", (), [KIND], name="x"))
    graph.append(Node(graph.new_id(), "Output", [call(graph, x.ref(), 3)], name="y"))
    data = np.arange(4, dtype=np.float32)
    (report,) = run_passes(graph, [InlineCalls()], check=CheckLevel.INVARIANTS)
    assert report.changes == 3
    assert [node.op for node in graph if node.op not in BOUNDARY] == ["Neg"]
    np.testing.assert_array_equal(graph.run({"x": data})[0], -data)
