"""Which operators became slower or faster between two profiles of a busy machine.

Other users of a machine slow down whatever runs at the same moment, interrupt single kernels, and
take the cores of worker threads: all of it only ever adds to a time. So each kernel is compared by
its least time, the lower end of the distribution of its times. The third shortest stands for it:
where others use the memory all the time, one run in a hundred finds it free, in some profiles.

1. What counts is how long all threads together worked at a kernel, without waiting: that is the same
   whether two threads shared it or one found the second core taken. With one thread it is the
   kernel's time.
2. How far two such times lie apart where nothing changed is seen within each profile: by how much the
   least time differs from one moment to another beside the other kernels (`moment_scatter.py`). It
   is not divided by the number of moments, as a whole profile may have been at a bad one. One whose
   shortest runs lie apart must differ by as much more. Where a dozen runs agree, that is enough:
   eight times as far as they lie apart is no noise. What a kernel finds in the caches depends on
   others all the time: one that streams data (no convolution or matrix product, or one that a cache
   or memory limits) must differ by more. Others may use the memory less all through one profile:
   what the kernels that are not steady have in common says nothing about one of them. Where there
   are several of those, each is compared where the others took as long (`equal_pressure.py`).
3. What all operators have in common is the machine's, unless a fixed piece of work between the runs
   says that the machine was the same.
4. A change is what is larger than a least one, than that scatter of either profile, and than three
   times the scatter of all operators about what they have in common. Where a change of a fifth
   would not be called one, that is said (`unclear`).
5. The whole model is compared by the sum of the least times, with a confidence interval for the
   lower end of each distribution (`least_times.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.attribution.efficiency import Bound
from whence.attribution.equal_pressure import moved_at_equal_pressure
from whence.attribution.least_times import (
    A_FIFTH,
    AGREEMENTS,
    RANKS,
    LeastTimes,
    agreement,
    least_times,
    width,
)
from whence.attribution.moment_scatter import moment_scatter
from whence.attribution.profile import Profile
from whence.attribution.rows import KernelRow

CONFIDENCE = 0.95
"""That a whole model is not called changed in a pair of profiles in which nothing changed."""
FEWEST_RUNS = 16
_FEWEST_KERNELS = 6
# What is smaller, as a part of the operator or of the model, is never called a change: where data
# lies in memory, and what of it others leave in the caches, makes as much of a difference between
# two profiles, and kernels of a few microseconds take half as long again where two threads share
# them.
_LEAST_CHANGE, _LEAST_PART = 0.1, 0.001
_SCATTERS = 3.0
# How many times the scatter between moments a change must be, of a kernel that is steady and of one
# that is not, and the least change of one that streams data. Chosen on profiles of SqueezeNet, two
# text recognisers and a face detector, with two threads on two cores that others used as well.
_STEADY, _SCATTERS_OF_STEADY, _SCATTERS_OF_OTHERS = 0.05, 2.0, 4.0
_LEAST_STREAMING = 0.12
# With more noise, a kernel counts among those that are not steady; what so many of them have in
# common is known.
_UNSTEADY_NOISE, _FEWEST_UNSTEADY = 0.025, 3
# With more scatter between moments, it lives on what others leave of the caches; and the least
# change of one that is compared at equal pressure.
_PRESSED, _LEAST_PRESSED = 0.025, 0.13
# The shortest run that is no luck, and one that it should be close to.
_LEAST, _NEAR_LEAST = 2, 5
# An operator with less of the model says nothing about how much operators scatter.
_COUNTED_SHARE = 0.005


class Changes(NamedTuple):
    """By operator that both profiles have, and of the whole model."""

    grown: dict[str, float]
    """By how much it became slower, as a part of what it took; 0 where that is noise."""
    unclear: frozenset[str]
    """Those of which a change of a fifth could not have been told from noise."""
    whole: float
    """By how much all kernels together became slower; 0 where that is noise,"""
    whole_is_unclear: bool
    """and whether a change of a fifth could have been told from it."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What was measured of one profile."""

    times: np.ndarray
    """By run and kernel."""
    noise: np.ndarray
    """By kernel: what a change of it must be larger than, as a logarithm."""
    scatter: np.ndarray
    """By kernel: how much its time differs from moment to moment, as a logarithm."""
    quantiles: np.ndarray
    """By part of the runs and kernel; none in profiles of an older whence."""
    weights: dict[str, list[tuple[int, float]]]
    """By operator: kernels, and what it has of each."""

    @property
    def least(self) -> np.ndarray:
        """By kernel."""
        found: np.ndarray = np.sort(self.times, axis=0)[_LEAST]
        return found

    def by_operator(self, kernels: np.ndarray, names: Sequence[str]) -> np.ndarray:
        matrix = np.zeros((len(names), self.times.shape[1]))
        for row, name in enumerate(names):
            for number, weight in self.weights[name]:
                matrix[row, number] += weight
        found: np.ndarray = matrix @ kernels
        return found

    def mean_by_operator(self, parts: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Of the kernels that an operator is in, by what it has of each."""
        least = np.maximum(self.least, 1.0)
        whole = np.maximum(self.by_operator(least, names), 1e-9)
        found: np.ndarray = self.by_operator(least * parts, names) / whole
        return found


def robust_changes(before: Profile, after: Profile) -> Changes | None:
    """What became of each operator; `None` where there are too few runs or kernels to tell, where
    several threads did not note how long they worked, and for different engines or numbers of
    threads: those share work in different ways, which wall times alone tell.
    """
    if before.threads != after.threads or before.engine != after.engine:
        return None
    old, new = _work(before), _work(after)
    if old is None or new is None:
        return None
    names = [name for name in old.weights if name in new.weights]
    if not names:
        return None
    share = (_shares(old, names) + _shares(new, names)) / 2
    one, two = (each.by_operator(each.least, names) for each in (old, new))
    moved = _moved(one, two)
    leading = _leading(old)
    counted = np.array([name in leading for name in names], bool)
    known = counted & (share >= _LEAST_PART)
    counted &= share >= min(_COUNTED_SHARE, 0.5 / max(1, counted.sum()))
    # The whole may be slower or faster.
    chance = (1 - CONFIDENCE) / (2 * len(RANKS))
    machine = _machine(before, after, chance)
    knows_machine = machine is not None and machine.is_known
    if counted.sum() < _FEWEST_KERNELS and not knows_machine:
        return None
    common, scatter = _in_common(moved[counted])
    beside = moved - common
    whole, whole_unclear = _whole(
        least_times(old.times, chance), least_times(new.times, chance), machine
    )
    if machine is not None and knows_machine and (whole or counted.sum() < _FEWEST_KERNELS):
        common, scatter = machine.moved, scatter if counted.sum() >= _FEWEST_KERNELS else 0.0
    moved = moved - common
    noise = np.maximum(*(each.mean_by_operator(each.noise, names) for each in (old, new)))
    noise = noise + _shared_by_unsteady(beside, noise, known)
    # What slows down the companions of an operator, a slow machine too, is left out by that; but
    # not where they may have changed themselves.
    under_pressure = None if whole else _under_pressure(old, new, names, known)
    if under_pressure is not None:
        pressed, at_equal = under_pressure
        moved = np.where(pressed, at_equal, moved)
        noise = np.where(pressed, _LEAST_PRESSED, noise)
    least = np.maximum(_LEAST_CHANGE, np.maximum(noise, _SCATTERS * scatter))
    change = np.expm1(moved)
    is_change = (abs(moved) > least) & (abs(change) * share >= _LEAST_PART)
    hidden = (least > A_FIFTH) & (share >= _LEAST_PART)
    return Changes(
        {
            name: float(value) if real else 0.0
            for name, value, real in zip(names, change, is_change, strict=True)
        },
        frozenset(name for name, unseen in zip(names, hidden, strict=True) if unseen),
        whole,
        whole_unclear,
    )


def _whole(first: LeastTimes, second: LeastTimes, machine: _Machine | None) -> tuple[float, bool]:
    """By how much all kernels became slower, and whether a change of a fifth would be hidden."""
    if machine is not None and not machine.is_known:
        return 0.0, True
    one, two = (LeastTimes(each.lower.sum(), each.upper.sum()) for each in (first, second))
    moved = float(_moved(one.upper, two.upper))
    # As the machine was faster or slower by so much, it may be that the model was not.
    less = moved - (machine.moved if machine is not None else 0.0)
    moved = min(moved, less, key=abs) if moved * less > 0 else 0.0
    unknown = float(width(two if moved > 0 else one))
    is_change = abs(moved) > max(_LEAST_CHANGE, unknown)
    widest = max(float(width(one)), float(width(two)))
    return float(np.expm1(moved)) if is_change else 0.0, not is_change and widest > A_FIFTH


def _moved(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """By how much the second takes longer, as logarithms."""
    found: np.ndarray = np.log(np.maximum(two, 1.0)) - np.log(np.maximum(one, 1.0))
    return found


def _in_common(moved: np.ndarray) -> tuple[float, float]:
    """What operators have in common, and how far they usually lie from it."""
    if not len(moved):
        return 0.0, 0.0
    middle = float(np.median(moved))
    # Of a normal distribution, three quarters lie within 1.15 standard deviations.
    return middle, float(np.quantile(abs(moved - middle), 0.75)) / 1.15


def _shared_by_unsteady(beside: np.ndarray, noise: np.ndarray, known: np.ndarray) -> np.ndarray:
    """By operator that is not steady: by how much the others of them usually became slower or
    faster beside all operators. Only those that are `known` tell.
    """
    unsteady = noise > _UNSTEADY_NOISE
    found = np.zeros_like(noise)
    for number in np.flatnonzero(unsteady):
        others = unsteady & known
        others[number] = False
        if others.sum() >= _FEWEST_UNSTEADY:
            found[number] = abs(float(np.median(beside[others])))
    return found


def _under_pressure(
    old: _Work, new: _Work, names: Sequence[str], known: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Which operators live on what others leave of the caches, and by how much each of those became
    slower where that was as much in both profiles. `None` where neither can be told.
    """
    if not len(old.quantiles) or not len(new.quantiles):
        return None
    scatter = np.maximum(*(each.mean_by_operator(each.scatter, names) for each in (old, new)))
    pressed = known & (scatter > _PRESSED)
    one, two = (
        np.log(np.maximum([each.by_operator(row, names) for row in each.quantiles], 1.0))
        for each in (old, new)
    )
    moved = moved_at_equal_pressure(one, two, pressed)
    return None if moved is None else (pressed, moved)


class _Machine(NamedTuple):
    """By how much a fixed piece of work took longer, as a logarithm."""

    moved: float
    is_known: bool
    """Do its shortest times of either profile agree?"""


def _machine(before: Profile, after: Profile, chance: float) -> _Machine | None:
    """`None` where that was not measured."""
    ends, widest = [], 0.0
    for profile in (before, after):
        if len(profile.fixed_products_ns) < FEWEST_RUNS:
            return None
        # As of kernels, the third shortest stands for it: a lucky moment or two say little.
        ordered = np.sort(np.array(profile.fixed_products_ns, float))[_LEAST:, None]
        times = least_times(ordered, chance)
        widest = max(widest, float(width(times)[0]))
        ends.append(float(np.log(max(1.0, times.upper[0]))))
    return _Machine(ends[1] - ends[0], widest <= A_FIFTH)


def _work(profile: Profile) -> _Work | None:
    found = [(kernel, times) for kernel in profile.kernels if (times := _times(profile, kernel))]
    count = min((len(times) for _, times in found), default=0)
    if count < FEWEST_RUNS or not any(part.weight > 0 for row, _ in found for part in row.origin):
        return None
    names = {row.id: row.name for row in profile.sources}
    weights = defaultdict(list)
    for number, (kernel, _) in enumerate(found):
        for part in kernel.origin:
            if part.weight > 0:
                weights[names[part.id]].append((number, part.weight))
    matrix = np.array([times[:count] for _, times in found], float).T
    # The shortest times are not in the order of the runs.
    noted = any(kernel.shortest_busy_ns for kernel, _ in found)
    scatter = np.array([k.busy_scatter for k, _ in found]) if noted else moment_scatter(matrix)
    streams = np.array([_streams(kernel) for kernel, _ in found], bool)
    ordered = np.log(np.maximum(np.sort(matrix, axis=0), 1.0))
    least = ordered[_LEAST]
    apart = np.maximum(least - ordered[0], ordered[_NEAR_LEAST] - least)
    scatters = np.where(scatter > _STEADY, _SCATTERS_OF_OTHERS, _SCATTERS_OF_STEADY)
    # Moments differ where a machine is busy; what a dozen runs agree on does not.
    unknown = np.minimum(scatters * scatter + apart, AGREEMENTS * agreement(matrix))
    noise = np.maximum(unknown, np.where(streams, _LEAST_STREAMING, 0.0))
    known = min(len(kernel.busy_quantiles_ns) for kernel, _ in found)
    quantiles = np.array([kernel.busy_quantiles_ns[:known] for kernel, _ in found], float).T
    return _Work(matrix, noise, scatter, quantiles, dict(weights))


def _streams(kernel: KernelRow) -> bool:
    """Does its time depend on what is in the caches, more than on arithmetic?"""
    by_arithmetic = kernel.bound in (Bound.COMPUTE, Bound.WAITING)
    return not (kernel.is_contraction and by_arithmetic)


def _times(profile: Profile, kernel: KernelRow) -> tuple[int, ...]:
    """How long all threads together worked at it, by run; nothing where that is not known."""
    return kernel.shortest_busy_ns or (kernel.runs_ns if profile.threads == 1 else ())


def _shares(work: _Work, names: Sequence[str]) -> np.ndarray:
    """What operators have of the model, by median times: one long interruption does not make an
    operator a large one.
    """
    usual = np.median(work.times, axis=0)
    own = work.by_operator(usual, names)
    found: np.ndarray = own / max(1.0, float(usual.sum()))
    return found


def _leading(work: _Work) -> set[str]:
    """By kernel: the operator with most of it. Operators of one kernel move together."""
    best: dict[int, tuple[float, str]] = {}
    for name, parts in work.weights.items():
        for number, weight in parts:
            best[number] = max(best.get(number, (0.0, "")), (weight, name))
    return {name for _, name in best.values()}
