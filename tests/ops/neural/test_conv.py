from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.exact_integers import codes, convolution_sums, requantised, weight_codes
from tests.ops.oracle import (
    assert_close,
    assert_infers,
    case_name,
    check_node_case,
    evaluate,
    flops,
    onnxruntime_outputs,
    parameters,
)
from whence.errors import ModelError
from whence.ops.definition import TypeQuery
from whence.ops.neural import conv as module
from whence.ops.neural.conv import OPS
from whence.types import DType, TensorType

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {
    "Conv": "conv",
    "ConvTranspose": "convtranspose",
    "ConvInteger": "convinteger",
    "QLinearConv": "qlinearconv",
    "DeformConv": "deformconv",
    "Col2Im": "col2im",
    "CausalConvWithState": "causal_conv_with_state",
}


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


def random_convolution(seed):
    """Attributes, input, weights and bias of a small random convolution that ONNX Runtime
    accepts.
    """
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    rank, group = pick.choice([1, 2, 2, 3]), pick.choice([1, 1, 2, 3, 4])
    per_group, filters = pick.choice([1, 2, 3]), pick.choice([1, 2, 4])
    kernel = tuple(pick.randint(1, 3) for _ in range(rank))
    attrs = {"group": group, "strides": tuple(pick.randint(1, 3) for _ in kernel)}
    padding = pick.choice(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if padding == "pads":
        attrs["pads"] = tuple(pick.randint(0, 2) for _ in range(2 * rank))
    else:
        attrs["auto_pad"] = padding
    if not padding.startswith("SAME"):
        attrs["dilations"] = tuple(pick.randint(1, 2) for _ in kernel)
    x = rng.standard_normal(
        (pick.choice([1, 2]), group * per_group, *(pick.randint(5, 9) for _ in kernel)),
        dtype=np.float32,
    )
    w = rng.standard_normal((group * filters, per_group, *kernel), dtype=np.float32)
    bias = rng.standard_normal(group * filters, dtype=np.float32) if pick.random() < 0.5 else None
    return attrs, x, w, bias


@pytest.mark.parametrize("seed", range(60))
def test_conv_like_onnxruntime(seed):
    attrs, x, w, bias = random_convolution(seed)
    inputs = [x, w] if bias is None else [x, w, bias]
    (actual,) = evaluate(DEFINITIONS["Conv"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("Conv", attrs, inputs)[0])
    assert_infers(DEFINITIONS["Conv"], attrs, inputs, [actual])


def test_conv_in_many_pieces_is_the_same(rng, monkeypatch):
    x, w = (
        rng.standard_normal((2, 4, 9, 10), dtype=np.float32),
        rng.standard_normal((6, 2, 3, 3), dtype=np.float32),
    )
    attrs: dict[str, Any] = {"group": 2, "pads": (1, 0, 2, 1)}
    (whole,) = evaluate(DEFINITIONS["Conv"], attrs, [x, w])
    monkeypatch.setattr(module, "_COLUMN_BYTES", 1)
    (pieces,) = evaluate(DEFINITIONS["Conv"], attrs, [x, w])
    np.testing.assert_allclose(pieces, whole, rtol=1e-6, atol=1e-6)


def test_depthwise_in_many_blocks_is_the_same(rng, monkeypatch):
    x, w = (
        rng.standard_normal((2, 5, 9, 10), dtype=np.float32),
        rng.standard_normal((10, 1, 3, 3), dtype=np.float32),
    )
    (whole,) = evaluate(DEFINITIONS["Conv"], {"group": 5}, [x, w])
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 1)
    (blocks,) = evaluate(DEFINITIONS["Conv"], {"group": 5}, [x, w])
    np.testing.assert_array_equal(blocks, whole)


def test_same_padding_reckons_with_dilation(rng):
    # ONNX Runtime refuses this; ONNX's text and inference define it.
    x, w = rng.standard_normal((1, 1, 7), dtype=np.float32), np.ones((1, 1, 3), np.float32)
    (actual,) = evaluate(DEFINITIONS["Conv"], {"auto_pad": "SAME_UPPER", "dilations": (2,)}, [x, w])
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2)))
    np.testing.assert_allclose(
        actual, padded[:, :, :7] + padded[:, :, 2:9] + padded[:, :, 4:11], rtol=1e-6
    )


@pytest.mark.parametrize("seed", range(60))
def test_conv_transpose_like_onnxruntime(seed):
    pick = random.Random(seed)
    attrs, x, w, bias = random_convolution(seed)
    group, per_group, kernel = attrs["group"], w.shape[1], w.shape[2:]
    filters = w.shape[0] // group
    w = w.reshape(group * per_group, filters, *kernel)
    strides, dilations = attrs["strides"], attrs.get("dilations", (1,) * len(kernel))
    for name in ("pads", "auto_pad"):
        attrs.pop(name, None)
    kind = pick.choice(
        ["pads", "SAME_UPPER", "SAME_LOWER", "VALID", "output_shape", "output_shape"]
    )
    if kind == "output_shape":
        full = [
            (size - 1) * stride + (k - 1) * d + 1
            for size, stride, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
        ]
        attrs["output_shape"] = tuple(size - pick.randint(0, 3) for size in full)
        if pick.random() < 0.5:
            attrs["auto_pad"] = pick.choice(["SAME_UPPER", "SAME_LOWER"])
    elif kind == "pads":
        attrs["pads"] = tuple(pick.randint(0, 1) for _ in range(2 * len(kernel)))
        attrs["output_padding"] = tuple(pick.randint(0, stride - 1) for stride in strides)
    elif kind == "VALID" or all(
        (k - 1) * d + 1 >= stride for k, d, stride in zip(kernel, dilations, strides, strict=True)
    ):
        # With a kernel smaller than the stride ONNX Runtime does not reach the size that SAME
        # promises.
        attrs["auto_pad"] = kind
    inputs = [x, w] if bias is None else [x, w, bias]
    (actual,) = evaluate(DEFINITIONS["ConvTranspose"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("ConvTranspose", attrs, inputs)[0])
    assert_infers(DEFINITIONS["ConvTranspose"], attrs, inputs, [actual])


@pytest.mark.parametrize("seed", range(20))
def test_integer_convolutions_are_exact(seed):
    attrs, x, w, _ = random_convolution(seed)
    rng = np.random.default_rng(seed)
    xi, wi = codes(rng, np.uint8, *x.shape), codes(rng, np.uint8, *w.shape)
    zeros = [np.array(rng.integers(0, 256), np.uint8) for _ in range(2)]
    sums = convolution_sums(attrs, xi, zeros[0], wi, zeros[1])
    inputs = [xi, wi, *zeros]
    (actual,) = evaluate(DEFINITIONS["ConvInteger"], attrs, inputs)
    assert_close(actual, sums.astype(np.int32))
    assert_close(actual, onnxruntime_outputs("ConvInteger", attrs, inputs)[0])


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("seed", range(20))
def test_quantised_convolutions_are_exact(seed, bits):
    attrs, x, w, _ = random_convolution(seed)
    rng = np.random.default_rng(seed)
    filters = w.shape[0]
    draw = codes if bits == 8 else weight_codes
    xi, wi = codes(rng, np.uint8, *x.shape), draw(rng, np.int8, *w.shape)
    x_zero, y_zero = np.array(rng.integers(0, 256), np.uint8), np.array(100, np.uint8)
    x_scale, y_scale = np.array(0.02, np.float32), np.array(0.2, np.float32)
    scales = rng.uniform(0.01, 0.03, filters).astype(np.float32)
    bias = rng.integers(-1000, 1000, filters).astype(np.int32)
    zeros = np.zeros(filters, np.int8)
    inputs = [xi, x_scale, x_zero, wi, scales, zeros, y_scale, y_zero, bias]
    (actual,) = evaluate(DEFINITIONS["QLinearConv"], attrs, inputs)
    each = (-1, *(1,) * (x.ndim - 2))
    sums = convolution_sums(attrs, xi, x_zero, wi, 0) + bias.reshape(each)
    assert_close(actual, requantised(sums, (x_scale * scales / y_scale).reshape(each), y_zero))
    if bits == 7:
        assert_close(actual, onnxruntime_outputs("QLinearConv", attrs, inputs)[0])


def test_float64_stays_float64(rng):
    x, w = rng.standard_normal((1, 3, 8, 8)), rng.standard_normal((4, 3, 3, 3))
    (y,) = evaluate(DEFINITIONS["Conv"], {}, [x, w])
    expected = np.einsum(
        "nchwij,mcij->nmhw", np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3)), w
    )
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def test_unknown_dimensions_stay_unknown():
    definition = DEFINITIONS["Conv"]
    assert definition.infer is not None
    types = (TensorType(DType.F32, ("batch", 3, None, 224)), TensorType(DType.F32, (64, 3, 7, 7)))
    query = TypeQuery("Conv", {"strides": (2, 2), "pads": (3, 3, 3, 3)}, types, (None, None), 1)
    assert definition.infer(query) == TensorType(DType.F32, ("batch", 64, None, 112))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"strides": (1,)}, "do not fit 2 spatial axes"),
        ({"strides": (0, 1)}, "must be positive"),
        ({"auto_pad": "SOME"}, "unknown auto_pad 'SOME'"),
        ({"group": 2}, "in 2 groups do not fit"),
        ({"dilations": (9, 9)}, "larger than the padded input"),
    ],
)
def test_faults_of_the_model_are_named(attrs, message):
    with pytest.raises(ModelError, match=message):
        evaluate(
            DEFINITIONS["Conv"],
            attrs,
            [np.ones((1, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)],
        )


def test_flops():
    x, w, y = np.ones((1, 4, 8, 8)), np.ones((6, 2, 3, 3)), np.ones((1, 6, 8, 8))
    assert flops(DEFINITIONS["Conv"], {"group": 2}, [x, w], [y]) == 2 * 6 * 64 * 2 * 9
    assert (
        flops(DEFINITIONS["ConvTranspose"], {}, [x, np.ones((4, 6, 3, 3))], [y])
        == 2 * 4 * 64 * 6 * 9
    )
