from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call, OpClass, Pattern
from whence.ops.registry import evaluate
from whence.ops.tensor.reduce import OPS, accumulate

REDUCTIONS = [op.name for op in OPS if op.name.startswith("Reduce")]


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]], ids=str)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_as_in_onnxruntime(
    op: str, axes: list[int] | None, keepdims: int, rng: np.random.Generator
) -> None:
    x = np.abs(rng.standard_normal((3, 4, 5))).astype(np.float32)
    given_axes = None if axes is None else np.array(axes, np.int64)
    (expected,) = onnxruntime_outputs(op, {"keepdims": keepdims}, [x, given_axes])
    assert_close(run(op, x, given_axes, keepdims=keepdims), expected)


@pytest.mark.parametrize(
    "op",
    [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceSumSquare",
    ],
)
def test_whole_numbers_as_in_onnxruntime(op: str, rng: np.random.Generator) -> None:
    x = rng.integers(-4, 5, (3, 4)).astype(np.int32)
    (expected,) = onnxruntime_outputs(op, {}, [x, np.array([1])])
    assert_close(run(op, x, np.array([1])), expected)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_narrow_floats_add_up_in_float32(op: str, rng: np.random.Generator) -> None:
    x = (np.abs(rng.standard_normal(300)) + 0.99).clip(0.99, 1.01).astype(ml_dtypes.bfloat16)
    wide = run(op, x.astype(np.float32))
    np.testing.assert_array_equal(run(op, x), wide.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)
def test_of_nothing(op: str, expected: float) -> None:
    result = run(op, np.ones((2, 0, 3), np.float32), np.array([1]), keepdims=0)
    np.testing.assert_array_equal(result, np.full((2, 3), expected, np.float32))


def test_extremes_of_no_whole_numbers_are_the_ends_of_the_type() -> None:
    empty = np.ones((0,), np.int8)
    assert run("ReduceMax", empty).tolist() == [-128]
    assert run("ReduceMin", empty).tolist() == [127]
    assert run("ReduceMax", np.array([[True, False], [False, False]]), np.array([1])).tolist() == [
        [True],
        [False],
    ]


def test_no_axes_means_all_or_none() -> None:
    x = np.array([[3.0, -4.0]], np.float32)
    assert run("ReduceL2", x, np.array([], np.int64)).tolist() == [[5.0]]
    assert run("ReduceL2", x, np.array([], np.int64), noop_with_empty_axes=1).tolist() == [
        [3.0, 4.0]
    ]


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([1000.0, 1000.0, -np.inf], np.float32)
    np.testing.assert_allclose(run("ReduceLogSumExp", x, keepdims=0), 1000 + np.log(2), rtol=1e-6)


def test_axis_must_exist_and_be_named_once() -> None:
    with pytest.raises(ModelError, match="ReduceSum: axis 2 does not exist in a tensor of rank 2"):
        run("ReduceSum", np.ones((2, 3)), np.array([2]))
    with pytest.raises(ModelError, match=r"ReduceSum: axes .* name an axis twice"):
        run("ReduceSum", np.ones((2, 3)), np.array([1, -1]))


def test_position_of_the_extreme() -> None:
    x = np.array([[2, 5, 5, 1]], np.int32)
    assert run("ArgMax", x, axis=1).tolist() == [[1]]
    assert run("ArgMax", x, axis=1, select_last_index=1, keepdims=0).tolist() == [2]
    assert run("ArgMin", x, axis=-1, keepdims=0).tolist() == [3]
    assert run("ArgMax", x, axis=1).dtype == np.int64


@given(st.lists(st.integers(-9, 9), max_size=8), st.booleans(), st.booleans())
def test_running_sum(values: list[int], exclusive: bool, reverse: bool) -> None:
    x = np.array(values, np.int32)
    result = accumulate(x, 0, np.add, exclusive=exclusive, reverse=reverse)
    ordered = values[::-1] if reverse else values
    sums = [sum(ordered[: at + (0 if exclusive else 1)]) for at in range(len(values))]
    assert result.dtype == np.int32
    assert result.tolist() == (sums[::-1] if reverse else sums)


def test_running_product_as_in_the_standard() -> None:
    x, axis = np.array([1.0, 2.0, 3.0], np.float32), np.array(0)
    assert run("CumProd", x, axis).tolist() == [1, 2, 6]
    assert run("CumProd", x, axis, exclusive=1).tolist() == [1, 1, 2]
    assert run("CumProd", x, axis, reverse=1).tolist() == [6, 6, 3]
    assert run("CumProd", x, axis, exclusive=1, reverse=1).tolist() == [6, 3, 1]


def test_classes() -> None:
    for definition in OPS:
        if not definition.name.startswith("Cum"):
            assert definition.pattern is Pattern.COMM_REDUCE
            assert definition.classes is OpClass.REDUCE
