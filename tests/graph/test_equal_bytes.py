"""Comparing arrays bit by bit."""

from __future__ import annotations

import numpy as np

from whence.graph.equal_bytes import equal_bytes


def test_same_numbers_are_equal_wherever_they_lie() -> None:
    values = np.arange(300_000, dtype=np.float32).reshape(300, 1000)
    assert equal_bytes(values, values.copy())
    assert equal_bytes(values, np.asfortranarray(values))
    assert not equal_bytes(values, values[:-1])


def test_a_difference_in_the_last_byte_counts() -> None:
    values = np.zeros(1 << 20, np.uint8)
    other = values.copy()
    other[-1] = 1
    assert not equal_bytes(values, other)


def test_bits_are_compared_not_numbers() -> None:
    nan = np.array([np.nan], np.float32)
    assert equal_bytes(nan, nan.copy())
    assert not equal_bytes(np.array([0.0]), np.array([-0.0]))


def test_no_elements_are_equal() -> None:
    assert equal_bytes(np.zeros((0, 3)), np.zeros((3, 0)))
