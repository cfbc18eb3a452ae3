"""Conditions and loops in files that whence writes: LiteRT gets the same results from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontends.tflite.making import Model, compare, read, run_litert
from tests.frontends.tflite.runtimes import convert, operators
from whence.api import load, save
from whence.frontends.tflite.records import read_records
from whence.graph import print_graph

Case = tuple[Model, list[np.ndarray]]


def counting() -> Case:
    """While i < 10: i += 3, x *= 2."""
    model = Model()
    condition, asks = model.subgraph("condition")
    body, iterations = model.subgraph("body")
    i, _ = asks.input((), np.int32), asks.input((2,))
    asks.output(asks.op("LESS", [i, asks.const(10, np.int32)], (), np.bool_))
    i, x = iterations.input((), np.int32), iterations.input((2,))
    iterations.output(
        iterations.op("ADD", [i, iterations.const(3, np.int32)], (), np.int32),
        iterations.op("MUL", [x, iterations.const([2.0, 3.0])], (2,)),
    )
    state = [model.input((), np.int32), model.input((2,))]
    made = [model.tensor((), np.int32), model.tensor((2,))]
    model.op("WHILE", state, outputs=made, cond_subgraph_index=condition, body_subgraph_index=body)
    model.output(*made)
    return model, [np.array(1, np.int32), np.array([0.5, -2.0], np.float32)]


def choosing() -> Case:
    model = Model()
    then, first = model.subgraph("then")
    other, second = model.subgraph("else")
    for graph, op in ((first, "ADD"), (second, "MUL")):
        x = graph.input((3,))
        graph.output(graph.op(op, [x, graph.const([1.0, 2.0, 3.0])], (3,)))
    made = model.op(
        "IF",
        [model.input((1,), np.bool_), model.input((3,))],
        (3,),
        then_subgraph_index=then,
        else_subgraph_index=other,
    )
    model.output(made)
    return model, [np.array([False]), np.array([0.5, -2.0, 3.0], np.float32)]


@pytest.mark.parametrize("case", [counting, choosing])
def test_graphs_that_operators_hold(case: Callable[[], Case], tmp_path: Path) -> None:
    model, feeds = case()
    written = convert(model, tmp_path / "out.tflite")
    assert sorted(operators(written)) == sorted(operators(read_records(model.bytes())))
    compare(run_litert((tmp_path / "out.tflite").read_bytes(), feeds), run_litert(model, feeds))


def test_a_loop_that_counts_its_iterations(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c_out"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "f"], ["x_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x_out", TensorProto.FLOAT, [2]),
        ],
    )
    limit = helper.make_tensor("limit", TensorProto.INT64, [], [5])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["limit", "", "x0"], ["y"], body=inner)],
        "main",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [limit],
    )
    path = tmp_path / "loop.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )
    save(load(path), tmp_path / "loop.tflite")
    (made,) = run_litert(
        (tmp_path / "loop.tflite").read_bytes(), [np.array([1.0, 2.0], np.float32)]
    )
    np.testing.assert_allclose(made, [11, 12])


def test_writing_leaves_the_graph_alone(tmp_path: Path) -> None:
    graph = read(counting()[0])
    before, ids = print_graph(graph), graph.ledger.new_id()
    save(graph, tmp_path / "a.tflite")
    save(graph, tmp_path / "b.circle")
    assert print_graph(graph) == before
    assert graph.ledger.new_id() == ids + 1
