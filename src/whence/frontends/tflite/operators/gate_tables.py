"""The sigmoid and tanh of LiteRT's integer LSTM for all arguments of 16 bits: its fixed-point
approximations, to the last bit.

A fixed-point number of 16 bits with n integer bits is a whole number times 2^(n - 15). The
exponential is a polynomial on [-1/4, 0) times powers of e, one for each bit of the argument; the
quotients are three steps of Newton's method. Every product is rounded to 16 bits, which is what
makes the results what they are.
"""

from __future__ import annotations

import functools

import numpy as np

_MOST, _LEAST = 32767, -32768
_ONE_THIRD = 10923
_E_TO_MINUS_EIGHTH = 28918
_48_OVER_17 = 23130
_MINUS_32_OVER_17 = -15420
_TWO_BITS_ONE = 1 << 13
# e^-(2^k) for k = -2 to 4, times 2^15.
_POWERS = {-2: 25520, -1: 19875, 0: 12055, 1: 4435, 2: 600, 3: 11, 4: 0}


def _saturated(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, _LEAST, _MOST))


def _times(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    """The product, of which the upper half is kept: rounded to nearest, halves up."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return _saturated(np.where(nudged >= 0, nudged >> 15, -((-nudged) >> 15)))


def _halved(x: np.ndarray, times: int) -> np.ndarray:
    """x / 2^times, rounded to nearest, halves away from zero."""
    mask = (1 << times) - 1
    threshold = (mask >> 1) + (x < 0)
    return (x >> times) + ((x & mask) > threshold)


def _exponential(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """e^x for x ≤ 0."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    inside = (x & (quarter - 1)) - quarter
    # On [-1/4, 0), around -1/8: e^(t - 1/8) with t² to t⁴ in the order in which the products are
    # rounded.
    t = _saturated(inside << integer_bits) + (1 << 12)
    square = _times(t, t)
    fourth = _halved(_times(square, square), 2)
    tail = _halved(_times(fourth + _times(square, t), _ONE_THIRD) + square, 1)
    result = _saturated(_E_TO_MINUS_EIGHTH + _times(t + tail, _E_TO_MINUS_EIGHTH))
    rest = inside - x
    for exponent, factor in _POWERS.items():
        if integer_bits > exponent:
            bit = rest & (1 << (fraction + exponent))
            result = np.where(bit != 0, _times(result, factor), result)
    return np.where(x == 0, _MOST, result)


def _newton(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) for x in [0, 1], with two integer bits."""
    total = x + _MOST
    half = (total + np.where(total >= 0, 1, -1)) >> 1
    guess = _48_OVER_17 + _times(half, _MINUS_32_OVER_17)
    for _ in range(3):
        guess = guess + _saturated(_times(guess, _TWO_BITS_ONE - _times(half, guess)) << 2)
    return guess


def _arguments() -> np.ndarray:
    return np.arange(_LEAST, _MOST + 1, dtype=np.int64)


@functools.cache
def sigmoid_table() -> np.ndarray:
    """By code, from the smallest: arguments with 3 integer bits, results with none."""
    x = _arguments()
    positive = _saturated(_newton(_exponential(-np.abs(x), 3)) << 1)
    return np.where(x == 0, 1 << 14, np.where(x > 0, positive, _MOST - positive)).astype(np.int16)


@functools.cache
def tanh_table(integer_bits: int) -> np.ndarray:
    """By code, from the smallest: arguments with `integer_bits`, results with no integer bits."""
    x = _arguments()
    # tanh |x| = (1 - e^-2|x|) / (1 + e^-2|x|); doubling the argument is reading it with one more
    # integer bit.
    size = _saturated((_newton(_exponential(-np.abs(x), integer_bits + 1)) - _TWO_BITS_ONE) << 2)
    return np.where(x == 0, 0, np.where(x < 0, -size, size)).astype(np.int16)
