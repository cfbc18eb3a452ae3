"""Where the wall time of one run went: kernels, and named gaps. In integers that add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

DISPATCH, IDLE, PROFILER, DROPPED = "dispatch", "idle", "profiler", "samples dropped"


class Span(NamedTuple):
    """One run, in nanoseconds of the monotonic clock."""

    begin: int
    """It was asked for,"""
    taken_up: int
    """taken up,"""
    done: int
    """done,"""
    end: int
    """and the caller knew."""

    @property
    def elapsed(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class RunAccount:
    """`kernel_ns.sum() + sum(residual_ns.values()) == wall_ns`, exactly."""

    wall_ns: int
    steps: np.ndarray
    """The step of each sample, in order of time."""
    kernel_ns: np.ndarray
    """Nanoseconds of each sample, without the clock read in it."""
    waited_ns: np.ndarray
    """How much of that the caller waited for other threads to finish their part of the kernel."""
    residual_ns: dict[str, int]


def account(
    samples: np.ndarray,
    span: Span,
    native: np.ndarray,
    clock_ns: int,
    dropped: int = 0,
    gap: str = DISPATCH,
) -> RunAccount:
    """The account of one run. `native` says by step number whether it is native code; `gap` is what
    time between steps is called.

    Samples may not lie outside the run or overlap; should they, what is too much is cut off.
    """
    begin, wall = span.begin, max(0, span.elapsed)
    order = np.argsort(samples["begin"], kind="stable")
    steps = samples["step"][order].astype(np.int64)
    starts = np.clip(samples["begin"][order].astype(np.int64) - begin, 0, wall)
    # The end of what was seen so far: never goes back.
    ends = np.maximum.accumulate(
        np.maximum(np.clip(samples["end"][order].astype(np.int64) - begin, 0, wall), starts)
    )
    before = np.concatenate([np.zeros(1, np.int64), ends])
    starts = np.maximum(starts, before[:-1])
    gaps = starts - before[:-1]
    lengths = ends - starts
    paid = np.where(native[steps], np.minimum(lengths, clock_ns), 0)
    waited = np.minimum(samples["waited"][order].astype(np.int64), lengths - paid)
    # Before the first sample, and after the last.
    lead, tail = (int(gaps[0]), wall - int(before[-1])) if len(gaps) else (wall, 0)
    lost = lead if dropped and len(gaps) else 0
    idle = min(max(0, span.taken_up - begin), lead - lost) + min(max(0, span.end - span.done), tail)
    residual = {
        gap: int(gaps[1:].sum()) + lead + tail - lost - idle,
        IDLE: idle,
        PROFILER: int(paid.sum()),
    }
    if dropped:
        residual[DROPPED] = lost
    return RunAccount(wall, steps, lengths - paid, waited, residual)
