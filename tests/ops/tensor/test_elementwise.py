from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call, Pattern
from whence.ops.registry import evaluate, lookup
from whence.ops.tensor import elementwise
from whence.ops.tensor.elementwise import clip, divide, raise_to, shift_bits

UNARY = (
    "Abs",
    "Neg",
    "Sign",
    "Ceil",
    "Floor",
    "Round",
    "Reciprocal",
    "Exp",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Erf",
)
POSITIVE = ("Sqrt", "Log")
UNIT = ("Asin", "Acos", "Atanh")
BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "Greater",
    "Less",
    "GreaterOrEqual",
    "LessOrEqual",
    "Equal",
)


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", UNARY + POSITIVE + UNIT)
def test_unary_as_in_onnxruntime(op: str, dtype: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 17)).astype(dtype)
    x = np.abs(x) if op in POSITIVE else np.tanh(x) if op in UNIT else x
    (expected,) = onnxruntime_outputs(op, {}, [x])
    assert_close(run(op, x), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", BINARY)
def test_binary_as_in_onnxruntime(op: str, dtype: Any, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 1, 5)).astype(dtype), rng.standard_normal((4, 1)).astype(dtype)
    (expected,) = onnxruntime_outputs(op, {}, [a, b])
    assert_close(run(op, a, b), expected)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.uint8])
def test_arithmetic_keeps_the_type(op: str, dtype: Any, rng: np.random.Generator) -> None:
    a, b = rng.integers(1, 99, (3, 4)).astype(dtype), rng.integers(1, 9, 4).astype(dtype)
    (expected,) = (
        onnxruntime_outputs(op, {}, [a, b])
        if not (dtype is np.uint8 and op not in {"Max", "Min"})
        else (run(op, a, b),)
    )
    assert_close(run(op, a, b), expected)
    assert run(op, a, b).dtype == dtype


@pytest.mark.parametrize("op", ["Exp", "Tan", "Sqrt", "Erf", "Floor"])
def test_bfloat16_is_float32_rounded_once(op: str, rng: np.random.Generator) -> None:
    x = np.abs(rng.standard_normal(64)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        run(op, x), run(op, x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    )


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_whole_division_truncates(a: int, b: int) -> None:
    assert divide(np.array([a]), np.array([b]))[0] == math.trunc(a / b)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_modulo_has_the_sign_of_the_divisor_and_fmod_that_of_the_dividend(a: int, b: int) -> None:
    x, y = np.array([a]), np.array([b])
    assert run("Mod", x, y)[0] == a % b
    assert run("Mod", x, y, fmod=1)[0] == math.fmod(a, b)


def test_modulo_of_special_floats() -> None:
    x = np.array([0.0, -0.0, np.inf, 1.0, -1.0, 5.5], np.float32)
    y = np.array([-2.0, 3.0, 2.0, 0.0, np.inf, -2.0], np.float32)
    result = run("Mod", x, y)
    np.testing.assert_array_equal(
        result, np.array([-0.0, 0.0, np.nan, np.nan, np.inf, -0.5], np.float32)
    )
    assert np.signbit(result[0])


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.array([2, -2, 3], np.int32), np.array([-1, -1, 2], np.int32)),
        (np.array([2, 4, 9], np.int64), np.array([0.5, 2, -1], np.float32)),
        (np.array([1.5, -2, 0], np.float32), np.array([2, 3, 0], np.int64)),
        (np.array([1.5, 2, 4], np.float32), np.array([0.5], np.float64)),
    ],
)
def test_power_keeps_the_type_of_its_base(base: np.ndarray, exponent: np.ndarray) -> None:
    (expected,) = onnxruntime_outputs("Pow", {}, [base, exponent])
    assert_close(raise_to(base, exponent), expected)


@given(
    hnp.arrays(np.int8, 6, elements=st.integers(-128, 127)),
    hnp.arrays(np.int8, 6, elements=st.integers(-20, 20)),
    st.booleans(),
)
def test_shift_of_signed_bits(x: np.ndarray, amount: np.ndarray, left: bool) -> None:
    for value, by, result in zip(
        x.tolist(), amount.tolist(), shift_bits(x, amount, left).tolist(), strict=True
    ):
        if not 0 <= by < 8:
            assert result == (-1 if value < 0 and not left else 0)
        elif left:
            assert result % 256 == (value << by) % 256
        else:
            assert result == value >> by


def test_shift_needs_a_direction() -> None:
    with pytest.raises(ModelError, match="BitShift: direction is 'UP', and may be LEFT or RIGHT"):
        run("BitShift", np.ones(2, np.uint8), np.ones(2, np.uint8), direction="UP")


def test_clip_with_crossed_bounds_takes_the_upper_one() -> None:
    x = np.array([-5, 0, 5, np.nan], np.float32)
    np.testing.assert_array_equal(
        clip(x, np.array(2, np.float32), np.array(1, np.float32)), [1, 1, 1, np.nan]
    )
    np.testing.assert_array_equal(
        run("Clip", x, None, np.array([1], np.float32)), [-5, 0, 1, np.nan]
    )


def test_comparison_of_text() -> None:
    a, b = np.array(["x", "y"], object), np.array(["x", "z"], object)
    result = run("Equal", a, b)
    assert result.dtype == np.bool_
    assert result.tolist() == [True, False]


def test_where_chooses_text_and_broadcasts() -> None:
    result = run(
        "Where", np.array([[True], [False]]), np.array(["a", "b"], object), np.array("c", object)
    )
    assert result.tolist() == [["a", "b"], ["c", "c"]]


def test_infinity_can_be_looked_for_on_one_side() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert run("IsInf", x).tolist() == [True, True, False, False]
    assert run("IsInf", x, detect_negative=0).tolist() == [True, False, False, False]
    assert run("IsInf", x, detect_positive=0).tolist() == [False, True, False, False]


def test_identity_passes_anything_through() -> None:
    value = [np.ones(3)]
    assert evaluate(Call("Identity", {}, (value,), 1)) == (value,)


def test_patterns() -> None:
    assert lookup("Exp").pattern is Pattern.ELEMWISE
    assert lookup("Add").pattern is Pattern.BROADCAST
    assert lookup("Add").commutative
    assert not lookup("Sub").commutative
    assert all(op.pattern <= Pattern.INJECTIVE for op in elementwise.OPS)
