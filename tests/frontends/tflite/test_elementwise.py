"""Arithmetic, comparison and logic, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests.frontends.tflite.making import Model, Quantised, check, read, run_litert, run_whence
from tests.frontends.tflite.runtimes import convert, operators
from whence.errors import ModelError

RNG = np.random.default_rng(9)


def unary(name, shape, dtype=np.float32, made=None, given=None, out=None):
    model = Model()
    x = model.input(shape, dtype, given)
    model.output(model.op(name, [x], shape, out or dtype, made))
    return model


def binary(name, left, right, dtype=np.float32, out=None, given=(None, None), made=None, **options):
    model = Model()
    inputs = [model.input(left, dtype, given[0]), model.input(right, dtype, given[1])]
    model.output(
        model.op(name, inputs, np.broadcast_shapes(left, right), out or dtype, made, **options)
    )
    return model


@pytest.mark.parametrize(
    "name", ["ABS", "CEIL", "COS", "EXP", "FLOOR", "NEG", "ROUND", "SIGN", "SIN", "SQUARE"]
)
def test_of_one_number(name):
    values = np.array([-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.5, 3.7], np.float32)
    check(unary(name, values.shape), [values], reference=name not in ("CEIL", "ROUND", "SIGN"))


@pytest.mark.parametrize("name", ["LOG", "RSQRT", "SQRT"])
def test_of_one_positive_number(name):
    check(unary(name, (6,)), [RNG.uniform(0.1, 9, 6).astype(np.float32)])


@pytest.mark.parametrize("name", ["ABS", "RSQRT"])
def test_of_one_quantised_number(name):
    codes = np.arange(-128, 128).astype(np.int8)
    zero = -128 if name == "RSQRT" else 3
    given, made = Quantised(0.1, zero), Quantised(0.1, zero)
    if name == "RSQRT":
        codes[0] = -120
    check(unary(name, codes.shape, np.int8, made, given), [codes])


@pytest.mark.parametrize(
    "name",
    [
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MAXIMUM",
        "MINIMUM",
        "SQUARED_DIFFERENCE",
        "FLOOR_DIV",
        "FLOOR_MOD",
    ],
)
@pytest.mark.parametrize("right", [(2, 3, 4), (1, 3, 1), (4,), ()])
def test_of_two_numbers(name, right):
    left = RNG.normal(size=(2, 3, 4)).astype(np.float32) * 4
    other = (RNG.normal(size=right) + np.where(RNG.normal(size=right) > 0, 2, -2)).astype(
        np.float32
    )
    check(binary(name, left.shape, right), [left, other])


@pytest.mark.parametrize(
    "name", ["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD", "DIV"]
)
def test_of_two_whole_numbers(name):
    left, right = np.meshgrid(
        np.array([-7, -6, -1, 0, 1, 6, 7], np.int32), np.array([-3, -2, -1, 1, 2, 3], np.int32)
    )
    check(binary(name, left.shape, right.shape, np.int32), [left, right])


def test_powers():
    base, exponent = (
        np.array([0.5, 1.0, 2.0, 3.0], np.float32),
        np.array([2.0, -1.0, 0.5, 3.0], np.float32),
    )
    check(binary("POW", (4,), (4,)), [base, exponent])


@pytest.mark.parametrize("activation", [0, 1, 2, 3])
def test_with_an_activation(activation):
    values = RNG.normal(size=(2, 20)).astype(np.float32) * 5
    check(binary("ADD", (20,), (20,), fused_activation_function=activation), list(values))


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(
    ("dtype", "zeros"), [(np.int8, (3, -4, 5)), (np.uint8, (120, 130, 110)), (np.int16, (0, 0, 0))]
)
def test_of_two_quantised_numbers(name, dtype, zeros):
    limits = np.iinfo(dtype)
    left, right = (
        RNG.integers(limits.min, limits.max, (50,), endpoint=True).astype(dtype) for _ in range(2)
    )
    unit = 1 / 256 if dtype is np.int16 else 1
    made = Quantised((0.5 if name == "MUL" else 0.2) * unit, zeros[2])
    model = binary(
        name,
        (50,),
        (50,),
        dtype,
        given=(Quantised(0.1 * unit, zeros[0]), Quantised(0.07 * unit, zeros[1])),
        made=made,
        fused_activation_function=1,
    )
    check(model, [left, right])


@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
def test_extremes_of_codes(name):
    left, right = (RNG.integers(-128, 128, (20,)).astype(np.int8) for _ in range(2))
    same = Quantised(0.1, 3)
    check(
        binary(name, (20,), (20,), np.int8, given=(same, same), made=same), [left, right], quanta=0
    )


@pytest.mark.parametrize(
    "name", ["EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_comparisons(name, dtype):
    left, right = np.arange(6).astype(dtype), np.array([[0, 2, 2, 2, 5, 4]]).astype(dtype)
    check(binary(name, left.shape, right.shape, dtype, np.bool_), [left, right])


def test_comparison_of_what_codes_mean():
    left, right = (RNG.integers(-128, 128, (60,)).astype(np.int8) for _ in range(2))
    check(
        binary(
            "GREATER",
            (60,),
            (60,),
            np.int8,
            np.bool_,
            given=(Quantised(0.1, 3), Quantised(0.2, -7)),
        ),
        [left, right],
    )


@pytest.mark.parametrize("name", ["LOGICAL_AND", "LOGICAL_OR"])
def test_logic(name):
    check(
        binary(name, (2, 2), (2, 2), np.bool_),
        [np.array([[0, 0], [1, 1]], np.bool_), np.array([[0, 1], [0, 1]], np.bool_)],
    )


def test_negation():
    check(unary("LOGICAL_NOT", (2,), np.bool_), [np.array([True, False])])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8])
def test_shifts_and_bits(dtype):
    values = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (30,), endpoint=True).astype(
        dtype
    )
    shifts = RNG.integers(0, 9, (30,)).astype(dtype)
    (shifted,) = run_whence(binary("RIGHT_SHIFT", (30,), (30,), dtype), [values, shifts])
    np.testing.assert_array_equal(
        shifted, values >> np.minimum(shifts, 8 * np.dtype(dtype).itemsize - 1)
    )
    (flipped,) = run_whence(binary("BITWISE_XOR", (30,), (30,), dtype), [values, shifts])
    np.testing.assert_array_equal(flipped, values ^ shifts)


def test_angle():
    y, x = np.meshgrid(
        np.array([-2.0, 0.0, 1.0, 3.0], np.float32), np.array([-1.0, 0.0, 0.5], np.float32)
    )
    (angle,) = run_whence(binary("ATAN2", y.shape, x.shape), [y, x])
    np.testing.assert_allclose(angle, np.arctan2(y, x), atol=1e-6)


def test_sum_of_many():
    model = Model()
    model.output(model.op("ADD_N", [model.input((3, 2)) for _ in range(3)], (3, 2)))
    check(model, [RNG.normal(size=(3, 2)).astype(np.float32) for _ in range(3)])


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (np.float32, np.int32),
        (np.int32, np.float32),
        (np.int64, np.int32),
        (np.uint8, np.float32),
        (np.bool_, np.float32),
    ],
)
def test_cast(given, made):
    values = np.array([0, 1, 2, 100]).astype(given)
    check(unary("CAST", (4,), given, out=made), [values])


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, -3), (np.uint8, 100), (np.int16, 0)])
def test_into_codes_and_out(dtype, zero):
    model = Model()
    quantised = Quantised(0.1, zero)
    x = model.input((40,))
    codes = model.op("QUANTIZE", [x], (40,), dtype, quantised)
    model.output(codes, model.op("DEQUANTIZE", [codes], (40,)))
    check(model, [RNG.normal(size=40).astype(np.float32) * 5])


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ((np.int8, -3), (np.int8, 5)),
        ((np.uint8, 128), (np.int8, 0)),
        ((np.int8, 4), (np.uint8, 120)),
    ],
)
def test_from_codes_to_other_codes(given, made):
    model = Model()
    x = model.input((256,), given[0], Quantised(0.1, given[1]))
    model.output(model.op("QUANTIZE", [x], (256,), made[0], Quantised(0.15, made[1])))
    check(model, [np.arange(256).astype(np.uint8).view(given[0])])


@pytest.mark.parametrize(
    ("given", "scale", "made", "to"),
    [
        (np.int32, 1.5e-7, np.int16, 9.2e-4),
        (np.int32, 3e-4, np.int16, 7e-5),
        (np.int32, 2e-7, np.int8, 0.5),
        (np.int16, 9.2e-4, np.int32, 1.5e-7),
        (np.int16, 2e-5, np.int32, 3e-4),
    ],
)
def test_codes_of_32_bits(given, scale, made, to, tmp_path):
    """To QUANTIZE they are codes, with LiteRT's fixed-point arithmetic, whatever is done to the
    model.
    """
    model = Model()
    zero = 3 if made is np.int8 else 0
    x = model.input((2000,), given, Quantised(scale))
    model.output(model.op("QUANTIZE", [x], (2000,), made, Quantised(to, zero), version=2))
    # LiteRT shifts to the left first, and what leaves 32 bits then is lost.
    reach = 1 << (15 if given is np.int16 else 31 if scale < to else 28)
    near = int(np.clip(40000 * to / scale, 1000, reach))
    codes = np.concatenate(
        [RNG.integers(-reach, reach, 1000), RNG.integers(-near, near, 1000)]
    ).astype(given)
    (theirs,) = run_litert(model, [codes])
    (ours,) = run_whence(model, [codes])
    # The interpreter computes in float32.
    assert np.abs(ours - theirs.astype(np.float64)).max() <= max(1.0, np.abs(theirs).max() * 2**-22)
    np.testing.assert_array_equal(whence.compile(read(model))(codes), theirs)
    record = convert(model, tmp_path / "again.tflite")
    assert operators(record) == ["QUANTIZE"]
    np.testing.assert_array_equal(
        run_litert((tmp_path / "again.tflite").read_bytes(), [codes])[0], theirs
    )


@pytest.mark.parametrize(("dtype", "zero"), [(np.int16, 0), (np.int8, -7)])
def test_what_is_computed_in_real_numbers_stays_so(dtype, zero, tmp_path):
    """An operator on real numbers between DEQUANTIZE and QUANTIZE is not one on codes, which LiteRT
    computes by tables.
    """
    model = Model()
    x = model.input((256,), dtype, Quantised(0.05, zero))
    real = model.op("DEQUANTIZE", [x], (256,))
    power = model.op("EXP", [real], (256,))
    model.output(model.op("QUANTIZE", [power], (256,), dtype, Quantised(0.5, zero)))
    codes = np.arange(-128, 128).astype(dtype)
    (theirs,) = run_litert(model, [codes])
    np.testing.assert_array_equal(whence.compile(read(model))(codes), theirs)
    record = convert(model, tmp_path / "again.tflite")
    assert operators(record) == ["DEQUANTIZE", "EXP", "QUANTIZE"]


@pytest.mark.parametrize("op", ["TANH", "LOGISTIC"])
def test_codes_of_16_bits_that_litert_refuses(op):
    """LiteRT has these for results between -1 and 1 only; with any other scale they are what they
    are in real numbers.
    """
    model = unary(op, (64,), np.int16, Quantised(0.05), Quantised(0.5))
    codes = np.arange(-32, 32).astype(np.int16)
    (ours,) = run_whence(model, [codes])
    np.testing.assert_array_equal(whence.compile(read(model))(codes), ours)
    assert len(np.unique(ours)) > 5


@pytest.mark.parametrize(("given", "made"), [(np.int32, np.int16), (np.int16, np.int32)])
def test_codes_without_a_scale_are_refused(given, made):
    wrong = (None, Quantised(0.5)) if given is np.int32 else (Quantised(0.5), None)
    with pytest.raises(ModelError, match=r"\(QUANTIZE\): its .* without a scale"):
        read(unary("QUANTIZE", (4,), given, wrong[1], wrong[0], made))


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 6.0), (0.5, 3.0), (-3.0, -1.0)])
def test_fake_quantisation(low, high):
    model = Model()
    x = model.input((50,))
    model.output(model.op("FAKE_QUANT", [x], (50,), min=low, max=high, num_bits=8))
    check(model, [np.linspace(low - 1, high + 1, 50).astype(np.float32)])


def test_a_zero_point_that_is_no_code():
    """Some converters write -128 for uint8; LiteRT computes with it."""
    quantised = Quantised(1 / 256, -128)
    check(
        unary("LOGISTIC", (256,), np.uint8, quantised, quantised), [np.arange(256).astype(np.uint8)]
    )
