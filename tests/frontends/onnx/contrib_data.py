"""Operands for tests of com.microsoft's operators."""

from __future__ import annotations

from typing import Any

import numpy as np

RNG = np.random.default_rng(11)
Arrays = dict[str, np.ndarray]


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def small(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    low, high = (0, 255) if dtype is np.uint8 else (-127, 127)
    return RNG.integers(low, high, shape).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


X = real(2, 3, 4)
IMAGE = real(1, 3, 6, 8)
U8 = np.array(120, np.uint8)
ZERO = np.array(0, np.uint8)
