from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ModelError
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.types.inference import infer
from whence.types import DType, TensorType


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


@given(st.integers(-6, 6), st.integers(-6, 6))
def test_part_of_a_shape(start: int, end: int) -> None:
    x = np.zeros((2, 3, 4))
    result = run("Shape", x, start=start, end=end)
    assert result.tolist() == [2, 3, 4][start:end]
    query = TypeQuery(
        "Shape", {"start": start, "end": end}, (TensorType(DType.F64, ("a", None, 4)),), (None,), 1
    )
    assert infer(query) == (TensorType(DType.I64, (result.size,)),)


def test_shape_and_size_are_int64() -> None:
    assert run("Shape", np.array(["x"], object)).dtype == np.int64
    assert run("Size", np.zeros((2, 3))).tolist() == 6
    assert run("Size", np.zeros((2, 3))).dtype == np.int64


@pytest.mark.parametrize(
    ("attrs", "dtype", "value"),
    [
        ({"value": np.ones((2, 1), np.float16)}, np.float16, [[1], [1]]),
        ({"value_float": 1.5}, np.float32, 1.5),
        ({"value_floats": (1.5, 2.0)}, np.float32, [1.5, 2.0]),
        ({"value_int": 7}, np.int64, 7),
        ({"value_ints": ()}, np.int64, []),
        ({"value_string": "a"}, np.object_, "a"),
        ({"value_strings": ("a", "b")}, np.object_, ["a", "b"]),
    ],
)
def test_constants(attrs: dict[str, Any], dtype: type, value: Any) -> None:
    result = run("Constant", **attrs)
    assert result.dtype == dtype
    assert result.tolist() == value
    assert infer(TypeQuery("Constant", attrs, (), (), 1)) == (TensorType.of(result),)


def test_constant_without_value() -> None:
    with pytest.raises(ModelError, match="Constant: no value"):
        run("Constant")


def test_filled_shapes() -> None:
    assert run("ConstantOfShape", np.array([2, 0])).shape == (2, 0)
    assert run("ConstantOfShape", np.array([], np.int64)).shape == ()
    assert run("ConstantOfShape", np.array([2]), value=np.array([7], np.int8)).tolist() == [7, 7]
    assert run("ConstantOfShape", np.array([2])).dtype == np.float32
    with pytest.raises(ModelError, match=r"ConstantOfShape: \[-1\] is not a shape"):
        run("ConstantOfShape", np.array([-1]))


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_whole_range(start: int, limit: int, delta: int) -> None:
    bounds = tuple(np.array(value, np.int32) for value in (start, limit, delta))
    result = run("Range", *bounds)
    assert result.tolist() == list(range(start, limit, delta))
    assert result.dtype == np.int32
    types = tuple(TensorType(DType.I32, ()) for _ in bounds)
    assert infer(TypeQuery("Range", {}, types, bounds, 1)) == (
        TensorType(DType.I32, (result.size,)),
    )


@pytest.mark.parametrize(
    "bounds", [(0, np.inf, 1), (0, np.nan, 1), (-np.inf, 0, 2), (0, 9, np.nan)]
)
def test_a_range_without_end(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(ModelError, match="no finite number of elements"):
        run("Range", *(np.array(value, np.float32) for value in bounds))


def test_real_range() -> None:
    bounds = [np.array(value, np.float32) for value in (1, 2, 0.25)]
    assert run("Range", *bounds).tolist() == [1, 1.25, 1.5, 1.75]
    assert (
        run("Range", *(bound.astype(ml_dtypes.bfloat16) for bound in bounds)).dtype
        == ml_dtypes.bfloat16
    )
    with pytest.raises(ModelError, match="Range: delta must not be 0"):
        run("Range", *(np.array(value) for value in (1, 2, 0)))


def test_identity_matrix() -> None:
    assert run("EyeLike", np.zeros((2, 3)), k=1, dtype=6).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert run("EyeLike", np.zeros((2, 3), np.float16)).dtype == np.float16
