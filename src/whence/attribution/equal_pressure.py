"""How long operators took in two profiles where others used the machine's caches as much.

What others do in shared caches and memory slows down the operators that live on those, all of them
at once. Some runs of one profile found the caches free, and none of another did: the shortest times
of such operators are then times of two different things. But these operators tell about each other:
where the shortest hundredth of the runs of most of them is longer than in the other profile, that
hundredth was under pressure. So an operator is compared by those parts of both profiles' runs in
which its companions took as long: the shortest such parts that there are in both.
"""

from __future__ import annotations

import numpy as np

FRACTIONS = (
    *(0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.13),
    *(0.16, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7),
)
"""The parts of a profile's runs that took no longer than what is kept for each kernel."""
# Fewer companions do not outvote one that changed itself.
_FEWEST_COMPANIONS = 4
# What is compared: three levels of pressure from the lowest that both profiles have, up to a third
# of the way to what a tenth of the runs had.
_UPPER, _PARTS = FRACTIONS.index(0.13), (0.0, 1 / 6, 1 / 3)


def quantiles(times: np.ndarray) -> np.ndarray:
    """By fraction and column, of times by run and column."""
    found: np.ndarray = np.quantile(times, FRACTIONS, axis=0, method="lower")
    return found


def moved_at_equal_pressure(
    one: np.ndarray, two: np.ndarray, companions: np.ndarray
) -> np.ndarray | None:
    """By how much each of the `companions` became slower, of logarithms of times by fraction and
    operator; `None` where those are too few.
    """
    numbers = np.flatnonzero(companions)
    if len(numbers) <= _FEWEST_COMPANIONS:
        return None
    shortest = np.minimum(one[0], two[0])
    moved: np.ndarray = two[0] - one[0]
    for number in numbers:
        others = numbers[numbers != number]
        # Kernels of a few microseconds have troubles of their own, and one large operator that
        # changed must not speak for all.
        weights = np.exp(shortest[others] / 2)
        weights = np.minimum(weights, weights.sum() / 4)
        first, second = (
            np.maximum.accumulate(_weighted_median(each[:, others] - shortest[others], weights))
            for each in (one, two)
        )
        lowest = max(first[0], second[0])
        upper = max(lowest, min(first[_UPPER], second[_UPPER]))
        levels = [lowest + part * (upper - lowest) for part in _PARTS]
        moved[number] = np.mean(
            np.interp(levels, second, two[:, number]) - np.interp(levels, first, one[:, number])
        )
    return moved


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of each row."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(weights[order], axis=1)
    middle = np.argmax(below >= 0.5 * weights.sum(), axis=1)
    found: np.ndarray = np.take_along_axis(values, order, axis=1)[np.arange(len(values)), middle]
    return found
