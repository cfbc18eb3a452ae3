"""Which operators became slower or faster between two profiles of a busy machine.

Other users of the machine slow down whatever runs at the same moment, and interrupt single kernels.
Neither is a change of an operator, so

1. in each run, a kernel's time is divided by how much slower its neighbours in that run were than
   they usually are in both profiles: what was shared at that moment drops out;
2. of an operator's times after that, the lower quartile counts, as an interruption only ever adds;
3. the shortest run must say the same: the smaller of the two changes is taken, and what all
   operators have in common is taken off each;
4. it is called a change when it is larger than a least one, than a few standard errors (by leaving out
   each of eight blocks of consecutive runs), and than four times what nine in ten operators
   of this pair differ by: the more operators there are, the further one of them lies out by chance.

Constants were chosen on pairs of profiles that were recorded on two cores with a load of 10 to 18;
`benchmarks/diff_truth.py` makes such pairs and judges them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.attribution.common_shares import KernelKey, kernel_keys
from whence.attribution.noise import disturbance
from whence.attribution.profile import Profile

_NEIGHBOURS = 8
_LOW = 0.25
_BLOCKS = 8
_FEWEST_RUNS, _FEWEST_KERNELS = 16, 6
_LEAST_CHANGE, _LEAST_PART = 0.1, 0.0005
# Whether other threads get a core may be the same for most runs of a profile, and not of another:
# on a machine that is not quiet, threads need a larger change.
_LEAST_OF_THREADS = 0.15
# Where the usual run takes many times as long as the shortest, little can be said of anything.
_OF_DISTURBANCE = 0.02
_ERRORS, _SCATTERS, _MOST = 2.5, 4.0, 0.9
# An operator with less of the model says nothing about how much operators scatter.
_COUNTED_SHARE = 0.002


@dataclass(frozen=True, slots=True)
class _Runs:
    """The logarithms of kernels' times, by run and kernel."""

    keys: tuple[KernelKey, ...]
    logs: np.ndarray
    weights: dict[str, list[tuple[int, float]]]
    """By operator: kernels, and what it has of each."""


def changes_beside_others(before: Profile, after: Profile) -> dict[str, float] | None:
    """By operator that both have: by how much it became slower, as a part of what it took; 0 where
    that is noise. `None` where there are too few runs or kernels to tell.
    """
    old, new = _runs(before), _runs(after)
    if old is None or new is None:
        return None
    usual = _usual(old, new)
    names = [name for name in old.weights if name in new.weights]
    first, second = (_times(runs, _steady(runs, usual), names) for runs in (old, new))
    moved, least = second.low - first.low, second.least - first.least
    error = np.hypot(first.error, second.error)
    share = np.exp(np.maximum(first.low, second.low))
    share /= max(1.0, share.sum())
    # Operators of one kernel move together: the heaviest speaks for it.
    heaviest = _leading(old)
    leading = np.array([name in heaviest for name in names], bool)
    if leading.sum() < _FEWEST_KERNELS:
        return None
    moved -= np.median(moved[leading])
    least -= np.median(least[leading])
    agreed = np.where(moved * least > 0, np.sign(moved), 0) * np.minimum(abs(moved), abs(least))
    counted = leading & (share >= _COUNTED_SHARE)
    scatter = float(np.quantile(abs(agreed[counted]), _MOST)) if counted.any() else 0.0
    change = np.expm1(agreed)
    least_change = _least_change(before, after)
    is_change = abs(agreed) > np.maximum(max(least_change, _SCATTERS * scatter), _ERRORS * error)
    is_change &= abs(change) * share >= _LEAST_PART
    return {
        name: float(value) if real else 0.0
        for name, value, real in zip(names, change, is_change, strict=True)
    }


def _least_change(before: Profile, after: Profile) -> float:
    disturbed = max(disturbance(before.runs_ns), disturbance(after.runs_ns))
    most = _LEAST_OF_THREADS if max(before.threads, after.threads) > 1 else _LEAST_CHANGE
    return max(_LEAST_CHANGE, min(most, disturbed), _OF_DISTURBANCE * disturbed)


def _runs(profile: Profile) -> _Runs | None:
    timed = [
        (key, kernel)
        for key, kernel in zip(kernel_keys(profile), profile.kernels, strict=True)
        if kernel.runs_ns
    ]
    kernels = [kernel for _, kernel in timed]
    count = min((len(kernel.runs_ns) for kernel in kernels), default=0)
    if count < _FEWEST_RUNS or len(kernels) < _FEWEST_KERNELS:
        return None
    names = {row.id: row.name for row in profile.sources}
    weights = defaultdict(list)
    for number, kernel in enumerate(kernels):
        for part in kernel.origin:
            if part.weight > 0:
                weights[names[part.id]].append((number, part.weight))
    times = np.array([kernel.runs_ns[:count] for kernel in kernels], float).T
    return _Runs(tuple(key for key, _ in timed), np.log(np.maximum(times, 1.0)), dict(weights))


def _usual(old: _Runs, new: _Runs) -> dict[KernelKey, float]:
    """What a kernel usually takes, in both profiles together where both have it."""
    found: dict[KernelKey, list[np.ndarray]] = defaultdict(list)
    for runs in (old, new):
        for number, key in enumerate(runs.keys):
            found[key].append(runs.logs[:, number])
    return {key: float(np.quantile(np.concatenate(all_), _LOW)) for key, all_ in found.items()}


def _steady(runs: _Runs, usual: dict[KernelKey, float]) -> np.ndarray:
    """The kernels' times, by run, without what their neighbours in the run have in common."""
    beyond = runs.logs - np.array([usual[key] for key in runs.keys])
    shared = np.empty_like(beyond)
    for number in range(len(runs.keys)):
        first = max(0, number - _NEIGHBOURS)
        near = [*range(first, number), *range(number + 1, number + 1 + _NEIGHBOURS)]
        shared[:, number] = np.median(
            beyond[:, [each for each in near if each < len(runs.keys)]], axis=1
        )
    found: np.ndarray = np.exp(runs.logs - shared)
    return found


@dataclass(frozen=True, slots=True)
class _Times:
    """Logarithms, by operator."""

    low: np.ndarray
    error: np.ndarray
    least: np.ndarray


def _times(runs: _Runs, steady: np.ndarray, names: Sequence[str]) -> _Times:
    def of_operators(kernels: np.ndarray) -> np.ndarray:
        columns = [
            sum(kernels[:, number] * weight for number, weight in runs.weights[name])
            for name in names
        ]
        found: np.ndarray = np.log(np.array(columns)).T
        return found

    own = of_operators(steady)
    return _Times(
        np.quantile(own, _LOW, axis=0),
        _standard_error(own),
        of_operators(np.exp(runs.logs)).min(axis=0),
    )


def _standard_error(times: np.ndarray) -> np.ndarray:
    """Of lower quartiles, from what they would be without each block of consecutive runs."""
    edges = np.round(np.linspace(0, len(times), _BLOCKS + 1)).astype(int).tolist()
    without = [
        np.quantile(np.delete(times, slice(first, last), axis=0), _LOW, axis=0)
        for first, last in itertools.pairwise(edges)
    ]
    found: np.ndarray = np.std(without, axis=0) * np.sqrt(_BLOCKS - 1)
    return found


def _leading(runs: _Runs) -> set[str]:
    """By kernel: the operator with most of it."""
    best: dict[int, tuple[float, str]] = {}
    for name, parts in runs.weights.items():
        for number, weight in parts:
            best[number] = max(best.get(number, (0.0, "")), (weight, name))
    return {name for _, name in best.values()}
