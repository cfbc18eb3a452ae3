"""The truth about products of 8-bit codes, on every machine.

ONNX Runtime is no judge of them: its kernels for AVX2 and AVX-512 without VNNI add two products of
an unsigned and a signed byte in 16 bits, which saturate (255 · 127 · 2 > 32767). It is exact where
the signed bytes have seven bits, in float32 where all partial sums are integers below 2^24, and for
constant weights with the session option session.x64quantprecision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.ops.oracle import onnxruntime_outputs

_EXACT_FLOAT32 = 1 << 24


def codes(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Codes of the whole range of a type."""
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def weight_codes(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Codes whose products ONNX Runtime adds exactly on every machine."""
    return seven_bits(codes(rng, dtype, *shape))


def seven_bits(values: np.ndarray) -> np.ndarray:
    """Signed bytes in seven bits: 255 · 64 · 2 < 32767. Products of two unsigned bytes are exact as
    they are.
    """
    return values // values.dtype.type(2) if values.dtype == np.int8 else values


def convolution_sums(
    attrs: Mapping[str, Any],
    x: np.ndarray,
    x_zero: np.ndarray | int,
    w: np.ndarray,
    w_zero: np.ndarray | int,
) -> np.ndarray:
    """The exact sums of a convolution of codes, by ONNX Runtime's convolution of real numbers.

    Zero points are numbers, or for weights one for each filter.
    """
    per_filter = np.asarray(w_zero).reshape(-1, *(1,) * (w.ndim - 1))
    left, right = x.astype(np.int64) - np.asarray(x_zero), w.astype(np.int64) - per_filter
    largest = int(np.abs(left).max()) * int(np.abs(right).reshape(len(w), -1).sum(axis=1).max())
    assert largest < _EXACT_FLOAT32, "a partial sum may be rounded"
    inputs = [left.astype(np.float32), right.astype(np.float32)]
    return onnxruntime_outputs("Conv", attrs, inputs)[0].astype(np.int64)


def requantised(sums: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Sums times scales in float32, rounded half to even, as ONNX Runtime does it: codes of the
    zero point's type.
    """
    info = np.iinfo(zero.dtype)
    rounded = np.rint(sums.astype(np.float32) * scale).astype(np.int64) + int(zero)
    return np.asarray(np.clip(rounded, info.min, info.max)).astype(zero.dtype)
