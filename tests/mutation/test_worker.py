"""What a mutant comes to, where compiled code may do less than the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.mutation.worker import Candidate, outcome
from whence.runtime.engine import Engine


def only_the_shape(op: str, indices: list[list[int]] | list[int]) -> Candidate:
    """A model that asks for the shape of a value, and not for the value."""
    array = np.array(indices, np.int64)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i"], ["y"]), helper.make_node("Shape", ["y"], ["shape"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [helper.make_tensor("i", TensorProto.INT64, array.shape, array.reshape(-1))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Candidate(0, op, "onnx", model.SerializeToString(), [np.ones((2, 2), np.float32)], [])


@pytest.mark.parametrize(
    ("op", "operand"), [("GatherElements", [[1 << 31, 0]]), ("Tile", [1 << 40, 2])]
)
def test_what_nobody_needs_is_not_computed(op: str, operand: list[int]) -> None:
    assert outcome(only_the_shape(op, operand), Engine(threads=1)) == ("ran", "")
