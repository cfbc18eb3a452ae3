"""What a mutant comes to, where compiled code may do less than the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.mutation.worker import Candidate, compared, exceeds_rounding, outcome, without_subnormals
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


def sum_of_deviations(scale: float) -> tuple[Candidate, list[np.ndarray]]:
    """Deviations from the mean, added up: nothing but rounding errors. And a result that is off."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [0, 1])
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0, 1], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["deviation"]),
            helper.make_node("ReduceSum", ["deviation", "axes"], ["y"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [axes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
    it = Candidate(0, "sum", "onnx", model.SerializeToString(), [x], [])
    (right,) = it.read().run([x])
    return it, [np.asarray(right), np.asarray(right + np.float32(scale))]


@pytest.mark.parametrize(("scale", "defect"), [(1e-6, False), (1e-3, True)])
def test_a_sum_that_cancels_is_compared_by_its_rounding(scale: float, defect: bool) -> None:
    it, (expected, found) = sum_of_deviations(scale)
    assert exceeds_rounding(it, [expected], [found]) == defect


def probabilities_that_are_not_zero() -> Candidate:
    """The second of each row is subnormal, which kernels may have as zero."""
    graph = helper.make_graph(
        [
            helper.make_node("Softmax", ["x"], ["p"], axis=-1),
            helper.make_node("NonZero", ["p"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.array([[90, -9], [1, 2]], np.float32)
    return Candidate(0, "softmax", "onnx", model.SerializeToString(), [x], [])


def test_a_subnormal_number_may_be_zero() -> None:
    it = probabilities_that_are_not_zero()
    (exact,) = it.read().run(it.inputs)
    (flushed,) = without_subnormals(it)
    assert exact.shape == (2, 4)
    np.testing.assert_array_equal(flushed, [[0, 1, 1], [0, 0, 1]])
    assert outcome(it, Engine(threads=1)) == ("ran", "")
    assert compared([flushed], [flushed[:, 1:]])[0] == "different"


@pytest.mark.parametrize(("found", "defect"), [(1, False), (2, True)])
def test_of_a_tie_any_index_will_do(found: int, defect: bool) -> None:
    graph = helper.make_graph(
        [helper.make_node("ArgMax", ["x"], ["y"], axis=0, keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.array([1, 1, 0.5], np.float32)
    it = Candidate(0, "tie", "onnx", model.SerializeToString(), [x], [])
    assert exceeds_rounding(it, [np.array(0)], [np.array(found)]) == defect
