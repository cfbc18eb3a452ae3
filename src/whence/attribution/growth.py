"""How a time grows with a size: it stays, grows with it, or with its square.

The times at several sizes are fitted by `a + b·n + c·n²` with coefficients that are not negative,
by least squares of the relative differences, so that short times count as much as long ones. The
simplest form is taken that explains the times as well as they can be explained: within the noise of
the measurement, or nearly as well as the best form.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.building.json_records import in_json

_FITS = 0.1
"""A form whose times are off by less than this part, in the mean, explains them."""
_MOST_NOISE = 0.25
"""However noisy the machine is, a form that is off by more than this explains nothing."""
_NEARLY = 1.1
"""A simpler form may be off by so much more than the best one."""


class GrowthKind(enum.StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"


@dataclass(frozen=True, slots=True)
class Growth:
    """`time = fixed_ns + each_ns · n + square_ns · n²`"""

    kind: GrowthKind = field(metadata=in_json("growth"))
    fixed_ns: float
    each_ns: float = 0.0
    square_ns: float = 0.0
    error: float = 0.0
    """By which part the times differ from that, in the mean (root of the mean square)."""

    def at(self, size: float) -> float:
        return self.fixed_ns + self.each_ns * size + self.square_ns * size * size


def fit_growth(sizes: Sequence[int], times_ns: Sequence[float], noise: float = 0.0) -> Growth:
    """The growth of these times, with error `noise`. Two sizes cannot tell a square from a line."""
    if len(sizes) != len(times_ns) or not sizes:
        raise ValueError(f"{len(times_ns)} times at {len(sizes)} sizes")
    if not any(times_ns):
        return Growth(GrowthKind.CONSTANT, 0.0)
    n, times = np.asarray(sizes, float), np.asarray(times_ns, float)
    degrees = min(len(set(sizes)), 3)
    found = [_fitted(n, times, degree) for degree in range(degrees)]
    best = found[-1].error
    within = max(_FITS, min(noise, _MOST_NOISE), _NEARLY * best)
    return next(each for each in found if each.error <= within)


def _fitted(n: np.ndarray, times: np.ndarray, degree: int) -> Growth:
    """The best fit of at most this degree."""
    # Times that are nothing beside the longest are as good as nothing.
    weights = 1 / np.maximum(times, times.max() * 1e-3)
    powers = np.stack([n**power for power in range(degree + 1)], axis=1)
    best: tuple[float, np.ndarray] | None = None
    # With three coefficients, least squares under bounds is the best of all choices of those that
    # are not at the bound.
    for count in range(1, degree + 2):
        for chosen in itertools.combinations(range(degree + 1), count):
            part = powers[:, chosen] * weights[:, None]
            solved, *_ = np.linalg.lstsq(part, times * weights, rcond=None)
            if (solved < 0).any():
                continue
            error = float(np.sqrt(np.mean((part @ solved - times * weights) ** 2)))
            if best is None or error < best[0] - 1e-12:
                whole = np.zeros(3)
                whole[list(chosen)] = solved
                best = error, whole
    assert best is not None
    error, (fixed, each, square) = best
    return Growth(list(GrowthKind)[degree], float(fixed), float(each), float(square), error)
