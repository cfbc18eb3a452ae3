"""Damage to the bytes of files, and a limit on how long reading one may take."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Stuck(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for a fault of the file."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Stuck

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def mutations(data: bytes, count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Files cut off, with bits flipped, with bytes and words that claim extremes, and with parts of
    themselves in the wrong place.
    """
    for turn in range(count):
        yield damaged(data, turn % 6, rng)


def damaged(data: bytes, way: int, rng: np.random.Generator) -> bytes:
    """The file damaged in one of six ways."""
    words = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data), 0x10000, 0x40000000)
    found = bytearray(data)
    at = int(rng.integers(0, len(data)))
    match way:
        case 0:
            return data[:at]
        case 1 | 2:
            found[at] ^= 1 << int(rng.integers(0, 8))
        case 3:
            found[at] = int(rng.choice((0, 1, 0x7F, 0x80, 0xFF)))
        case 4:
            at &= ~3
            found[at : at + 4] = int(rng.choice(words)).to_bytes(4, "little")[: len(data) - at]
        case _:
            other, length = int(rng.integers(0, len(data))), int(rng.integers(1, 32))
            found[at : at + length] = data[other : other + length][: len(data) - at]
    return bytes(found[: len(data)])
