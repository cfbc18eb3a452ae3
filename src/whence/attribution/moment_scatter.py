"""By how much a kernel's time differs from one moment of a profile to another, beside the others.

Runs that follow each other share a moment: what others do on the machine lasts longer than a run.
So a hundred runs are no hundred independent measurements, and the error of a kernel's shortest time
does not fall with their number: two profiles may differ by as much as two moments of one do. What
slows down all kernels at a moment says nothing about one of them and is left out.
"""

from __future__ import annotations

import numpy as np

_FEWEST_RUNS, _MOMENTS = 8, 16
# A kernel with less of the whole says nothing about what slows down all.
_COUNTED = 0.005
# The standard deviation of a normal distribution, by the median distance from its median.
_PER_MEDIAN_DISTANCE = 1.48


def moment_scatter(times: np.ndarray) -> np.ndarray:
    """By kernel, as logarithms, of times by run and kernel in the order of the runs. 0 for a
    kernel that does not run, and for all where the runs are too few for two moments.
    """
    runs = max(_FEWEST_RUNS, len(times) // _MOMENTS)
    count = len(times) // runs
    if count < 2:
        return np.zeros(times.shape[1])
    shortest = np.maximum(times[: count * runs], 1).reshape(count, runs, -1).min(axis=1)
    least = shortest.min(axis=0)
    longer = np.log(shortest / least)
    counted = least >= _COUNTED * least.sum()
    beside = longer - np.median(longer[:, counted], axis=1, keepdims=True)
    # A kernel that does not run has no time to differ.
    beside[:, times.max(axis=0) <= 0] = 0.0
    found: np.ndarray = np.median(abs(beside - np.median(beside, axis=0)), axis=0)
    return _PER_MEDIAN_DISTANCE * found
