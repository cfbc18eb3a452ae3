"""Convolutions and pools, float and quantised in every form, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whence
from tests.frontends.tflite.making import Model, Quantised, check, compare, read, run_litert
from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.tflite.writer import write_tflite

RNG = np.random.default_rng(5)
SAME, VALID = 0, 1
RELU, RELU_N1_TO_1, RELU6 = 1, 2, 3


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(
    ("stride", "dilation"), [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 3)), ((3, 2), (1, 1))]
)
@pytest.mark.parametrize("activation", [0, RELU, RELU_N1_TO_1, RELU6])
def test_conv_2d(padding, stride, dilation, activation):
    model = Model()
    x = model.input((2, 9, 8, 3))
    inputs = [x, model.const(floats(4, 3, 2, 3)), model.const(floats(4))]
    options: dict[str, Any] = {
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
    }
    # LiteRT works the shape out itself.
    model.output(
        model.op(
            "CONV_2D",
            inputs,
            (0, 0, 0, 4),
            padding=padding,
            fused_activation_function=activation,
            version=1,
            **options,
        )
    )
    check(model, [floats(2, 9, 8, 3)])


def test_conv_2d_in_groups():
    model = Model()
    x = model.input((1, 5, 5, 6))
    model.output(
        model.op(
            "CONV_2D",
            [x, model.const(floats(4, 3, 3, 3)), model.const(floats(4))],
            (1, 5, 5, 4),
            stride_h=1,
            stride_w=1,
        )
    )
    check(model, [floats(1, 5, 5, 6)])


def test_conv_2d_with_computed_weights():
    model = Model()
    x, w = model.input((1, 5, 5, 2)), model.input((3, 2, 2, 2))
    model.output(
        model.op("CONV_2D", [x, w, model.const(floats(3))], (1, 5, 5, 3), stride_h=1, stride_w=1)
    )
    check(model, [floats(1, 5, 5, 2), floats(3, 2, 2, 2)])


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("padding", [SAME, VALID])
def test_depthwise(multiplier, padding):
    model = Model()
    x = model.input((1, 7, 6, 3))
    w, b = model.const(floats(1, 3, 2, 3 * multiplier)), model.const(floats(3 * multiplier))
    options: dict[str, Any] = {
        "depth_multiplier": multiplier,
        "fused_activation_function": RELU6,
        "padding": padding,
    }
    model.output(
        model.op(
            "DEPTHWISE_CONV_2D",
            [x, w, b],
            (0, 0, 0, 3 * multiplier),
            stride_h=2,
            stride_w=2,
            **options,
        )
    )
    check(model, [floats(1, 7, 6, 3)])


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("given", "stride", "made"), [(4, 2, 8), (5, 2, 9), (3, 3, 9), (5, 1, 5)])
def test_transpose_conv(padding, given, stride, made):
    kernel = 3
    made = made if padding == SAME else (given - 1) * stride + kernel
    model = Model()
    shape = model.const([1, made, made, 2], np.int32)
    w, x = model.const(floats(2, kernel, kernel, 3)), model.input((1, given, given, 3))
    model.output(
        model.op(
            "TRANSPOSE_CONV",
            [shape, w, x],
            (1, made, made, 2),
            padding=padding,
            stride_h=stride,
            stride_w=stride,
        )
    )
    check(model, [floats(1, given, given, 3)])


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize(
    ("padding", "sizes"), [(SAME, (8, 12)), (SAME, (7, 11)), (VALID, (9, 14)), (VALID, (10, 15))]
)
def test_transpose_conv_to_a_size_that_is_given_at_run_time(padding, quantised, sizes):
    model = Model()
    kind: Any = np.int8 if quantised else np.float32
    shape = model.input((4,), np.int32)
    if quantised:
        w = model.const(codes(np.int8, 2, 3, 4, 3), quantised=Quantised([0.01, 0.02], 0, 0))
        b = model.const([500, -300], np.int32, Quantised([0.0005, 0.001], 0, 0))
    else:
        w, b = model.const(floats(2, 3, 4, 3)), model.const(floats(2))
    x = model.input((1, 4, 6, 3), kind, Quantised(0.05, 3) if quantised else None)
    made = model.op(
        "TRANSPOSE_CONV",
        [shape, w, x, b],
        (1, 8, 12, 2),
        kind,
        Quantised(0.2, -4) if quantised else None,
        padding=padding,
        stride_h=2,
        stride_w=2,
        version=3,
    )
    model.output(made)
    values = codes(np.int8, 1, 4, 6, 3) if quantised else floats(1, 4, 6, 3)
    feeds = [np.array([1, *sizes, 2], np.int32), values]
    check(model, feeds)
    (theirs,) = run_litert(model, feeds)
    compiled = whence.compile(read(model))
    compare([compiled(*feeds)], [theirs], quanta=0)
    with pytest.raises(WhenceError, match=r"out of range|index"):
        compiled(np.array([1, 40, 40, 2], np.int32), values)
    for batch, channels in ((3, 2), (1, 3), (1, 1), (1, -2)):
        with pytest.raises(WhenceError, match="TRANSPOSE_CONV"):
            compiled(np.array([batch, *sizes, channels], np.int32), values)


def test_transpose_conv_to_other_channels_than_its_weights_make():
    model = Model()
    inputs = [model.const([1, 4, 4, 3], np.int32), model.const(floats(2, 3, 3, 3))]
    x = model.input((1, 4, 4, 3))
    model.output(
        model.op("TRANSPOSE_CONV", [*inputs, x], (1, 4, 4, 3), stride_h=1, stride_w=1, version=1)
    )
    with pytest.raises(ModelError, match=r"TRANSPOSE_CONV.*\[1, 4, 4, 3\].*2 channels"):
        read(model)


def test_transpose_conv_with_bias_quantised():
    model = Model()
    w = model.const(codes(np.int8, 2, 3, 3, 3), quantised=Quantised([0.01, 0.02], 0, 0))
    b = model.const(codes(np.int16, 2).astype(np.int32), quantised=Quantised([0.0005, 0.001], 0, 0))
    x = model.input((1, 4, 4, 3), np.int8, Quantised(0.05, 3))
    inputs = [model.const([1, 8, 8, 2], np.int32), w, x, b]
    model.output(
        model.op(
            "TRANSPOSE_CONV",
            inputs,
            (1, 8, 8, 2),
            np.int8,
            Quantised(0.2, -4),
            stride_h=2,
            stride_w=2,
            version=3,
        )
    )
    check(model, [codes(np.int8, 1, 4, 4, 3)])


def test_a_bias_of_more_dimensions():
    """Converters leave the ones of a broadcast in it."""
    model = Model()
    w, x, b = (
        model.const(floats(2, 3, 3, 3)),
        model.input((1, 4, 4, 3)),
        model.const(floats(1, 1, 1, 2)),
    )
    model.output(
        model.op(
            "TRANSPOSE_CONV",
            [model.const([1, 4, 4, 2], np.int32), w, x, b],
            (1, 4, 4, 2),
            stride_h=1,
            stride_w=1,
            version=3,
        )
    )
    check(model, [floats(1, 4, 4, 3)])
    whence.prepare(read(model))


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_conv_3d(padding):
    model = Model()
    x = model.input((1, 5, 6, 7, 2))
    inputs = [x, model.const(floats(2, 3, 2, 2, 4)), model.const(floats(4))]
    options: dict[str, Any] = {
        "stride_d": 1,
        "stride_h": 2,
        "stride_w": 1,
        "fused_activation_function": RELU,
    }
    model.output(model.op("CONV_3D", inputs, (0, 0, 0, 0, 4), padding=padding, **options))
    check(model, [floats(1, 5, 6, 7, 2)])


def quantised_conv(
    dtype,
    weights,
    w_quantised,
    x_quantised,
    y_quantised,
    bias_dtype=np.int32,
    op="CONV_2D",
    bias_scale=None,
    **options,
):
    model = Model()
    x = model.input((1, 6, 5, 4), dtype, x_quantised)
    w = model.const(weights, quantised=w_quantised)
    scale = np.asarray(w_quantised.scale) * x_quantised.scale
    scale = scale if bias_scale is None else np.asarray(bias_scale)
    channels = weights.shape[-1] if op == "DEPTHWISE_CONV_2D" else weights.shape[0]
    b = model.const(
        RNG.integers(-500, 500, channels),
        bias_dtype,
        Quantised(np.broadcast_to(scale, channels).tolist() if scale.ndim else float(scale)),
    )
    options = {"stride_h": 1, "stride_w": 1, "fused_activation_function": RELU, **options}
    model.output(
        model.op(op, [x, w, b], (1, 6, 5, channels), dtype, y_quantised, version=3, **options)
    )
    return model


def test_int8_with_scales_by_channel():
    w = codes(np.int8, 3, 3, 3, 4)
    model = quantised_conv(
        np.int8, w, Quantised([0.01, 0.02, 0.005], 0, 0), Quantised(0.05, -7), Quantised(0.3, 4)
    )
    check(model, [codes(np.int8, 1, 6, 5, 4)])


def test_a_bias_is_added_to_the_sums_whatever_scale_the_file_states_for_it(tmp_path):
    model = quantised_conv(
        np.int8,
        codes(np.int8, 3, 3, 3, 4),
        Quantised([0.01, 0.02, 0.005], 0, 0),
        Quantised(0.05, -7),
        Quantised(0.3, 4),
        bias_scale=0.07,
    )
    feeds = [codes(np.int8, 1, 6, 5, 4)]
    expected = check(model, feeds)
    written = tmp_path / "written.tflite"
    write_tflite(read(model), written)
    compare(run_litert(written.read_bytes(), feeds), expected)


def test_int8_depthwise_with_scales_by_channel():
    w = codes(np.int8, 1, 3, 3, 4)
    quantised = Quantised([0.01, 0.02, 0.005, 0.01], 0, 3)
    model = quantised_conv(
        np.int8,
        w,
        quantised,
        Quantised(0.05, -7),
        Quantised(0.1, 4),
        op="DEPTHWISE_CONV_2D",
        depth_multiplier=1,
    )
    check(model, [codes(np.int8, 1, 6, 5, 4)])


def test_uint8_with_zero_points():
    model = quantised_conv(
        np.uint8,
        codes(np.uint8, 3, 3, 3, 4),
        Quantised(0.02, 120),
        Quantised(0.05, 100),
        Quantised(0.5, 90),
    )
    check(model, [codes(np.uint8, 1, 6, 5, 4)])


def test_int16_activations_with_bias_of_64_bits():
    w = codes(np.int8, 3, 3, 3, 4)
    model = quantised_conv(
        np.int16,
        w,
        Quantised([0.01, 0.02, 0.005], 0, 0),
        Quantised(0.001),
        Quantised(0.003),
        np.int64,
    )
    check(model, [codes(np.int16, 1, 6, 5, 4)])


def test_weights_in_half_precision():
    model = Model()
    x = model.input((1, 5, 5, 2))
    half = model.const(floats(3, 2, 2, 2).astype(np.float16), np.float16)
    w = model.op("DEQUANTIZE", [half], (3, 2, 2, 2))
    model.output(
        model.op("CONV_2D", [x, w, model.const(floats(3))], (1, 5, 5, 3), stride_h=1, stride_w=1)
    )
    check(model, [floats(1, 5, 5, 2)])


def test_float_values_with_quantised_weights_are_close_to_what_litert_makes_of_them():
    """LiteRT quantises the values at every run, whence does not."""
    model = Model()
    x = model.input((1, 8, 8, 4))
    w = model.const(codes(np.int8, 3, 3, 3, 4), quantised=Quantised([0.01, 0.02, 0.005], 0, 0))
    model.output(
        model.op(
            "CONV_2D",
            [x, w, model.const(floats(3))],
            (1, 8, 8, 3),
            stride_h=1,
            stride_w=1,
            version=5,
        )
    )
    check(model, [floats(1, 8, 8, 4)], relative=0.02)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
@pytest.mark.parametrize("padding", [SAME, VALID])
def test_pools(name, padding):
    model = Model()
    x = model.input((2, 7, 6, 3))
    options: dict[str, Any] = {
        "filter_height": 3,
        "filter_width": 2,
        "stride_h": 2,
        "stride_w": 1,
        "padding": padding,
        "fused_activation_function": RELU6,
    }
    model.output(model.op(name, [x], (0, 0, 0, 3), **options))
    check(model, [floats(2, 7, 6, 3)])


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, -3), (np.uint8, 100), (np.int16, 0)])
@pytest.mark.parametrize("activation", [0, RELU])
def test_quantised_pools(name, dtype, zero, activation):
    model = Model()
    x = model.input((1, 6, 6, 2), dtype, Quantised(0.1, zero))
    options: dict[str, Any] = {
        "filter_height": 2,
        "filter_width": 2,
        "stride_h": 2,
        "stride_w": 2,
        "fused_activation_function": activation,
    }
    model.output(model.op(name, [x], (1, 3, 3, 2), dtype, Quantised(0.1, zero), **options))
    check(model, [codes(dtype, 1, 6, 6, 2)])


def test_largest_of_codes_is_taken_of_codes():
    model = Model()
    x = model.input((1, 4, 4, 2), np.int8, Quantised(0.1, 3))
    model.output(
        model.op(
            "MAX_POOL_2D",
            [x],
            (1, 2, 2, 2),
            np.int8,
            Quantised(0.1, 3),
            filter_height=2,
            filter_width=2,
            stride_h=2,
            stride_w=2,
        )
    )
    assert set(read(model).op_counts) == {"Input", "ChannelsLastMaxPool", "Output"}


def test_what_does_not_fit_is_refused():
    for shape, weights in (
        ((1, 5, 5, 3), (4, 3, 3, 2)),
        ((5, 5, 3), (4, 3, 3, 3)),
        ((1, 5, 5, 3), (4, 3, 3)),
    ):
        model = Model()
        x = model.input(shape)
        model.output(
            model.op(
                "CONV_2D",
                [x, model.const(np.ones(weights, np.float32)), -1],
                (1, 5, 5, 4),
                stride_h=1,
                stride_w=1,
            )
        )
        with pytest.raises(ModelError, match="CONV_2D"):
            read(model)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"stride_h": 0}, ModelError, "strides"),
        ({"fused_activation_function": 5}, UnsupportedError, "SIGN_BIT"),
    ],
)
def test_fields_without_meaning_are_refused(fields, error, message):
    model = Model()
    given = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2} | fields
    model.output(model.op("MAX_POOL_2D", [model.input((1, 4, 4, 2))], (1, 2, 2, 2), **given))
    with pytest.raises(error, match=message):
        read(model)
