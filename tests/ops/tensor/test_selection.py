from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import onnxruntime_outputs
from whence.errors import ModelError
from whence.graph.change import contradict
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.tensor.selection import top_k
from whence.ops.types.inference import infer
from whence.types import DType, TensorType


def run(op: str, *inputs: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    results = evaluate(Call(op, attrs, inputs, n_outputs))
    return results[0] if n_outputs == 1 else results


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.booleans(), st.data())
def test_top_k_is_a_stable_sort(values: list[int], largest: bool, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    x = np.array(values, np.uint8)
    found, places = top_k(x, k, 0, largest)
    order = sorted(range(len(values)), key=lambda at: (-values[at] if largest else values[at], at))[
        :k
    ]
    assert places.tolist() == order
    assert found.tolist() == [values[at] for at in order]
    assert found.dtype == np.uint8
    assert places.dtype == np.int64


def test_top_k_along_an_axis(rng: np.random.Generator) -> None:
    x, k = rng.standard_normal((3, 6, 4)).astype(np.float32), np.array([2])
    for expected, actual in zip(
        onnxruntime_outputs("TopK", {"axis": 1}, [x, k], 2),
        run("TopK", x, k, n_outputs=2, axis=1),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)
    with pytest.raises(ModelError, match="TopK: k is 9, but axis 2 has 4 elements"):
        run("TopK", x, np.array([9]))


def test_places_that_are_not_zero() -> None:
    assert run("NonZero", np.array([[1, 0], [2, 3]])).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert run("NonZero", np.array(5)).shape == (0, 1)
    assert run("NonZero", np.zeros((2, 3))).shape == (2, 0)


def test_unique_in_order_of_appearance() -> None:
    values, first, inverse, counts = run(
        "Unique", np.array([2, 1, 1, 3, 4, 3]), n_outputs=4, sorted=0
    )
    assert values.tolist() == [2, 1, 3, 4]
    assert first.tolist() == [0, 1, 3, 4]
    assert inverse.tolist() == [0, 1, 1, 2, 3, 2]
    assert counts.tolist() == [1, 2, 2, 1]


def test_unique_rows_and_texts() -> None:
    x = np.array([[1, 0], [1, 0], [2, 3], [0, 9]])
    values, first, inverse, counts = run("Unique", x, n_outputs=4, axis=0)
    assert values.tolist() == [[0, 9], [1, 0], [2, 3]]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == (
        [3, 0, 2],
        [1, 1, 2, 0],
        [1, 2, 1],
    )
    texts = run("Unique", np.array(["b", "a", "b"], object))
    assert texts.dtype == np.object_
    assert texts.tolist() == ["a", "b"]


@pytest.mark.parametrize("attrs", [{}, {"axis": 0}, {"axis": -1}, {"axis": 1, "sorted": 0}])
def test_the_number_of_each_element_has_a_known_size(attrs: dict[str, Any]) -> None:
    x = np.array([[1, 0, 1], [1, 0, 1]])
    found = infer(TypeQuery("Unique", attrs, (TensorType.of(x),), (None,), 4))
    made = run("Unique", x, n_outputs=4, **attrs)
    assert not any(map(contradict, found, map(TensorType.of, made)))
    assert found[2] == TensorType.of(made[2])


def test_unique_along_no_axis_of_its_operand() -> None:
    with pytest.raises(ModelError, match="axis"):
        infer(TypeQuery("Unique", {"axis": 2}, (TensorType(DType.F32, (2, 3)),), (None,), 4))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices, depth, values = np.array([[0, -1], [7, 2]]), np.array(3), np.array([10, 20], np.int32)
    (expected,) = onnxruntime_outputs(
        "OneHot", {"axis": axis}, [indices, depth, values.astype(np.int64)], opset=11
    )
    actual = run("OneHot", indices, depth, values, axis=axis)
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize(
    ("most", "overlap", "floor"), [(5, 0.4, 0.3), (100, 0.1, None), (3, 0.9, 0.0), (0, 0.5, 0.0)]
)
def test_suppression_as_in_onnxruntime(
    most: int, overlap: float, floor: float | None, centred: int, rng: np.random.Generator
) -> None:
    boxes = rng.random((2, 60, 4)).astype(np.float32)
    scores = rng.random((2, 3, 60)).astype(np.float32)
    threshold = None if floor is None else np.array([floor], np.float32)
    inputs = [boxes, scores, np.array([most]), np.array([overlap], np.float32), threshold]
    (expected,) = onnxruntime_outputs("NonMaxSuppression", {"center_point_box": centred}, inputs)
    np.testing.assert_array_equal(
        run("NonMaxSuppression", *inputs, center_point_box=centred), expected
    )


def test_suppression_without_a_limit_keeps_nothing() -> None:
    result = run(
        "NonMaxSuppression", np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    )
    assert result.shape == (0, 3)
    assert result.dtype == np.int64


def test_a_negative_number_of_classes() -> None:
    with pytest.raises(ModelError, match="OneHot: the depth is -3"):
        run("OneHot", np.array([0, 1]), np.array(-3), np.array([0, 1], np.float32))
