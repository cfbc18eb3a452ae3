"""Where the wall time of one run went: kernels, and named gaps. In integers that add up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DISPATCH, IDLE, PROFILER, DROPPED = "dispatch", "idle", "profiler", "samples dropped"


@dataclass(frozen=True, slots=True)
class RunAccount:
    """`kernel_ns.sum() + sum(residual_ns.values()) == wall_ns`, exactly."""

    wall_ns: int
    steps: np.ndarray
    """The step of each sample, in order of time."""
    kernel_ns: np.ndarray
    """Nanoseconds of each sample, without the clock read in it."""
    residual_ns: dict[str, int]


def account(samples: np.ndarray, begin: int, end: int, native: np.ndarray, clock_ns: int, dropped: int = 0) -> RunAccount:
    """The account of one run that was submitted at `begin` and known to be done at `end`.

    `native` says by step number whether it is native code. Samples may not lie outside the run or overlap; should they, what is too much is cut off.
    """
    wall = max(0, end - begin)
    order = np.argsort(samples["begin"], kind="stable")
    steps = samples["step"][order].astype(np.int64)
    starts = np.clip(samples["begin"][order].astype(np.int64) - begin, 0, wall)
    # The end of what was seen so far: never goes back.
    ends = np.maximum.accumulate(np.maximum(np.clip(samples["end"][order].astype(np.int64) - begin, 0, wall), starts))
    before = np.concatenate([np.zeros(1, np.int64), ends])
    starts = np.maximum(starts, before[:-1])
    gaps = starts - before[:-1]
    is_native = native[steps] if len(steps) else np.zeros(0, bool)
    between = is_native.copy()
    between[1:] &= is_native[:-1]
    between[:1] = False
    paid = np.where(is_native, np.minimum(ends - starts, clock_ns), 0)
    idle = int(gaps[between].sum())
    lead = int(gaps[0]) if dropped and len(gaps) else 0
    residual = {DISPATCH: int(gaps.sum()) - idle - lead + wall - int(before[-1]), IDLE: idle, PROFILER: int(paid.sum())}
    if dropped:
        residual[DROPPED] = lead
    return RunAccount(wall, steps, ends - starts - paid, residual)
