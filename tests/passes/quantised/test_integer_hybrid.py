"""Real activations beside weights of 8 bits: codes found while the model runs, as LiteRT finds
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, run_litert
from tests.passes.quantised.litert import SAME, codes, operators, prepared

I8 = np.int8


def check(model: Model, x: np.ndarray, op: str) -> None:
    graph = prepared(model)
    assert operators(graph)[op] == 1
    (ours,), (theirs,) = graph.run([x]), run_litert(model, [x])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * float(np.abs(theirs).max()))


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Without -128: weights have none, and LiteRT's product of vectors takes it for another
    number.
    """
    return np.asarray(np.maximum(codes(rng, I8, *shape), -127)).astype(I8)


def _scales(count: int, per_channel: bool) -> list[float]:
    return (0.01 + 0.001 * np.arange(count)).astype(np.float32).tolist() if per_channel else [0.012]


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_fully_connected(
    rng: np.random.Generator, asymmetric: bool, per_channel: bool, with_bias: bool
) -> None:
    model = Model()
    x = model.input([5, 32])
    w = model.const(_weights(rng, 7, 32), None, Quantised(_scales(7, per_channel)))
    b = model.const(rng.standard_normal(7).astype(np.float32)) if with_bias else -1
    model.output(
        model.op(
            "FULLY_CONNECTED",
            [x, w, b],
            [5, 7],
            asymmetric_quantize_inputs=asymmetric,
            fused_activation_function=1,
            version=9,
        )
    )
    feed = (rng.standard_normal((5, 32)) + 0.7).astype(np.float32)
    # A row of nothing has no range to divide by, and one without negative numbers starts at zero.
    feed[1], feed[2] = 0.0, np.abs(feed[2])
    check(model, feed, "MatMulInteger")


@pytest.mark.parametrize("per_channel", [False, True])
def test_conv(rng: np.random.Generator, per_channel: bool) -> None:
    model = Model()
    x = model.input([1, 7, 6, 5])
    w = model.const(_weights(rng, 8, 3, 3, 5), None, Quantised(_scales(8, per_channel)))
    b = model.const(rng.standard_normal(8).astype(np.float32))
    fields: dict[str, Any] = {
        "padding": SAME,
        "stride_w": 1,
        "stride_h": 2,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    model.output(model.op("CONV_2D", [x, w, b], [1, 4, 6, 8], version=5, **fields))
    check(model, (rng.standard_normal((1, 7, 6, 5)) + 0.3).astype(np.float32), "IntegerConv")


def test_depthwise_conv(rng: np.random.Generator) -> None:
    model = Model()
    x = model.input([1, 8, 8, 4])
    w = model.const(_weights(rng, 1, 3, 3, 4), None, Quantised(_scales(4, True), 0, 3))
    b = model.const(rng.standard_normal(4).astype(np.float32))
    fields: dict[str, Any] = {
        "padding": SAME,
        "stride_w": 1,
        "stride_h": 1,
        "depth_multiplier": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    model.output(model.op("DEPTHWISE_CONV_2D", [x, w, b], [1, 8, 8, 4], version=6, **fields))
    check(model, rng.standard_normal((1, 8, 8, 4)).astype(np.float32), "IntegerConv")


def test_several_images_with_a_zero_point_each_stay_real(rng: np.random.Generator) -> None:
    model = Model()
    x = model.input([2, 4, 4, 5])
    w = model.const(_weights(rng, 8, 1, 1, 5), None, Quantised(_scales(8, True)))
    b = model.const(np.zeros(8, np.float32))
    fields: dict[str, Any] = {
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    model.output(model.op("CONV_2D", [x, w, b], [2, 4, 4, 8], version=5, **fields))
    assert "IntegerConv" not in operators(prepared(model))
