"""What could be better, with evidence and the size of the prize."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.attribution.outcome_text import first_few
from whence.graph.escaping import shorten

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs time, or that makes the figures doubtful."""

    rule: str
    """What found it."""
    title: str
    """A line: how much, what, and why."""
    advice: str
    """What to do about it."""
    prize_ns: float = 0.0
    """What mending it would save in a run; 0 where that cannot be said."""
    evidence: tuple[str, ...] = ()
    """Facts behind it, a line each."""
    kernels: tuple[int, ...] = ()
    """The kernels that it is about,"""
    sources: tuple[int, ...] = ()
    """and the operators of the file."""


Rule = Callable[["Profile"], Iterable[Finding]]
"""Looks at a profile, and says what it finds."""

LEAST_PART = 0.01
"""What would save less than this part of a run is not worth a finding."""
# What is joined of the names of operators before it, as TFLite's converter does, fills lines.
_LONGEST_NAME = 48


def per_run(profile: Profile, *kernels: KernelRow) -> float:
    """Nanoseconds of kernels in a run."""
    return sum(kernel.time_ns for kernel in kernels) / profile.runs if profile.runs else 0.0


def percent(profile: Profile, ns: float) -> str:
    """Nanoseconds as a part of a run."""
    part = 100 * ns / profile.run_ns if profile.run_ns else 0.0
    return f"{part:.0f} %" if part >= 9.5 else f"{part:.1f} %"


def sources_of(kernels: Sequence[KernelRow]) -> tuple[int, ...]:
    """The operators in kernels, those with most time first."""
    parts = sorted(
        (part for kernel in kernels for part in kernel.origin), key=lambda part: -part.time_ns
    )
    return tuple(dict.fromkeys(part.id for part in parts if part.time_ns))


def names(profile: Profile, sources: Sequence[int]) -> str:
    """Operators by name, the first few of them."""
    known = {row.id: row.name for row in profile.sources}
    return first_few([shorten(known[each], _LONGEST_NAME) for each in sources if each in known])


def named(profile: Profile, kernel: KernelRow) -> str:
    """A kernel by its number and its heaviest operator."""
    heaviest = names(profile, sources_of([kernel])[:1])
    return f"kernel {kernel.id} ({heaviest})" if heaviest else f"kernel {kernel.id}"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Some of a profile's kernels, as a finding speaks of them."""

    profile: Profile
    rows: Sequence[KernelRow]

    @property
    def ns(self) -> float:
        """In a run."""
        return per_run(self.profile, *self.rows)

    @property
    def share(self) -> str:
        """Of the time, in words."""
        return percent(self.profile, self.ns)

    @property
    def names(self) -> str:
        """Of the operators in them, the first few."""
        return names(self.profile, sources_of(self.rows))

    def are_worth(self, prize_ns: float) -> bool:
        """Does mending them save more than next to nothing?"""
        return prize_ns >= LEAST_PART * self.profile.run_ns > 0

    def finding(
        self, rule: str, title: str, advice: str, prize_ns: float, evidence: Iterable[str]
    ) -> Finding:
        numbers, sources = tuple(kernel.id for kernel in self.rows), sources_of(self.rows)
        return Finding(rule, title, advice, prize_ns, tuple(evidence), numbers, sources)
