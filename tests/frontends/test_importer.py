"""Operators of a file becoming nodes, as all readers have it."""

from __future__ import annotations

import numpy as np
import pytest

from whence.errors import ModelError, UnsupportedError
from whence.frontends.importer import ConstantPool, NodeImporter, OperatorOrigin, located
from whence.frontends.origin_metadata import HistoryEntry
from whence.graph import Graph, Node, Ref, check_graph
from whence.ops.types.inference import Inference
from whence.provenance import EdgeKind, Ledger, SourceOp
from whence.types import DType, TensorType


def started(*operators: tuple[str, str]) -> tuple[Graph, Ref]:
    """A graph of source operators that are still to be read, and its input."""
    ledger = Ledger()
    for number, (name, op) in enumerate(operators, 1):
        ledger.add_source(SourceOp(number, name, op))
    graph = Graph("graph", ledger, Inference())
    x = graph.append(Node(graph.new_id(), "Input", (), (TensorType(DType.F32, (2, 3)),), name="x"))
    return graph, x.ref()


def importer(graph: Graph, number: int, name: str, op: str) -> NodeImporter:
    origin = OperatorOrigin(name, number, frozenset((number,)))
    return NodeImporter(graph, ConstantPool(graph), origin, op)


def test_one_node_bears_the_number_and_the_others_are_lowered_from_it() -> None:
    graph, x = started(("dense", "FULLY_CONNECTED"))
    call = importer(graph, 1, "dense", "FULLY_CONNECTED")
    product = call.emit("MatMul", [x, call.const(np.ones((3, 4), np.float32))])
    result = call.emit("Relu", [product])
    assert call.type_of(result) == TensorType(DType.F32, (2, 4))
    assert call.makes(result)
    keeper = call.keep([result], 1)
    assert keeper is not None
    call.enter(keeper)
    graph.append(Node(graph.new_id(), "Output", (keeper.ref(),), (), name="y"))
    check_graph(graph)
    assert [(node.op, node.name, node.origin) for node in graph if node.inputs][:2] == [
        ("MatMul", "dense", frozenset((1,))),
        ("Relu", "dense", frozenset((1,))),
    ]
    assert keeper.id == 1
    (edge,) = graph.ledger.edges
    assert (edge.child, edge.parent, edge.kind) == (product.node, 1, EdgeKind.LOWER)
    assert edge.rule == "FULLY_CONNECTED in canonical operators"


def test_what_an_earlier_run_wrote_continues_its_history() -> None:
    graph, x = started(("conv", "Conv"), ("bn", "BatchNormalization"))
    origin = OperatorOrigin("conv", 0, frozenset((1, 2)), folded=frozenset((2,)))
    history = {1: HistoryEntry(EdgeKind.FUSE, "fuse_activations", "a rule")}
    call = NodeImporter(graph, ConstantPool(graph), origin, "Relu", history)
    call.enter(call.keep([call.emit("Relu", [x])], 0))
    assert [(edge.parent, edge.kind, edge.pass_name) for edge in graph.ledger.edges] == [
        (1, EdgeKind.FUSE, "fuse_activations"),
        (2, EdgeKind.FOLD, "load"),
    ]


def test_small_unnamed_constants_are_shared() -> None:
    graph, _ = started()
    constants = ConstantPool(graph)
    first = constants.add(np.array([1, 2]))
    assert constants.add(np.array([1, 2])) == first
    assert constants.add(np.array([1, 2], np.int32)) != first
    assert constants.add(np.array([1, 2]), "named") != first
    large = np.zeros(1000)
    assert constants.add(large) != constants.add(large)


def test_values_are_known_where_they_are_constants() -> None:
    graph, x = started(("a", "A"))
    call = importer(graph, 1, "a", "A")
    shape = call.const(np.array([6]))
    assert call.type_of(call.emit("Reshape", [x, shape])) == TensorType(DType.F32, (6,))
    assert call.value_of(x) is None
    assert call.cast(x, DType.F32) == x
    halves = call.emit("Split", [x], {"axis": 0, "num_outputs": 2}, outputs=2)
    assert [call.type_of(half) for half in halves] == [TensorType(DType.F32, (1, 3))] * 2


def test_errors_name_the_operator() -> None:
    graph, _ = started(("conv1", "CONV_2D"))
    call = importer(graph, 1, "conv1", "CONV_2D")
    with pytest.raises(ModelError, match=r"^operator 'conv1' \(CONV_2D\): a stride of 0$"):
        call.fail("a stride of 0")
    with pytest.raises(UnsupportedError, match=r"^operator 'conv1' \(CONV_2D\): a stride of 0$"):
        call.unsupported("a stride of 0")
    error = located(ModelError("a stride of 0"), str(call))
    assert str(error) == "operator 'conv1' (CONV_2D): a stride of 0"
    assert located(error, "operator 'other' (X)") is error
    assert isinstance(located(UnsupportedError("no"), str(call)), UnsupportedError)
