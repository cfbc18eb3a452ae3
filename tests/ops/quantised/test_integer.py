"""Integer convolutions, fixed-point scaling and tables, against arithmetic written out in Python's
own integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ModelError
from whence.ops.definition import Attrs, Call, TypeQuery, Value
from whence.ops.quantised.integer import scale_fixed_point
from whence.ops.registry import evaluate, lookup
from whence.ops.types.inference import Inference
from whence.types import DType, TensorType

INT32 = st.integers(-(2**31), 2**31 - 1)


def _infer(op: str, attrs: Attrs, *types: TensorType | None) -> TensorType:
    (kind,) = Inference().infer(TypeQuery(op, attrs, types, (None,) * len(types), 1))
    assert isinstance(kind, TensorType)
    return kind


def _evaluate(op: str, attrs: Attrs, *inputs: Value) -> np.ndarray:
    (y,) = evaluate(Call(op, attrs, inputs, 1))
    return np.asarray(y)


_CONVS: list[dict[str, Any]] = [
    {"pads": (1, 1, 1, 1)},
    {"strides": (2, 1), "pads": (0, 2, 1, 0)},
    {"group": 2, "dilations": (2, 1)},
    {"group": 6, "auto_pad": "SAME_UPPER", "strides": (2, 2)},
]


@pytest.mark.parametrize("attrs", _CONVS)
@pytest.mark.parametrize(
    ("x_type", "w_type"),
    [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8), (np.int16, np.int8)],
)
def test_conv_is_the_convolution_of_centred_codes(
    rng: np.random.Generator, attrs: dict[str, Any], x_type: Any, w_type: Any
) -> None:
    group = attrs.get("group", 1)
    x = rng.integers(
        np.iinfo(x_type).min, np.iinfo(x_type).max, (2, 7, 6, 6), dtype=x_type, endpoint=True
    )
    w = rng.integers(
        np.iinfo(w_type).min,
        np.iinfo(w_type).max,
        (12, 3, 2, 6 // group),
        dtype=w_type,
        endpoint=True,
    )
    x_zero, w_zero = np.asarray(3, x_type), np.arange(12).astype(w_type)
    y = _evaluate("IntegerConv", attrs, x, w, x_zero, w_zero)
    centred = np.moveaxis(x.astype(np.int64) - 3, -1, 1).astype(np.float64)
    weights = np.moveaxis(w.astype(np.int64) - np.arange(12).reshape(-1, 1, 1, 1), -1, 1).astype(
        np.float64
    )
    expected = np.moveaxis(_evaluate("Conv", attrs, centred, weights), 1, -1)
    np.testing.assert_array_equal(y, expected.astype(y.dtype))
    assert y.dtype == (np.int64 if x_type is np.int16 else np.int32)
    types = tuple(TensorType.of(value) for value in (x, w, x_zero, w_zero))
    assert _infer("IntegerConv", attrs, *types) == TensorType.of(y)


def test_conv_without_zero_points(rng: np.random.Generator) -> None:
    x, w = (
        rng.integers(-128, 127, (1, 5, 5, 4), dtype=np.int8),
        rng.integers(-128, 127, (3, 1, 1, 4), dtype=np.int8),
    )
    expected = x.astype(np.int32) @ w.reshape(3, 4).astype(np.int32).T
    np.testing.assert_array_equal(_evaluate("IntegerConv", {}, x, w), expected)
    np.testing.assert_array_equal(
        _evaluate("IntegerConv", {}, x, w, None, np.zeros((), np.int8)), expected
    )


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": (2, 2), "pads": (1, 0, 0, 1)},
        {"group": 2, "strides": (2, 1), "output_padding": (1, 0)},
    ],
)
def test_conv_transpose_is_the_plain_one_on_centred_codes(
    rng: np.random.Generator, attrs: dict[str, Any]
) -> None:
    group = attrs.get("group", 1)
    x, w = (
        rng.integers(0, 255, (2, 4, 5, 6), dtype=np.uint8),
        rng.integers(-128, 127, (8 // group, 3, 2, 6), dtype=np.int8),
    )
    y = _evaluate("IntegerConvTranspose", attrs, x, w, np.asarray(7, np.uint8))
    weights = np.moveaxis(w.astype(np.float64), -1, 0)
    plain = _evaluate("ConvTranspose", attrs, np.moveaxis(x.astype(np.float64) - 7, -1, 1), weights)
    np.testing.assert_array_equal(y, np.moveaxis(plain, 1, -1))
    assert _infer(
        "IntegerConvTranspose", attrs, TensorType.of(x), TensorType.of(w)
    ) == TensorType.of(y)


@pytest.mark.parametrize(
    ("op", "attrs", "types"),
    [
        (
            "IntegerConv",
            {},
            [TensorType(DType.F32, (1, 4, 4, 2)), TensorType(DType.I8, (3, 1, 1, 2))],
        ),
        (
            "IntegerConv",
            {},
            [TensorType(DType.I8, (1, 4, 4, 2)), TensorType(DType.I16, (3, 1, 1, 2))],
        ),
        (
            "IntegerConv",
            {},
            [TensorType(DType.I8, (1, 4, 4, 2)), TensorType(DType.I8, (3, 1, 1, 4))],
        ),
        ("IntegerConv", {}, [TensorType(DType.I8, (1, 2)), TensorType(DType.I8, (3, 2))]),
        (
            "IntegerConvTranspose",
            {"output_shape": (8, 8)},
            [TensorType(DType.I8, (1, 4, 4, 2)), TensorType(DType.I8, (3, 1, 1, 2))],
        ),
        (
            "FixedPointScale",
            {},
            [TensorType(DType.F32, (2, 3)), TensorType(DType.I32, ()), TensorType(DType.I32, ())],
        ),
        (
            "FixedPointScale",
            {},
            [TensorType(DType.I32, (2, 3)), TensorType(DType.I32, (2,)), TensorType(DType.I32, ())],
        ),
        ("LookUp", {}, [TensorType(DType.I32, (2, 3)), TensorType(DType.I8, (256,))]),
        ("LookUp", {}, [TensorType(DType.I8, (2, 3)), TensorType(DType.I8, (255,))]),
    ],
)
def test_nonsense_is_refused(op: str, attrs: Attrs, types: list[TensorType]) -> None:
    with pytest.raises(ModelError, match=op):
        _infer(op, attrs, *types)


def _floor_half_up(numerator: int, bits: int) -> int:
    return (numerator + (1 << bits >> 1)) >> bits


def _away(numerator: int, bits: int) -> int:
    return (1 if numerator >= 0 else -1) * ((abs(numerator) + (1 << bits >> 1)) >> bits)


def _wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


@given(INT32, st.integers(2**30, 2**31 - 1), st.integers(-31, 30))
def test_double_rounding(x: int, multiplier: int, shift: int) -> None:
    high = _floor_half_up(_wrapped(x << max(shift, 0)) * multiplier, 31)
    expected = _away(high, max(-shift, 0))
    (found,) = scale_fixed_point(
        np.asarray([x], np.int32), np.asarray(multiplier, np.int32), np.asarray(shift, np.int32)
    )
    assert found == expected


def test_the_one_product_that_does_not_fit_saturates() -> None:
    least = np.asarray([-(2**31)], np.int32)
    assert scale_fixed_point(least, least, np.zeros((), np.int32)) == [2**31 - 1]


@given(st.integers(-(2**20), 2**20), st.integers(2**30, 2**31 - 1), st.integers(-31, 8))
def test_single_rounding(x: int, multiplier: int, shift: int) -> None:
    expected = _floor_half_up(x * multiplier, 31 - shift)
    (found,) = scale_fixed_point(
        np.asarray([x], np.int32),
        np.asarray(multiplier, np.int32),
        np.asarray(shift, np.int32),
        "single",
    )
    assert found == expected


@given(st.integers(-(2**44), 2**44), st.integers(2**30, 2**31 - 1), st.integers(-31, -16))
def test_wide_sums_take_sixteen_bits_of_the_multiplier(x: int, multiplier: int, shift: int) -> None:
    narrow = min((multiplier + 2**15) >> 16, 0x7FFF)
    expected = _floor_half_up(x * narrow, 15 - shift)
    (found,) = scale_fixed_point(
        np.asarray([x], np.int64), np.asarray(multiplier, np.int32), np.asarray(shift, np.int32)
    )
    assert found == expected


def test_scales_for_each_channel(rng: np.random.Generator) -> None:
    x = rng.integers(-100000, 100000, (2, 3, 4), dtype=np.int32)
    multiplier, shift = (
        np.asarray([2**30, 2**30 + 1, 2**31 - 1, 2**30], np.int32),
        np.asarray([0, -3, -1, 2], np.int32),
    )
    y = _evaluate("FixedPointScale", {}, x, multiplier, shift)
    assert np.abs(y - x * (multiplier * 2.0 ** (shift - 31))).max() <= 1
    assert _infer(
        "FixedPointScale", {}, *(TensorType.of(value) for value in (x, multiplier, shift))
    ) == TensorType.of(y)
    with pytest.raises(ModelError, match="shifts"):
        _evaluate("FixedPointScale", {}, x, multiplier, np.asarray(-40, np.int32))
    with pytest.raises(ModelError, match="rounding"):
        _evaluate("FixedPointScale", {"rounding": "up"}, x, multiplier, shift)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_every_code_finds_its_entry(dtype: Any) -> None:
    info = np.iinfo(dtype)
    codes = np.arange(info.min, info.max + 1).astype(dtype)
    table = (codes.astype(np.int32) * 3 + 1).astype(np.int32)
    y = _evaluate("LookUp", {}, codes.reshape(-1, 16), table)
    np.testing.assert_array_equal(y, codes.reshape(-1, 16).astype(np.int32) * 3 + 1)
    assert _infer("LookUp", {}, TensorType.of(codes), TensorType.of(table)) == TensorType(
        DType.I32, codes.shape
    )


def test_cost() -> None:
    def flops(op: str, *shapes: tuple[int, ...]) -> int | None:
        query = TypeQuery(
            op, {}, tuple(TensorType(DType.I8, shape) for shape in shapes), (None, None), 1
        )
        count = lookup(op).flops
        assert not isinstance(count, int)
        return count(query, Inference().infer(query))

    assert flops("IntegerConv", (1, 8, 8, 3), (10, 3, 3, 3)) == 10 * 36 * 2 * 27
    assert flops("IntegerConvTranspose", (1, 8, 8, 3), (10, 3, 3, 3)) == 3 * 64 * 2 * 90
