from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call
from whence.ops.registry import evaluate
from whence.ops.tensor.cast import bit_cast, cast
from whence.types import DType

NUMBERS = [
    dtype for dtype in DType if dtype not in {DType.UNDEFINED, DType.STRING, DType.C64, DType.C128}
]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NUMBERS, NUMBERS)), ids=str)
def test_one_survives_every_pair(source: DType, target: DType) -> None:
    x = np.ones((2, 3), np.float32).astype(source.numpy)
    y = cast(x, target)
    assert DType.of(y) is target
    assert y.shape == (2, 3)
    assert (y.astype(np.float32 if target is not DType.I2 else np.int32) == 1).all()


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_there_and_back_through_text(dtype: DType) -> None:
    x = np.ones(3, np.float32).astype(dtype.numpy)
    texts = cast(x, DType.STRING)
    assert texts.dtype == np.object_
    assert texts.tolist() == ["1"] * 3
    back = cast(texts, dtype)
    assert DType.of(back) is dtype
    assert (back == x).all()


@pytest.mark.parametrize(
    "to",
    [
        DType.I8,
        DType.U8,
        DType.I16,
        DType.I32,
        DType.I64,
        DType.F16,
        DType.F64,
        DType.BOOL,
        DType.STRING,
    ],
    ids=str,
)
def test_reals_as_in_onnxruntime(to: DType) -> None:
    x = np.array([0, -0.0, 1.7, -1.7, 100.25, -100.9, 1e-5, 123.456], np.float32)
    x = np.abs(x) if to is DType.U8 else x
    (expected,) = onnxruntime_outputs("Cast", {"to": int(to)}, [x])
    (actual,) = evaluate(Call("Cast", {"to": int(to)}, (x,), 1))
    if to is DType.STRING:
        assert actual.tolist() == expected.tolist()
    else:
        assert_close(actual, expected)


def test_special_reals_as_text() -> None:
    assert cast(np.array([np.nan, np.inf, -np.inf, 0.1], np.float32), DType.STRING).tolist() == [
        "NaN",
        "INF",
        "-INF",
        "0.1",
    ]
    np.testing.assert_array_equal(
        cast(np.array(["NaN", "+INF", "-inf", " 2.5e1 "], object), DType.F32),
        [np.nan, np.inf, -np.inf, 25],
    )
    assert cast(np.array(["7", "100.5"], object), DType.I32).tolist() == [7, 100]
    with pytest.raises(ModelError, match="Cast: a text is not a number"):
        cast(np.array(["seven"], object), DType.F32)


@given(st.integers(-(2**31), 2**31 - 1))
def test_whole_numbers_lose_their_high_bits(value: int) -> None:
    x = np.array([value], np.int32)
    assert cast(x, DType.U8)[0] == value % 256
    assert int(cast(x, DType.U4)[0]) == value % 16
    assert int(cast(x, DType.I4)[0]) == (value + 8) % 16 - 8
    assert int(cast(x, DType.I2)[0]) == (value + 2) % 4 - 2
    assert cast(x, DType.BOOL)[0] == (value != 0)


@pytest.mark.parametrize(
    ("dtype", "largest", "overflow"),
    [
        (DType.F8E4M3FN, 448, np.nan),
        (DType.F8E4M3FNUZ, 240, np.nan),
        (DType.F8E5M2, 57344, np.inf),
        (DType.F8E5M2FNUZ, 57344, np.nan),
    ],
    ids=str,
)
def test_float8_saturates_unless_told_otherwise(
    dtype: DType, largest: float, overflow: float
) -> None:
    x = np.array([1e6, np.inf, -np.inf, np.nan, 1.0], np.float32)
    np.testing.assert_array_equal(
        cast(x, dtype).astype(np.float32), [largest, largest, -largest, np.nan, 1]
    )
    np.testing.assert_array_equal(
        cast(x, dtype, saturate=False).astype(np.float32),
        [overflow, overflow, -overflow, np.nan, 1],
    )


def test_float4_has_no_infinity() -> None:
    assert cast(np.array([1e6, -np.inf, 0.75], np.float32), DType.F4E2M1).astype(
        np.float32
    ).tolist() == [6, -6, 1.0]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("up", [1, 2, 2, 4, 0.25]), ("down", [1, 1, 1, 2, 0.125]), ("nearest", [1, 1, 2, 4, 0.25])],
)
def test_powers_of_two(mode: str, expected: list[float]) -> None:
    x = np.array([1, 1.2, 1.5, 3.5, 0.2], np.float32)
    assert cast(x, DType.F8E8M0, round_mode=mode).astype(np.float32).tolist() == expected


def test_powers_of_two_at_the_ends() -> None:
    x = np.array([0.0, 1e-300, 1e300, np.inf, np.nan])
    assert cast(x, DType.F8E8M0).view(np.uint8).tolist() == [0, 0, 254, 254, 255]
    assert (
        cast(x, DType.F8E8M0, saturate=False, round_mode="nearest").view(np.uint8).tolist()[1:]
        == [255] * 4
    )


def test_cast_like_takes_the_type_of_its_second_input() -> None:
    (result,) = evaluate(Call("CastLike", {}, (np.array([1.9, -1.9]), np.zeros(5, np.int16)), 1))
    assert result.dtype == np.int16
    assert result.tolist() == [1, -1]


@given(st.lists(st.floats(width=32), max_size=6))
def test_bits_survive_there_and_back(values: list[float]) -> None:
    x = np.array(values, np.float32)
    bits = bit_cast(x, DType.U32)
    assert bits.tobytes() == x.tobytes()
    assert bit_cast(bits, DType.F32).tobytes() == x.tobytes()


def test_bits_of_small_types_and_scalars() -> None:
    x = np.array([-1, 7, -8]).astype(DType.I4.numpy)
    assert bit_cast(x, DType.U4).astype(np.int32).tolist() == [15, 7, 8]
    assert bit_cast(np.array(1.0, np.float32), DType.I32).shape == ()
    with pytest.raises(ModelError, match="f32 and f64 do not have the same number of bits"):
        bit_cast(np.ones(2, np.float32), DType.F64)
