"""Damage to the bytes of files, and a limit on how long reading one may take."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Stuck(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for a fault of the file."""


_WAITING = 20
"""How many times longer something may take on a clock than on a processor, which it may share."""
_STARVED = 1e-3
"""A process that gets less of a processor than this is not waiting for its turn, but for nothing.
"""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Stuck` after so many seconds of a processor's time, or when it waits for something
    that does not come. On a busy machine, where others have the processor, that is later.
    """
    used = time.process_time()

    def computed(*_: Any) -> None:
        raise Stuck

    def waited(*_: Any) -> None:
        nonlocal used
        before, used = used, time.process_time()
        if used - before < _STARVED * _WAITING * seconds:
            raise Stuck

    clocks = (
        (signal.ITIMER_PROF, signal.SIGPROF, computed, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, waited, _WAITING * seconds),
    )
    former = [signal.signal(number, handler) for _, number, handler, _ in clocks]
    for timer, _, _, limit in clocks:
        signal.setitimer(timer, limit, limit)
    try:
        yield
    finally:
        for timer, _, _, _ in clocks:
            signal.setitimer(timer, 0)
        for (_, number, _, _), handler in zip(clocks, former, strict=True):
            signal.signal(number, handler)


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
