"""Products of matrices, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, read
from whence.errors import ModelError, UnsupportedError

RNG = np.random.default_rng(8)
RELU = 1


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "keep", "made"),
    [
        ((3, 8), False, (3, 5)),
        ((2, 3, 8), True, (2, 3, 5)),
        ((2, 3, 8), False, (6, 5)),
        ((2, 2, 2, 4), False, (4, 5)),
        ((8,), False, (1, 5)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_fully_connected(shape, keep, made, bias):
    model = Model()
    x = model.input(shape)
    inputs = [x, model.const(floats(5, 8)), model.const(floats(5)) if bias else -1]
    model.output(
        model.op(
            "FULLY_CONNECTED",
            inputs,
            made,
            keep_num_dims=keep,
            fused_activation_function=RELU,
            version=6,
        )
    )
    check(model, [floats(*shape)])


def test_fully_connected_with_computed_weights():
    model = Model()
    x, w = model.input((3, 8)), model.input((5, 8))
    model.output(model.op("FULLY_CONNECTED", [x, w, -1], (3, 5), version=6))
    check(model, [floats(3, 8), floats(5, 8)])


@pytest.mark.parametrize(
    ("dtype", "x_zero", "w_dtype", "w_zero"),
    [(np.int8, -5, np.int8, 0), (np.uint8, 120, np.uint8, 110), (np.int16, 0, np.int8, 0)],
)
def test_quantised(dtype, x_zero, w_dtype, w_zero):
    wide = np.int64 if dtype is np.int16 else np.int32
    x_scale = 0.001 if dtype is np.int16 else 0.05
    model = Model()
    x = model.input((3, 8), dtype, Quantised(x_scale, x_zero))
    w = model.const(codes(w_dtype, 5, 8), quantised=Quantised(0.02, w_zero))
    b = model.const(RNG.integers(-200, 200, 5), wide, Quantised(0.02 * x_scale))
    made = Quantised(0.002 if dtype is np.int16 else 0.2, x_zero)
    model.output(model.op("FULLY_CONNECTED", [x, w, b], (3, 5), dtype, made, version=6))
    check(model, [codes(dtype, 3, 8)])


def test_quantised_with_scales_by_row():
    model = Model()
    x = model.input((2, 3, 8), np.int8, Quantised(0.05, 3))
    w = model.const(codes(np.int8, 4, 8), quantised=Quantised([0.01, 0.02, 0.03, 0.04], 0, 0))
    b = model.const(
        RNG.integers(-200, 200, 4), np.int32, Quantised([0.0005, 0.001, 0.0015, 0.002], 0, 0)
    )
    model.output(
        model.op(
            "FULLY_CONNECTED",
            [x, w, b],
            (2, 3, 4),
            np.int8,
            Quantised(0.3, 1),
            keep_num_dims=True,
            version=12,
        )
    )
    check(model, [codes(np.int8, 2, 3, 8)])


def test_four_bit_weights():
    model = Model()
    x = model.input((3, 8))
    whole = RNG.integers(-8, 8, (5, 8)).astype(np.int8)
    packed = ((whole.reshape(-1, 2)[:, 0] & 15) | (whole.reshape(-1, 2)[:, 1] << 4)).astype(
        np.uint8
    )
    w = model.tensor((5, 8), quantised=Quantised(0.1), data=packed.tobytes(), type_name="INT4")
    model.output(model.op("FULLY_CONNECTED", [x, w, -1], (3, 5), version=10))
    value = floats(3, 8)
    (made,) = check(model, [value], relative=0.02)
    np.testing.assert_allclose(made, value @ (whole * np.float32(0.1)).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", [True, False])
def test_signed_weights_that_an_old_file_calls_unsigned(stored):
    model = Model()
    x, whole = model.input((3, 8)), codes(np.uint8, 5, 8)
    w = (
        model.const(whole, quantised=Quantised(0.02))
        if stored
        else model.input((5, 8), np.uint8, Quantised(0.02))
    )
    model.output(model.op("FULLY_CONNECTED", [x, w, -1], (3, 5), version=3))
    check(model, [floats(3, 8), *([] if stored else [whole])], relative=0.02)


@pytest.mark.parametrize(
    ("adj_x", "adj_y"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.parametrize(("left", "right"), [((), ()), ((2,), (2,)), ((3, 1), (1, 2)), ((2,), ())])
def test_batch_matmul(adj_x, adj_y, left, right):
    a, b = (*left, *((6, 4) if adj_x else (4, 6))), (*right, *((5, 6) if adj_y else (6, 5)))
    made = (*np.broadcast_shapes(left, right), 4, 5)
    model = Model()
    model.output(
        model.op("BATCH_MATMUL", [model.input(a), model.input(b)], made, adj_x=adj_x, adj_y=adj_y)
    )
    check(model, [floats(*a), floats(*b)])


def test_quantised_batch_matmul():
    model = Model()
    x, y = (
        model.input((2, 4, 6), np.int8, Quantised(0.05, 3)),
        model.input((2, 6, 5), np.int8, Quantised(0.04, -2)),
    )
    model.output(model.op("BATCH_MATMUL", [x, y], (2, 4, 5), np.int8, Quantised(0.3, 1), version=2))
    check(model, [codes(np.int8, 2, 4, 6), codes(np.int8, 2, 6, 5)])


def test_shuffled_weights_are_refused_with_advice():
    model = Model()
    x = model.input((3, 8))
    model.output(
        model.op("FULLY_CONNECTED", [x, model.const(floats(5, 8)), -1], (3, 5), weights_format=1)
    )
    with pytest.raises(UnsupportedError, match="convert the model again"):
        read(model)


def test_weights_that_are_no_matrix_are_refused():
    model = Model()
    x = model.input((3, 8))
    model.output(model.op("FULLY_CONNECTED", [x, model.const(floats(5, 8, 1)), -1], (3, 5)))
    with pytest.raises(ModelError, match="not a matrix"):
        read(model)
