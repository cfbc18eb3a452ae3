"""Two profiles side by side, by operator of the file. A difference counts only where the middle
halves of both do not overlap.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from whence.attribution.profile import Profile
from whence.attribution.rows import NO_BAND, Band


class Verdict(enum.StrEnum):
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    """The difference is within the noise."""
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One operator, or the whole model, in nanoseconds per run."""

    name: str
    before: Band
    after: Band
    verdict: Verdict

    @property
    def change_ns(self) -> int:
        return self.after.median_ns - self.before.median_ns

    @property
    def ratio(self) -> float:
        """By how much the time grew, relative to what it was; infinite when there was none."""
        if self.before.median_ns == 0:
            return 0.0 if self.after.median_ns == 0 else float("inf")
        return self.change_ns / self.before.median_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    total: Difference
    operators: tuple[Difference, ...]
    """By size of the change, largest first."""

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
    """Operators are matched by name. One that only one of the profiles has is added or removed."""
    old, new = ({row.name: row.band for row in profile.sources} for profile in (before, after))
    found = []
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if was is not None and now is not None:
            found.append(Difference(name, was, now, _verdict(was, now)))
        else:
            found.append(
                Difference(
                    name,
                    was or NO_BAND,
                    now or NO_BAND,
                    Verdict.ADDED if was is None else Verdict.REMOVED,
                )
            )
    found.sort(key=lambda each: -abs(each.change_ns))
    was, now = before.band, after.band
    return Comparison(Difference("the whole model", was, now, _verdict(was, now)), tuple(found))


def _verdict(was: Band, now: Band) -> Verdict:
    if now.low_ns > was.high_ns:
        return Verdict.SLOWER
    return Verdict.FASTER if now.high_ns < was.low_ns else Verdict.SAME
