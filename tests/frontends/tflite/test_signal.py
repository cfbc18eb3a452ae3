"""Fourier transforms and complex numbers, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, check, read
from whence.errors import ModelError

RNG = np.random.default_rng(12)


@pytest.mark.parametrize("lengths", [(1, 16), (4, 8), (2, 32)])
@pytest.mark.parametrize("then", ["COMPLEX_ABS", "REAL", "IMAG", "CAST"])
def test_a_transform_of_real_numbers(lengths, then):
    x = RNG.normal(size=(2, 4, 16)).astype(np.float32)
    out = (2, lengths[0], lengths[1] // 2 + 1)
    model = Model()
    turned = model.op(
        "RFFT2D",
        [model.input(x.shape), model.const(lengths, np.int32)],
        out,
        np.complex64,
        options="Rfft2dOptions",
    )
    model.output(model.op(then, [turned], out))
    check(model, [x], reference=False)


def test_lengths_that_are_none():
    model = Model()
    turned = model.op(
        "RFFT2D",
        [model.input((4, 4)), model.const([0, 4], np.int32)],
        (1, 3),
        np.complex64,
        options="Rfft2dOptions",
    )
    model.output(model.op("REAL", [turned], (1, 3)))
    with pytest.raises(ModelError, match="lengths"):
        read(model.bytes())
