"""The Fourier transform of real tensors, and the parts of complex numbers."""

from __future__ import annotations

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.types.inference import infer
from whence.types import DType, TensorType


def test_a_transform_by_its_definition():
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    (found,) = evaluate(Call("RealFourier2D", {}, (x, np.array([3, 4])), 1))
    rows, columns = (
        np.exp(-2j * np.pi * np.outer(range(3), range(3)) / 3),
        np.exp(-2j * np.pi * np.outer(range(4), range(3)) / 4),
    )
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, rows @ x @ columns, atol=1e-5)


def test_a_transform_of_another_length_pads_or_cuts():
    x = np.ones((2, 4), np.float32)
    (found,) = evaluate(Call("RealFourier2D", {}, (x, np.array([1, 8])), 1))
    assert found.shape == (1, 5)
    assert found[0, 0] == 4


def test_parts():
    z = np.array([3 + 4j, -1j], np.complex64)
    parts = [
        evaluate(Call(op, {}, (z,), 1))[0] for op in ("RealPart", "ImaginaryPart", "ComplexAbs")
    ]
    assert [part.tolist() for part in parts] == [[3, 0], [4, -1], [5, 1]]
    assert all(part.dtype == np.float32 for part in parts)


def test_types():
    types = (TensorType(DType.F32, ("n", 3, 4)), TensorType(DType.I64, (2,)))
    assert infer(TypeQuery("RealFourier2D", {}, types, (None, np.array([2, 8])), 1)) == (
        TensorType(DType.C64, ("n", 2, 5)),
    )
    assert infer(TypeQuery("RealFourier2D", {}, types, (None, None), 1)) == (
        TensorType(DType.C64, ("n", None, None)),
    )
    assert infer(TypeQuery("ComplexAbs", {}, (TensorType(DType.C64, (2,)),), (None,), 1)) == (
        TensorType(DType.F32, (2,)),
    )


@pytest.mark.parametrize("lengths", [[0, 4], [4], [1, 1 << 30]])
def test_lengths_that_are_none(lengths):
    with pytest.raises(ModelError, match="lengths"):
        evaluate(Call("RealFourier2D", {}, (np.ones((4, 4), np.float32), np.array(lengths)), 1))
