from __future__ import annotations

import random

import numpy as np
import pytest

from tests.ops.oracle import (
    assert_close,
    assert_infers,
    case_name,
    check_node_case,
    evaluate,
    onnxruntime_outputs,
    parameters,
)
from whence.ops.neural.norm import OPS

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {
    "BatchNormalization": "batch_normalization",
    "InstanceNormalization": "instance_normalization",
    "GroupNormalization": "groupnormalization",
    "LayerNormalization": "layernormalization",
    "RMSNormalization": "rmsnormalization",
    "LpNormalization": "lpnormalization",
    "MeanVarianceNormalization": "meanvariancenormalization",
    "LRN": "lrn",
    "Softmax": "softmax",
    "LogSoftmax": "logsoftmax",
    "Hardmax": "hardmax",
}


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


def compare(op, attrs, inputs, opset, rtol=1e-5, atol=1e-5):
    (actual,) = evaluate(DEFINITIONS[op], attrs, inputs)
    assert_close(actual, onnxruntime_outputs(op, attrs, inputs, opset=opset)[0], rtol, atol)
    if DEFINITIONS[op].infer is not None:
        assert_infers(DEFINITIONS[op], attrs, inputs, [actual])


@pytest.mark.parametrize("seed", range(20))
def test_channel_norms_like_onnxruntime(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    channels = pick.choice([2, 4, 6])
    x = rng.standard_normal(
        (2, channels, *(pick.randint(1, 6) for _ in range(pick.randint(1, 3)))), dtype=np.float32
    )
    scale, bias, mean, variance = rng.standard_normal((4, channels), dtype=np.float32)
    epsilon = {"epsilon": pick.choice([1e-5, 1e-3])}
    compare("BatchNormalization", epsilon, [x, scale, bias, mean, np.abs(variance)], 15)
    compare("InstanceNormalization", epsilon, [x, scale, bias], 16, rtol=1e-4, atol=1e-4)
    compare("GroupNormalization", {"num_groups": 2, **epsilon}, [x, scale, bias], 21)


@pytest.mark.parametrize("seed", range(20))
def test_axis_norms_like_onnxruntime(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    x = rng.standard_normal(
        tuple(pick.randint(1, 6) for _ in range(pick.randint(1, 4))), dtype=np.float32
    )
    axis = pick.randint(-x.ndim, x.ndim - 1)
    scale, bias = rng.standard_normal((2, *x.shape[axis:]), dtype=np.float32)
    epsilon = {"epsilon": pick.choice([1e-5, 1e-3])}
    compare("RMSNormalization", {"axis": axis, **epsilon}, [x, scale], 23)
    compare("LpNormalization", {"axis": axis, "p": pick.choice([1, 2])}, [x], 22)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        compare(op, {"axis": axis}, [x], 13)
    inputs = [x, scale, bias] if pick.random() < 0.7 else [x, scale]
    actual = evaluate(DEFINITIONS["LayerNormalization"], {"axis": axis, **epsilon}, inputs, 3)
    expected = onnxruntime_outputs(
        "LayerNormalization", {"axis": axis, **epsilon}, inputs, 3, opset=17
    )
    # A vector of one element has no spread: the reciprocal of its deviation is that of epsilon,
    # whatever rounding leaves of it.
    for ours, theirs in zip(actual, expected, strict=True):
        assert_close(ours, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("op", ["GroupNormalization", "LayerNormalization", "RMSNormalization"])
def test_float16_like_onnxruntime(rng, op):
    x = rng.standard_normal((2, 4, 6)).astype(np.float16)
    attrs, width = ({"num_groups": 2}, 4) if op == "GroupNormalization" else ({"axis": -1}, 6)
    scale, bias = rng.standard_normal((2, width)).astype(np.float16)
    inputs = [x, scale] if op == "RMSNormalization" else [x, scale, bias]
    compare(op, attrs, inputs, 23, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_local_response_like_onnxruntime(rng, size):
    x = rng.standard_normal((2, 7, 3, 4), dtype=np.float32)
    attrs = {"size": size, "alpha": 0.1, "beta": 0.6, "bias": 1.5}
    if size % 2:
        # ONNX Runtime takes odd sizes only.
        compare("LRN", attrs, [x], 13)
    (actual,) = evaluate(DEFINITIONS["LRN"], attrs, [x])
    for channel in range(7):
        near = x[:, max(0, channel - (size - 1) // 2) : channel + size // 2 + 1]
        expected = x[:, channel] / (1.5 + 0.1 / size * np.square(near).sum(axis=1)) ** 0.6
        np.testing.assert_allclose(actual[:, channel], expected, rtol=1e-5)


def test_batch_norm_in_training_moves_its_statistics(rng):
    x = rng.standard_normal((4, 3, 5)) * 2 + 1
    scale, bias, mean, variance = np.ones(3), np.zeros(3), np.zeros(3), np.ones(3)
    attrs = {"training_mode": 1, "momentum": 0.75}
    y, new_mean, new_variance = evaluate(
        DEFINITIONS["BatchNormalization"], attrs, [x, scale, bias, mean, variance], 3
    )
    np.testing.assert_allclose(y.mean(axis=(0, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=(0, 2)), 1, atol=1e-4)
    np.testing.assert_allclose(new_mean, 0.25 * x.mean(axis=(0, 2)))
    np.testing.assert_allclose(new_variance, 0.75 + 0.25 * x.var(axis=(0, 2)))


def test_softmax_of_large_numbers_does_not_overflow():
    (y,) = evaluate(DEFINITIONS["Softmax"], {}, [np.array([[1e30, 1e30, -1e30]], np.float32)])
    np.testing.assert_array_equal(y, [[0.5, 0.5, 0.0]])


def test_a_vector_of_zeros_has_no_direction():
    (y,) = evaluate(DEFINITIONS["LpNormalization"], {"p": 2}, [np.zeros((2, 3), np.float32)])
    np.testing.assert_array_equal(y, np.zeros((2, 3)))
