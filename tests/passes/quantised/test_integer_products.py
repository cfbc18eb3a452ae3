"""Convolutions and products of codes: the same bits as LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised
from tests.passes.quantised.litert import ACTIVATIONS, SAME, VALID, check, codes, coding, prepared
from whence.fusion import FusedGraph, find_groups, fuse

I8, U8, I16, I32, I64 = np.int8, np.uint8, np.int16, np.int32, np.int64
# Activations, weights, biases, and whether each output channel has its own scale.
KINDS = [(I8, I8, I32, True), (I8, I8, I32, False), (U8, U8, I32, False), (I16, I8, I64, True)]


def _weights(
    rng: np.random.Generator,
    model: Model,
    kind: tuple[Any, ...],
    shape: tuple[int, ...],
    axis: int,
    scale: float,
) -> tuple[int, int]:
    """Weights and a bias that fits them, the input's scale being `scale`."""
    _, dtype, wide, per_channel = kind
    count = shape[axis]
    scales = (
        (0.01 + 0.001 * np.arange(count)).astype(np.float32)
        if per_channel
        else np.array([0.012], np.float32)
    )
    w = model.const(
        codes(rng, dtype, *shape), None, Quantised(scales.tolist(), 121 if dtype is U8 else 0, axis)
    )
    bias = rng.integers(-2000, 2000, count).astype(wide)
    return w, model.const(bias, None, Quantised((scales * np.float32(scale)).tolist()))


def _kernels(model: Model) -> FusedGraph:
    graph = prepared(model)
    return fuse(graph, find_groups(graph))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_conv(rng: np.random.Generator, kind: tuple[Any, ...], activation: str) -> None:
    dtype = kind[0]
    model, scale = Model(), 0.02 if dtype is not I16 else 0.0002
    x = model.input([2, 7, 6, 5], dtype, coding(dtype, scale))
    w, b = _weights(rng, model, kind, (8, 3, 2, 5), 0, scale)
    fields: dict[str, Any] = {
        "padding": SAME,
        "stride_w": 1,
        "stride_h": 2,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    out = coding(dtype, 0.05 if dtype is not I16 else 0.0005)
    model.output(
        model.op(
            "CONV_2D",
            [x, w, b],
            [2, 4, 6, 8],
            dtype,
            out,
            fused_activation_function=ACTIVATIONS[activation],
            **fields,
        )
    )
    found = check(model, [codes(rng, dtype, 2, 7, 6, 5)])
    assert found["IntegerConv"] == 1
    assert found["FixedPointScale"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_dilated_conv(rng: np.random.Generator, kind: tuple[Any, ...]) -> None:
    dtype = kind[0]
    model, scale = Model(), 0.02 if dtype is not I16 else 0.0002
    x = model.input([1, 9, 9, 4], dtype, coding(dtype, scale))
    w, b = _weights(rng, model, kind, (6, 3, 3, 4), 0, scale)
    fields: dict[str, Any] = {
        "padding": VALID,
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 2,
        "dilation_h_factor": 3,
    }
    model.output(
        model.op(
            "CONV_2D",
            [x, w, b],
            [1, 3, 5, 6],
            dtype,
            coding(dtype, 0.04 if dtype is not I16 else 0.0004),
            **fields,
        )
    )
    check(model, [codes(rng, dtype, 1, 9, 9, 4)])


@pytest.mark.parametrize("kind", KINDS)
def test_depthwise_conv(rng: np.random.Generator, kind: tuple[Any, ...]) -> None:
    dtype = kind[0]
    model, scale = Model(), 0.02 if dtype is not I16 else 0.0002
    x = model.input([1, 8, 8, 4], dtype, coding(dtype, scale))
    w, b = _weights(rng, model, kind, (1, 3, 3, 8), 3, scale)
    fields: dict[str, Any] = {
        "padding": SAME,
        "stride_w": 2,
        "stride_h": 2,
        "depth_multiplier": 2,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    out = coding(dtype, 0.03 if dtype is not I16 else 0.0003)
    model.output(
        model.op(
            "DEPTHWISE_CONV_2D",
            [x, w, b],
            [1, 4, 4, 8],
            dtype,
            out,
            fused_activation_function=3,
            **fields,
        )
    )
    assert check(model, [codes(rng, dtype, 1, 8, 8, 4)])["IntegerConv"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_transpose_conv(rng: np.random.Generator, kind: tuple[Any, ...]) -> None:
    dtype = kind[0]
    model, scale = Model(), 0.02 if dtype is not I16 else 0.0002
    w, b = _weights(rng, model, kind, (3, 3, 3, 4), 0, scale)
    shape = model.const(np.array([1, 8, 10, 3], I32))
    x = model.input([1, 4, 5, 4], dtype, coding(dtype, scale))
    out = coding(dtype, 0.03 if dtype is not I16 else 0.0003)
    model.output(
        model.op(
            "TRANSPOSE_CONV",
            [shape, w, x, b],
            [1, 8, 10, 3],
            dtype,
            out,
            padding=SAME,
            stride_w=2,
            stride_h=2,
            version=3,
        )
    )
    assert check(model, [codes(rng, dtype, 1, 4, 5, 4)])["IntegerConvTranspose"] == 1


@pytest.mark.parametrize("kind", [*KINDS[:3], (I16, I8, I64, False)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_fully_connected(rng: np.random.Generator, kind: tuple[Any, ...], with_bias: bool) -> None:
    dtype = kind[0]
    model, scale = Model(), 0.02 if dtype is not I16 else 0.0002
    x = model.input([3, 2, 16], dtype, coding(dtype, scale))
    w, b = _weights(rng, model, kind, (5, 16), 0, scale)
    out = coding(dtype, 0.04 if dtype is not I16 else 0.0004)
    inputs = [x, w, b] if with_bias else [x, w, -1]
    model.output(
        model.op(
            "FULLY_CONNECTED",
            inputs,
            [6, 5],
            dtype,
            out,
            fused_activation_function=1 if with_bias else 0,
            version=4,
        )
    )
    found = check(model, [codes(rng, dtype, 3, 2, 16)])
    assert found["MatMul" if dtype is I16 else "MatMulInteger"] == 1


@pytest.mark.parametrize("dtype", [I8, I16])
@pytest.mark.parametrize(("left", "right"), [(False, False), (False, True)])
def test_batch_matmul(rng: np.random.Generator, dtype: Any, left: bool, right: bool) -> None:
    model, scale = Model(), 0.02 if dtype is I8 else 0.0002
    a = model.input([2, 4, 6], dtype, coding(dtype, scale))
    b_shape = (2, 5, 6) if right else (2, 6, 5)
    b = model.input(b_shape, dtype, coding(dtype, scale, -7))
    model.output(
        model.op(
            "BATCH_MATMUL",
            [a, b],
            [2, 4, 5],
            dtype,
            coding(dtype, scale * 2),
            adj_x=left,
            adj_y=right,
            version=3,
        )
    )
    check(model, [codes(rng, dtype, 2, 4, 6), codes(rng, dtype, *b_shape)])


def test_a_network_has_no_transposes_inside_and_one_kernel_for_each_layer(
    rng: np.random.Generator,
) -> None:
    model = Model()
    x = model.input([1, 16, 16, 3], I8, coding(I8, 0.02))
    for index, channels in enumerate((8, 16)):
        w, b = _weights(
            rng,
            model,
            KINDS[0],
            (channels, 3, 3, 3 if index == 0 else 8),
            0,
            0.02 if index == 0 else 0.05,
        )
        fields: dict[str, Any] = {
            "padding": SAME,
            "stride_w": 1,
            "stride_h": 1,
            "dilation_w_factor": 1,
            "dilation_h_factor": 1,
            "fused_activation_function": 1,
        }
        x = model.op(
            "CONV_2D",
            [x, w, b],
            [1, 16 >> index, 16 >> index, channels],
            I8,
            coding(I8, 0.05),
            **fields,
        )
        size = 8 >> index
        pool: dict[str, Any] = {
            "padding": VALID,
            "stride_w": 2,
            "stride_h": 2,
            "filter_width": 2,
            "filter_height": 2,
        }
        x = model.op(
            ["MAX_POOL_2D", "AVERAGE_POOL_2D"][index],
            [x],
            [1, size, size, channels],
            I8,
            coding(I8, 0.05),
            **pool,
        )
    model.output(x)
    found = check(model, [codes(rng, I8, 1, 16, 16, 3)])
    assert found["Transpose"] == 0
    assert found["IntegerConv"] == 2
    assert found["ChannelsLastMaxPool"] == found["ChannelsLastAveragePool"] == 1
    assert len(_kernels(model)) == 4


def test_a_residual_is_part_of_the_convolution_before_it(rng: np.random.Generator) -> None:
    model = Model()
    x = model.input([1, 8, 8, 4], I8, coding(I8, 0.02))
    w, b = _weights(rng, model, KINDS[0], (4, 3, 3, 4), 0, 0.02)
    fields: dict[str, Any] = {
        "padding": SAME,
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    y = model.op("CONV_2D", [x, w, b], [1, 8, 8, 4], I8, coding(I8, 0.05), **fields)
    model.output(
        model.op("ADD", [x, y], [1, 8, 8, 4], I8, coding(I8, 0.06), fused_activation_function=1)
    )
    check(model, [codes(rng, I8, 1, 8, 8, 4)])
    (entry,) = _kernels(model)
    assert entry.anchor.op == "IntegerConv"


@pytest.mark.parametrize("op", ["CONV_2D", "FULLY_CONNECTED"])
def test_weights_of_four_bits(rng: np.random.Generator, op: str) -> None:
    shape = (8, 1, 1, 16) if op == "CONV_2D" else (8, 16)
    weights = rng.integers(-7, 8, shape)
    packed = (weights.reshape(-1, 2)[:, 0] & 15) | ((weights.reshape(-1, 2)[:, 1] & 15) << 4)
    model, scales = Model(), (0.01 + 0.001 * np.arange(8)).astype(np.float32)
    places = [1, 4, 4, 16] if op == "CONV_2D" else [5, 16]
    x = model.input(places, I8, coding(I8, 0.02))
    w = model.tensor(
        shape,
        I8,
        Quantised(scales.tolist(), 0, 0),
        data=packed.astype(U8).tobytes(),
        type_name="INT4",
    )
    b = model.const(
        rng.integers(-2000, 2000, 8).astype(I32),
        None,
        Quantised((scales * np.float32(0.02)).tolist()),
    )
    fields: dict[str, Any] = (
        {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
        if op == "CONV_2D"
        else {}
    )
    model.output(
        model.op(op, [x, w, b], [*places[:-1], 8], I8, coding(I8, 0.01), version=7, **fields)
    )
    check(model, [codes(rng, I8, *places)])
