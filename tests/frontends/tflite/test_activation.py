"""Activations and normalisations without parameters, float and quantised, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, compare, run_litert, run_whence

RNG = np.random.default_rng(5)
X = RNG.normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
INT8 = Quantised(0.05, -3)


def one(
    name: str,
    shape: Any = X.shape,
    dtype: Any = np.float32,
    given: Quantised | None = None,
    made: Quantised | None = None,
    **options: Any,
) -> Model:
    model = Model()
    x = model.input(shape, dtype, given)
    model.output(model.op(name, [x], shape, dtype, made, **options))
    return model


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RELU", {}),
        ("RELU6", {}),
        ("RELU_N1_TO_1", {}),
        ("RELU_0_TO_1", {}),
        ("ELU", {}),
        ("HARD_SWISH", {}),
        ("LOGISTIC", {}),
        ("TANH", {}),
        ("GELU", {"approximate": True}),
        ("GELU", {"approximate": False}),
        ("LEAKY_RELU", {"alpha": 0.2}),
        ("SOFTMAX", {"beta": 1.0}),
        ("SOFTMAX", {"beta": 0.5}),
        ("LOG_SOFTMAX", {}),
        ("L2_NORMALIZATION", {}),
    ],
)
def test_float(name, options):
    # LiteRT has ELU in no reference form.
    check(one(name, **options), [X], reference=name != "ELU")


@pytest.mark.parametrize(
    ("name", "made", "options"),
    [
        ("RELU", INT8, {}),
        ("RELU6", INT8, {}),
        ("HARD_SWISH", INT8, {}),
        ("LOGISTIC", Quantised(1 / 256, -128), {}),
        ("TANH", Quantised(1 / 128, 0), {}),
        ("LEAKY_RELU", INT8, {"alpha": 0.2}),
        ("SOFTMAX", Quantised(1 / 256, -128), {"beta": 1.0}),
        ("L2_NORMALIZATION", Quantised(1 / 128, 0), {}),
        ("ELU", INT8, {}),
    ],
)
def test_quantised(name, made, options):
    codes = RNG.integers(-128, 128, X.shape).astype(np.int8)
    check(
        one(name, dtype=np.int8, given=INT8, made=made, **options), [codes], reference=name != "ELU"
    )


def test_quantised_to_16_bits():
    codes = RNG.integers(-32768, 32768, (4, 7)).astype(np.int16)
    check(
        one("LOGISTIC", (4, 7), np.int16, Quantised(1 / 4096), Quantised(1 / 32768)),
        [codes],
        quanta=4,
    )


def test_a_short_vector_is_divided_by_a_little_and_not_by_its_length():
    (made,) = check(
        one("L2_NORMALIZATION", (2, 3)), [np.array([[0, 0, 0], [1e-8, 0, 0]], np.float32)]
    )
    assert made[0, 0] == 0
    assert made[1, 0] == np.float32(1e-2)


@pytest.mark.parametrize("shape", [(1, 1, 5), (4, 5), (5,)])
def test_prelu_broadcasts_its_slopes(shape):
    model = Model()
    x = model.input(X.shape)
    slope = model.const(RNG.normal(size=shape).astype(np.float32))
    model.output(model.op("PRELU", [x, slope], X.shape))
    check(model, [X])


def test_local_response_normalisation_is_that_of_the_kernels_litert_uses():
    # Its reference kernels leave out the last channel of each window; those it runs models with,
    # and TensorFlow, do not.
    model = one("LOCAL_RESPONSE_NORMALIZATION", radius=1, bias=1.0, alpha=0.7, beta=0.5)
    compare(run_whence(model.bytes(), [X]), run_litert(model, [X], reference=False))
