"""Which operators became slower or faster between two profiles of a busy machine.

Other users of the machine slow down whatever runs at the same moment, and interrupt single kernels:
both only ever add to a time, and both come and go from run to run. What an operator takes when
nobody disturbs it is the low end of its times, but where that begins depends on the machine: one
thread finds its core free in a few of fifty runs, two threads find both free in hardly any. So

1. an operator's times in both profiles are compared at several levels, from the shortest run to the
   median one, as logarithms, less what all operators have in common;
2. how far the operators of this pair of profiles scatter at a level says how much that level can be
   believed: the quietest one counts, the second must say nearly the same (the smaller of both
   changes is taken) and the third at least half of it. What is slower by a fifth is so at all
   levels; what was disturbed in one of the profiles is not;
3. it is called a change when it is larger than a least one, than three times that scatter, and than
   a third of how far the operator's own times just above those levels reach up: times that stand
   alone were found once, by chance, as those of a kernel that is interrupted in nearly every run.

The constants were chosen on 54 profiles of two models, recorded on two cores with a load of 10 to
16, all of which were looked at while choosing. `benchmarks/diff_truth.py` makes other pairs and
judges them: with two threads on two busy cores, operators are still called changed wrongly. Where a
change of a fifth would not be called one, that is said (`unclear`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.attribution.noise import disturbance
from whence.attribution.profile import Profile

_LEVELS = (0.0, 0.04, 0.1, 0.25, 0.5)
_FEWEST_RUNS, _FEWEST_KERNELS = 16, 6
# What is smaller, as a part of the operator or of the model, is never called a change; the second
# of each where the usual run takes four times as long as the shortest. Where it takes many times as
# long, little can be said of anything.
_LEAST_CHANGE, _LEAST_WHERE_BUSY = 0.09, 0.12
_LEAST_PART, _PART_WHERE_BUSY = 0.001, 0.0015
_DISTURBED, _OF_DISTURBANCE = 3.0, 0.02
_SCATTERS, _SECOND, _ALIKE, _THIRD = 3.0, 0.5, 0.6, 0.5
# How far the times of an operator reach up behind a level: over this part of the runs.
_ABOVE, _OF_REACH = 0.2, 0.35
# An operator with less of the model says nothing about how much operators scatter.
_COUNTED_SHARE = 0.005
_A_FIFTH = float(np.log(1.2))


class Changes(NamedTuple):
    """By operator that both profiles have."""

    grown: dict[str, float]
    """By how much it became slower, as a part of what it took; 0 where that is noise."""
    unclear: frozenset[str]
    """Those of which a change of a fifth could not have been told from noise."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Kernels' times, by run and kernel."""

    times: np.ndarray
    weights: dict[str, list[tuple[int, float]]]
    """By operator: kernels, and what it has of each."""


def robust_changes(before: Profile, after: Profile) -> Changes | None:
    """What became of each operator; `None` where there are too few runs or kernels to tell."""
    old, new = _runs(before), _runs(after)
    if old is None or new is None:
        return None
    names = [name for name in old.weights if name in new.weights]
    if not names:
        return None
    first, second = (_sorted_logs(runs, names) for runs in (old, new))
    share = (_shares(first) + _shares(second)) / 2
    # Operators of one kernel move together: the heaviest speaks for it.
    heaviest = _leading(old)
    leading = np.array([name in heaviest for name in names], bool)
    counted = leading & (share >= min(_COUNTED_SHARE, 0.5 / max(1, leading.sum())))
    if counted.sum() < _FEWEST_KERNELS:
        return None
    levels = sorted(
        (_at_level(part, first, second, counted) for part in _LEVELS),
        key=lambda level: level.scatter,
    )
    best, next_best, third = levels[:3]
    moved = _agreed(best.moved, next_best.moved)
    agrees = (moved * third.moved > 0) & (abs(third.moved) >= _THIRD * abs(moved))
    scatter = max(best.scatter, _SECOND * next_best.scatter)
    reach = np.min(
        [np.maximum(_reach(first, level.part), _reach(second, level.part)) for level in levels[:3]],
        axis=0,
    )
    least_change, least_part = _least(before, after)
    least = np.maximum(max(least_change, _SCATTERS * scatter), _OF_REACH * reach)
    change = np.expm1(moved)
    is_change = agrees & (abs(moved) > least) & (abs(change) * share >= least_part)
    hidden = least > _A_FIFTH
    return Changes(
        {
            name: float(value) if real else 0.0
            for name, value, real in zip(names, change, is_change, strict=True)
        },
        frozenset(name for name, unseen in zip(names, hidden, strict=True) if unseen),
    )


def _least(before: Profile, after: Profile) -> tuple[float, float]:
    """What a change must be at least, as a part of the operator and of the model."""
    disturbed = max(disturbance(before.runs_ns), disturbance(after.runs_ns))
    busy = min(1.0, disturbed / _DISTURBED)
    change = _LEAST_CHANGE + (_LEAST_WHERE_BUSY - _LEAST_CHANGE) * busy
    part = _LEAST_PART + (_PART_WHERE_BUSY - _LEAST_PART) * busy
    return max(change, _OF_DISTURBANCE * disturbed), part


class _Level(NamedTuple):
    """Two profiles, compared at one place in the order of their times."""

    part: float
    """Of the runs, those that were shorter."""
    scatter: float
    """How far operators usually lie from what all have in common."""
    moved: np.ndarray


def _at_level(part: float, first: np.ndarray, second: np.ndarray, counted: np.ndarray) -> _Level:
    moved = second[_place(second, part)] - first[_place(first, part)]
    moved = moved - np.median(moved[counted])
    # Of a normal distribution, three quarters lie within 1.15 standard deviations.
    return _Level(part, float(np.quantile(abs(moved[counted]), 0.75)) / 1.15, moved)


def _place(times: np.ndarray, part: float) -> int:
    return int(part * (len(times) - 1))


def _agreed(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The smaller of two changes; 0 where the other is much larger, or the other way round."""
    smaller, larger = np.minimum(abs(one), abs(other)), np.maximum(abs(one), abs(other))
    agree = (one * other > 0) & (smaller >= _ALIKE * larger)
    found: np.ndarray = np.where(agree, np.sign(one) * smaller, 0.0)
    return found


def _reach(times: np.ndarray, part: float) -> np.ndarray:
    found: np.ndarray = times[_place(times, min(1.0, part + _ABOVE))] - times[_place(times, part)]
    return found


def _runs(profile: Profile) -> _Runs | None:
    kernels = [kernel for kernel in profile.kernels if kernel.runs_ns]
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
    return _Runs(times, dict(weights))


def _sorted_logs(runs: _Runs, names: Sequence[str]) -> np.ndarray:
    """The logarithms of operators' times: by rank and operator, shortest first."""
    columns = [
        sum(runs.times[:, number] * weight for number, weight in runs.weights[name])
        for name in names
    ]
    found: np.ndarray = np.sort(np.log(np.maximum(np.array(columns).T, 1.0)), axis=0)
    return found


def _shares(times: np.ndarray) -> np.ndarray:
    """What operators have of the model, by their median times: one long interruption does not make
    an operator a large one.
    """
    usual = np.exp(times[len(times) // 2])
    found: np.ndarray = usual / usual.sum()
    return found


def _leading(runs: _Runs) -> set[str]:
    """By kernel: the operator with most of it."""
    best: dict[int, tuple[float, str]] = {}
    for name, parts in runs.weights.items():
        for number, weight in parts:
            best[number] = max(best.get(number, (0.0, "")), (weight, name))
    return {name for _, name in best.values()}
