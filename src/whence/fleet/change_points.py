"""Where a series changes for good: ruptures finds the points, SciPy says how sure they are.

1. Times become logarithms, in units of the noise between neighbouring nights: a change of 20 % is
   the same step for an operator of any size, and the noise of one night is 1.
2. `ruptures.KernelCPD` with the linear kernel (PELT with the cost of a change in the mean) divides
   them, with a penalty that grows with the logarithm of their number (the Bayesian criterion's).
3. The two sides of each point are compared by Mann and Whitney's test, which asks nothing of the
   noise's distribution: points that are not significant are dropped, the least significant first
   (backward elimination). Then all points of all series together by Benjamini and Yekutieli's, so
   that a thousand operators do not give ten alarms by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whence.errors import UnsupportedError
from whence.fleet.series import Series

_NORMAL = 1.4826
_LEAST_NIGHTS = 4
"""On each side of a change: fewer can be chance at any level that is worth something."""
_CHANCE = 1e-4
"""A point that is more likely by chance than this is no change, whatever else there is."""
_LEAST_NOISE = 0.005
"""What is called noise at least: clocks and counters are not better than this."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A series that took one time before a night and another from it on."""

    series: Series
    position: int
    """The first night after the change, as an index into the series."""
    before_ns: float
    after_ns: float
    noise: float
    """From one night to the next, as a part of the time."""
    p_value: float
    """How likely chance does as much somewhere among all that was looked at."""

    @property
    def night(self) -> str:
        return self.series.nights[self.position]

    @property
    def version(self) -> str:
        """The first that has the change."""
        return self.series.versions[self.position]

    @property
    def version_before(self) -> str:
        return self.series.versions[self.position - 1]

    @property
    def ratio(self) -> float:
        return self.after_ns / self.before_ns if self.before_ns else math.inf

    @property
    def confidence(self) -> float:
        return 1.0 - self.p_value


def find_changes(
    series: Sequence[Series], *, least: float = 0.05, level: float = 0.001
) -> list[ChangePoint]:
    """All changes, costliest first, of at least this relative size and at most this p-value."""
    try:
        import ruptures
        from scipy import stats
    except ImportError:
        raise UnsupportedError(
            "to find changes needs ruptures, which is not installed: pip install 'whence[fleet]'"
        ) from None
    found = [change for each in series for change in _candidates(ruptures, stats, each)]
    if not found:
        return []
    adjusted = stats.false_discovery_control([change.p_value for change in found], method="by")
    changes = []
    for change, p_value in zip(found, adjusted, strict=True):
        is_large = abs(math.log(change.ratio)) >= max(math.log1p(least), change.noise)
        if p_value <= level and is_large:
            changes.append(replace(change, p_value=float(p_value)))
    return sorted(changes, key=lambda change: change.before_ns - change.after_ns)


def _candidates(ruptures: Any, stats: Any, series: Series) -> list[ChangePoint]:
    times = series.times
    if len(times) < 2 * _LEAST_NIGHTS or not (times > 0).all():
        return []
    logs = np.log(times)
    noise = max(noise_of(logs), _LEAST_NOISE)
    steps = (logs - np.median(logs)) / noise
    penalty = 3.0 * math.log(len(times))
    search = ruptures.KernelCPD(kernel="linear", min_size=_LEAST_NIGHTS)
    ends = search.fit(steps.reshape(-1, 1)).predict(pen=penalty)
    found = []
    for (begin, middle, end), chance in _pruned(stats, times, [int(end) for end in ends[:-1]]):
        was, now = float(np.median(times[begin:middle])), float(np.median(times[middle:end]))
        found.append(ChangePoint(series, middle, was, now, noise, chance))
    return found


def _pruned(
    stats: Any, times: np.ndarray, points: list[int]
) -> list[tuple[tuple[int, int, int], float]]:
    """The points without those that chance explains, the least likely change first: without them
    their neighbours have more nights to be judged by. Of each, where the nights before it begin,
    itself, and where those after it end; and how likely chance does as much.
    """
    while points:
        sides = list(zip([0, *points], points, [*points[1:], len(times)], strict=False))
        values = [float(stats.mannwhitneyu(times[a:b], times[b:c]).pvalue) for a, b, c in sides]
        worst = max(range(len(points)), key=values.__getitem__)
        if values[worst] <= _CHANCE:
            return list(zip(sides, values, strict=True))
        points = [point for number, point in enumerate(points) if number != worst]
    return []


def noise_of(logs: np.ndarray) -> float:
    """The usual difference from one night to the next, as a standard deviation; a change now and
    then does not show in it.
    """
    return float(_NORMAL * np.median(np.abs(np.diff(logs))) / math.sqrt(2))
