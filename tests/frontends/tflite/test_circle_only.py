"""Operators that only Circle has, against onert where it has them, else against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, compare, read, run_onert, run_whence
from whence.errors import ModelError, UnsupportedError

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 7, 3)])
def test_instance_normalisation(shape):
    x = RNG.normal(size=shape).astype(np.float32)
    gamma, beta = (
        RNG.normal(size=shape[-1]).astype(np.float32),
        RNG.normal(size=shape[-1]).astype(np.float32),
    )
    model = Model(circle=True)
    inputs = [model.input(shape), model.const(gamma), model.const(beta)]
    model.output(
        model.op("INSTANCE_NORM", inputs, shape, epsilon=1e-3, fused_activation_function=1)
    )
    axes = tuple(range(1, len(shape) - 1))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    (made,) = run_whence(model, [x])
    np.testing.assert_allclose(
        made,
        np.maximum((x - mean) / np.sqrt(variance + 1e-3) * gamma + beta, 0),
        rtol=1e-4,
        atol=1e-5,
    )


def test_rms_normalisation():
    x, gamma = RNG.normal(size=(2, 3, 8)).astype(np.float32), RNG.normal(size=8).astype(np.float32)
    model = Model(circle=True)
    model.output(
        model.op("RMS_NORM", [model.input(x.shape), model.const(gamma)], x.shape, epsilon=1e-5)
    )
    compare(run_whence(model, [x]), run_onert(model, [x]))


def test_sizes_that_are_only_declared_take_no_memory():
    model = Model(circle=True)
    shape = (1, 2**31 - 1)
    model.output(model.op("RMS_NORM", [model.input(shape), -1], shape, epsilon=1e-5))
    with pytest.raises(UnsupportedError, match="2147483647 elements along an axis"):
        read(model)


def test_rotary_embedding():
    x = RNG.normal(size=(1, 2, 3, 8)).astype(np.float32)
    angles = RNG.normal(size=(1, 1, 1, 8)).astype(np.float32)
    model = Model(circle=True)
    model.output(
        model.op(
            "ROPE",
            [model.input(x.shape), model.const(np.sin(angles)), model.const(np.cos(angles))],
            x.shape,
            mode=0,
        )
    )
    compare(run_whence(model, [x]), run_onert(model, [x]))


def test_rotary_embedding_in_a_mode_that_nobody_defines():
    model = Model(circle=True)
    table = model.const(np.ones((1, 1, 1, 8), np.float32))
    model.output(model.op("ROPE", [model.input((1, 2, 3, 8)), table, table], (1, 2, 3, 8), mode=1))
    with pytest.raises(UnsupportedError, match="GPT-J"):
        read(model)


WIDTH = 40
CLUSTERS = np.array([[2, 3], [1, 4]], np.int32)
"""Three rows of two bits, four of one."""


def binary_weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales, words and the weights they stand for."""
    signs = RNG.integers(0, 2, (2 * 3 + 1 * 4, WIDTH)).astype(np.uint8)
    scales = RNG.random(len(signs)).astype(np.float32)
    padded = np.zeros((len(signs), 64), np.uint8)
    padded[:, :WIDTH] = signs
    words = np.packbits(padded, axis=1, bitorder="little").view(np.int32)
    scaled = (signs * 2.0 - 1) * scales[:, None]
    return (
        scales,
        words,
        np.concatenate([scaled[0:3] + scaled[3:6], scaled[6:10]]).astype(np.float32),
    )


def test_weights_in_binary_codes():
    scales, words, weights = binary_weights()
    x, bias = RNG.normal(size=(WIDTH, 2)).astype(np.float32), RNG.normal(size=7).astype(np.float32)
    model = Model(circle=True)
    inputs = [
        model.input(x.shape),
        *(model.const(each) for each in (scales, words, bias, CLUSTERS)),
    ]
    made = model.op(
        "BCQ_FULLY_CONNECTED",
        inputs,
        (7, 2),
        options="BCQFullyConnectedOptions",
        weights_hidden_size=WIDTH,
    )
    model.output(made)
    (found,) = run_whence(model, [x])
    np.testing.assert_allclose(found, weights @ x + bias[:, None], rtol=1e-4, atol=1e-5)


def test_rows_in_binary_codes():
    scales, words, weights = binary_weights()
    model = Model(circle=True)
    inputs = [
        model.const(scales),
        model.const(words),
        model.input((3,), np.int32),
        model.const(CLUSTERS),
    ]
    model.output(
        model.op(
            "BCQ_GATHER",
            inputs,
            (3, WIDTH),
            options="BCQGatherOptions",
            input_hidden_size=WIDTH,
            axis=0,
        )
    )
    (found,) = run_whence(model, [np.array([6, 0, 2], np.int32)])
    np.testing.assert_allclose(found, weights[[6, 0, 2]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clusters", [[[2, 3]], [[-1, 3], [1, 4]], [[2**31 - 1, 2**31 - 1]]])
def test_clusters_that_do_not_fit(clusters):
    scales, words, _ = binary_weights()
    model = Model(circle=True)
    inputs = [
        model.const(scales),
        model.const(words),
        model.input((3,), np.int32),
        model.const(clusters, np.int32),
    ]
    model.output(
        model.op(
            "BCQ_GATHER",
            inputs,
            (3, WIDTH),
            options="BCQGatherOptions",
            input_hidden_size=WIDTH,
            axis=0,
        )
    )
    with pytest.raises(ModelError, match="do not fit"):
        read(model)
