"""Two profiles side by side, by operator of the file. A difference counts only where it stands out
of the noise of both profiles' runs: on a quiet machine by how far blocks of runs lie apart
(`noise.py`), on a busy one by what kernels take undisturbed (`robust_changes.py`); of
profiles with few runs, only where their middle halves do not overlap. What operators have of a
kernel is the same in both, unless it was measured in both (`common_shares.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from whence.attribution.common_shares import with_common_shares
from whence.attribution.noise import are_quiet, block_lows, change_of, disturbance
from whence.attribution.profile import Profile
from whence.attribution.robust_changes import robust_changes
from whence.attribution.rows import NO_BAND, Band


class Verdict(enum.StrEnum):
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    """The difference is within the noise."""
    UNKNOWN = "not known"
    """The machine was too busy to tell."""
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One operator, or the whole model, in nanoseconds per run."""

    name: str
    before: Band
    after: Band
    verdict: Verdict
    grown: float | None = None
    """By how much it became slower beside the other operators, as a part of what it took, where a
    busy machine tells nothing by the times themselves.
    """

    @property
    def change_ns(self) -> int:
        if self.grown is not None:
            return round(self.grown * self.before.median_ns)
        return self.after.median_ns - self.before.median_ns

    @property
    def ratio(self) -> float:
        """By how much the time grew, relative to what it was; infinite when there was none."""
        if self.grown is not None:
            return self.grown
        if self.before.median_ns == 0:
            return 0.0 if self.after.median_ns == 0 else float("inf")
        return self.change_ns / self.before.median_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    total: Difference
    operators: tuple[Difference, ...]
    """What changed first; by size of the change, largest first."""
    unclear: frozenset[str] = frozenset()
    """Operators of which noise would have hidden a change of a fifth."""

    def over(self, limit: float) -> list[Difference]:
        """What makes B fail against A: the whole model slower by more than `limit`, or an operator
        that alone adds more than `limit` of A's time.

        Only differences that stand out of the noise count.
        """
        allowed = limit * self.total.before.median_ns
        grown = (Verdict.SLOWER, Verdict.ADDED)
        return [
            each
            for each in (self.total, *self.operators)
            if each.verdict in grown and each.change_ns > allowed
        ]


def compare(before: Profile, after: Profile) -> Comparison:
    """Operators are matched by name. One that only one of the profiles has is added or removed.
    What changed stands first.
    """
    before, after = with_common_shares(before, after)
    old, new = ({row.name: row for row in profile.sources} for profile in (before, after))
    whole = block_lows(before.runs_ns), block_lows(after.runs_ns)
    totals = _totals(before), _totals(after)
    disturbed = max(disturbance(before.runs_ns), disturbance(after.runs_ns))
    noisy = None if are_quiet(*totals) else robust_changes(before, after)
    beside, unclear = (noisy.grown, noisy.unclear) if noisy else ({}, frozenset[str]())
    found = []
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        first = NO_BAND if was is None else was.band
        second = NO_BAND if now is None else now.band
        if was is None or now is None:
            verdict = Verdict.ADDED if was is None else Verdict.REMOVED
        elif name in beside:
            verdict = _direction(beside[name])
        else:
            verdict = _verdict(first, second, (was.blocks, now.blocks), totals, disturbed)
        found.append(Difference(name, first, second, verdict, beside.get(name) or None))
    found.sort(
        key=lambda each: (
            each.verdict is Verdict.SAME,
            -abs(each.change_ns),
            -each.after.median_ns,
        )
    )
    was_all, now_all = before.band, after.band
    grown_all = None
    if noisy is None:
        verdict = _verdict(was_all, now_all, whole, whole, disturbed)
    else:
        verdict = Verdict.UNKNOWN if noisy.whole_is_unclear else _direction(noisy.whole)
        grown_all = noisy.whole or None
    whole_model = Difference("the whole model", was_all, now_all, verdict, grown_all)
    return Comparison(whole_model, tuple(found), unclear)


def _totals(profile: Profile) -> tuple[int, ...]:
    """By block: what all operators took together."""
    return tuple(
        sum(each)
        for each in zip(*(row.blocks for row in profile.sources if row.blocks), strict=False)
    )


def _direction(change: float) -> Verdict:
    return Verdict.SLOWER if change > 0 else Verdict.FASTER if change < 0 else Verdict.SAME


_Both = tuple[Sequence[int], Sequence[int]]


def _verdict(was: Band, now: Band, blocks: _Both, totals: _Both, disturbed: float) -> Verdict:
    if all(blocks) and all(totals):
        return _direction(change_of(*blocks, *totals, disturbed))
    if now.low_ns > was.high_ns:
        return Verdict.SLOWER
    return Verdict.FASTER if now.high_ns < was.low_ns else Verdict.SAME
