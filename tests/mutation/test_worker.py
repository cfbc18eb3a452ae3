"""What a mutant comes to, where compiled code may do less than the interpreter."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.mutation.rounding import (
    all_elements_occur,
    compared,
    exceeds_rounding,
    without_subnormals,
)
from tests.mutation.worker import Candidate, outcome, run_again
from whence.errors import WhenceError
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


def test_a_shape_with_the_sizes_of_the_run_is_not_computed() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"]), helper.make_node("Size", ["y"], ["n"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["m"]),
        ],
        [helper.make_tensor_value_info("n", TensorProto.INT64, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    inputs = [np.ones((2, 2), np.float32), np.array([0, -9, 1])]
    it = Candidate(0, "Gather", "onnx", model.SerializeToString(), inputs, [])
    assert outcome(it, Engine(threads=1)) == ("ran", "")


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
    assert exceeds_rounding(partial(run_again, it), [expected], [found]) == defect


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
    (flushed,) = without_subnormals(partial(run_again, it))
    assert exact.shape == (2, 4)
    np.testing.assert_array_equal(flushed, [[0, 1, 1], [0, 0, 1]])
    assert outcome(it, Engine(threads=1)) == ("ran", "")
    assert compared([flushed], [flushed[:, 1:]])[0] == "different"


def test_the_largest_of_nothing_that_nobody_reads() -> None:
    """A size that only the run knows is one that its operator may never see."""
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["places"]),
            helper.make_node("ArgMax", ["places"], ["largest"], axis=1),
            helper.make_node("Shape", ["largest"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    it = Candidate(0, "zeros", "onnx", model.SerializeToString(), [np.zeros(3, np.float32)], [])
    with pytest.raises(WhenceError, match="empty"):
        it.read().run(it.inputs)
    assert outcome(it, Engine(threads=1)) == ("ran", "")


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
    assert exceeds_rounding(partial(run_again, it), [np.array(0)], [np.array(found)]) == defect


def codes_of(x: list[float], scale: float) -> tuple[Candidate, np.ndarray]:
    """Numbers as codes of 8 bits, and as other integers behind them, and those of the
    interpreter.
    """
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale"], ["codes"]),
            helper.make_node("Cast", ["codes"], ["wide"], to=TensorProto.INT64),
            helper.make_node("Neg", ["wide"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(x)])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [len(x)])],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [scale])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    it = Candidate(0, "codes", "onnx", model.SerializeToString(), [np.array(x, np.float32)], [])
    (right,) = it.read().run(it.inputs)
    return it, np.asarray(right)


def test_each_number_between_two_codes_may_be_either() -> None:
    it, right = codes_of([0.25, 0.75, 1.25, 1.75, 0.8], 0.5)
    again = partial(run_again, it)
    np.testing.assert_array_equal(right, [0, -2, -2, -4, -2])
    assert all_elements_occur(again, [right], [np.array([-1, -2, -3, -3, -2])])
    # 1.6 steps are two, and none of the others is any third code.
    assert not all_elements_occur(again, [right], [np.array([0, -2, -2, -4, -1])])
    assert not all_elements_occur(again, [right], [np.array([1, -2, -2, -4, -2])])
    assert not all_elements_occur(again, [right], [right[:4]])


def test_whole_numbers_are_exact() -> None:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    it = Candidate(0, "cast", "onnx", model.SerializeToString(), [np.array([3, 7], np.float32)], [])
    right, wrong = np.array([3, 7], np.int32), np.array([2, 7], np.int32)
    assert not all_elements_occur(partial(run_again, it), [right], [wrong])


@pytest.mark.parametrize(("error", "defect"), [(5e-8, False), (1e-4, True)])
def test_integers_that_a_sum_of_deviations_begins_with(error: float, defect: bool) -> None:
    """No input has a last place, but the numbers that are made of them have."""
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "scale"], ["real"]),
            helper.make_node("ReduceMean", ["real"], ["mean"], keepdims=1),
            helper.make_node("Sub", ["real", "mean"], ["deviation"]),
            helper.make_node("ReduceMean", ["deviation"], ["y"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [27])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.random.default_rng(0).integers(-20, 20, 27).astype(np.int8)
    it = Candidate(0, "mean", "onnx", model.SerializeToString(), [x], [])
    (right,) = it.read().run([x])
    found = np.asarray(right + np.float32(error))
    assert exceeds_rounding(partial(run_again, it), [np.asarray(right)], [found]) == defect
