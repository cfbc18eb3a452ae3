"""What work takes when nobody disturbs it: the lower end of the distribution of its times.

The shortest of n runs is above that end by an unknown amount. Where the density is about constant
near the end, the distance of the shortest run from it, divided by the distance of the k-th shortest
run from the shortest one, exceeds t with the probability (1 + t)^(1 - k) (Robson and Whitlock 1964,
for k = 2). That gives a confidence interval, whatever the distribution is like further up; several
k are tried. Times that several runs agree on give a narrow interval, one lucky run gives a wide
one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RANKS = (3, 5, 8, 12, 18)
"""The k-th shortest runs that the lower end is estimated from."""
A_FIFTH = float(np.log(1.2))
# For a step with less of the whole, no more runs are asked for; the chance is that of a model with
# some fifty operators.
_LARGE, _CHANCE = 0.02, 1e-4
AGREEMENTS = 8.0
"""So many times as far as the shortest runs lie apart, a change is no noise."""
_AGREEING = 12


class LeastTimes(NamedTuple):
    """The lower end of each distribution is between both."""

    lower: np.ndarray
    upper: np.ndarray
    """The shortest run."""


def least_times(times: np.ndarray, chance: float) -> LeastTimes:
    """By column; that a lower end is below what is given as such has at most this chance, for each
    rank.
    """
    ordered = np.sort(times.astype(float), axis=0)
    shortest = ordered[0]
    lower = np.zeros_like(shortest)
    for rank in RANKS:
        if rank <= len(ordered):
            beyond = chance ** (-1.0 / (rank - 1)) - 1.0
            lower = np.maximum(lower, shortest - beyond * (ordered[rank - 1] - shortest))
    return LeastTimes(lower, shortest)


def width(times: LeastTimes) -> np.ndarray:
    """Of the intervals, as logarithms."""
    found: np.ndarray = np.log(np.maximum(times.upper, 1.0)) - np.log(np.maximum(times.lower, 1e-9))
    return found


def agreement(times: np.ndarray) -> np.ndarray:
    """How far the shortest runs lie apart, by column, as logarithms: what a dozen runs agree on is
    what the work takes undisturbed, however busy the machine was in the others. As far as the
    longest from the shortest where there are fewer.
    """
    ordered = np.log(np.maximum(np.sort(times.astype(float), axis=0), 1.0))
    found: np.ndarray = ordered[min(_AGREEING, len(ordered)) - 1] - ordered[0]
    return found


def are_known(times: np.ndarray) -> bool:
    """Whether these runs, by run and step, tell so much about every large step that half of a
    change of a fifth would be seen.
    """
    found = least_times(times, _CHANCE) if len(times) else None
    return found is not None and bool(np.all(width(found)[_large(found.upper)] <= A_FIFTH / 2))


def agree(times: np.ndarray) -> bool:
    """Whether of every large step a dozen of these runs, by run and step, agree so well that a
    change of a fifth is larger than what is noise by that.
    """
    if len(times) < _AGREEING:
        return False
    large = _large(times.min(axis=0).astype(float))
    return bool(np.all(AGREEMENTS * agreement(times)[large] < A_FIFTH))


def _large(least: np.ndarray) -> np.ndarray:
    """The steps with a good part of the whole."""
    found: np.ndarray = least >= _LARGE * max(1.0, float(least.sum()))
    return found
