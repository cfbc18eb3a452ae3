"""Several engines on one model, by operator of the file: each engine's time, who is fastest where,
and which operators one engine runs in one kernel and another does not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence.attribution.profile import Profile, group_key
from whence.attribution.rows import SourceRow
from whence.errors import InputError

SCHEMA = "whence.engines/1"
GROUPINGS = ("op", "module", "type")
REST = "(in no operator)"
_CLOSE = 0.03
"""Engines that differ by less are equally fast."""


@dataclass(frozen=True, slots=True)
class Line:
    """One operator, module or type."""

    key: str
    kind: str
    """Of an operator: its type."""
    times_ns: tuple[int, ...]
    """Per run, by engine: the mean over its runs, so that lines add up to the whole."""
    fastest: int | None
    """Which engine, by the median of its runs, which a disturbed run does not change; none where
    two are as fast as each other, or nobody spends any time.
    """
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FusionDifference:
    """An edge of the file whose ends are in one kernel of some engines, and not of others."""

    maker: int
    reader: int
    fused_by: tuple[str, ...]
    not_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineComparison:
    model: str
    engines: tuple[str, ...]
    profiles: tuple[Profile, ...]
    """In the order of the engines; all of the same model, with the same operators."""
    fusions: tuple[FusionDifference, ...]

    @property
    def names(self) -> dict[int, str]:
        return {row.id: row.name for row in self.profiles[0].sources}

    @property
    def totals_ns(self) -> tuple[int, ...]:
        """A run of each engine."""
        return tuple(round(profile.run_ns) for profile in self.profiles)

    def lines(self, by: str = "op", depth: int = 0) -> list[Line]:
        """The slowest first; and in the end, what is in no operator, so that they add up."""
        if by not in GROUPINGS:
            raise InputError(f"cannot compare by '{by}'; there is {', '.join(GROUPINGS)}")
        key = group_key(by, depth)
        groups: dict[str, list[tuple[SourceRow, ...]]] = defaultdict(list)
        for rows in zip(*(profile.sources for profile in self.profiles), strict=True):
            groups[key(rows[0])].append(rows)
        found = []
        for name, members in groups.items():
            by_engine = list(zip(*members, strict=True))
            spent = tuple(
                round(sum(row.time_ns for row in rows) / profile.runs)
                for rows, profile in zip(by_engine, self.profiles, strict=True)
            )
            usual = [sum(row.band.median_ns for row in rows) for rows in by_engine]
            first = by_engine[0]
            kind = first[0].op if by == "op" else ""
            operators = tuple(row.id for row in first)
            found.append(Line(name, kind, spent, _fastest(usual), operators))
        found.sort(key=lambda line: -max(line.times_ns))
        rest = tuple(
            total - sum(line.times_ns[position] for line in found)
            for position, total in enumerate(self.totals_ns)
        )
        return [*found, Line(REST, "", rest, None, ())]

    def to_dict(self, by: str = "op", depth: int = 0) -> dict[str, Any]:
        names = self.names
        return {
            "schema": SCHEMA,
            "model": self.model,
            "engines": [
                {
                    "name": name,
                    "engine": profile.engine,
                    "threads": profile.threads,
                    "runs": profile.runs,
                    "run_ns": total,
                    "band_ns": list(profile.band),
                    "overhead_ratio": profile.overhead_ratio,
                    "kernels": len(profile.kernels),
                }
                for name, profile, total in zip(
                    self.engines, self.profiles, self.totals_ns, strict=True
                )
            ],
            "by": by,
            "rows": [
                {
                    "name": line.key,
                    "op": line.kind,
                    "ns": dict(zip(self.engines, line.times_ns, strict=True)),
                    "fastest": None if line.fastest is None else self.engines[line.fastest],
                }
                for line in self.lines(by, depth)
            ],
            "fusions": [
                {
                    "from": names[each.maker],
                    "to": names[each.reader],
                    "fused_by": list(each.fused_by),
                    "not_by": list(each.not_by),
                }
                for each in self.fusions
            ],
        }

    def to_json(self, by: str = "op", depth: int = 0) -> str:
        return json.dumps(self.to_dict(by, depth))


def compare_profiles(
    profiles: Mapping[str, Profile], edges: Sequence[tuple[int, int]]
) -> EngineComparison:
    """`edges` are the data edges of the file, as pairs of operators."""
    if len(profiles) < 2:
        raise InputError("at least two engines are compared")
    first = next(iter(profiles.values()))
    wanted = [(row.id, row.name) for row in first.sources]
    for name, profile in profiles.items():
        if [(row.id, row.name) for row in profile.sources] != wanted:
            raise InputError(f"the profile of {name} is of another model")
    inside = {name: _kernels_of(profile) for name, profile in profiles.items()}
    found = []
    for maker, reader in edges:
        # An operator that is in no kernel says nothing about fusion.
        fused = {
            name: bool(kernels[maker] & kernels[reader])
            for name, kernels in inside.items()
            if maker in kernels and reader in kernels
        }
        having, lacking = (
            tuple(name for name, each in fused.items() if each is wanted)
            for wanted in (True, False)
        )
        if having and lacking:
            found.append(FusionDifference(maker, reader, having, lacking))
    return EngineComparison(first.model, tuple(profiles), tuple(profiles.values()), tuple(found))


def _kernels_of(profile: Profile) -> Mapping[int, set[int]]:
    """By operator that is in any, other than layout changes."""
    inside: dict[int, set[int]] = defaultdict(set)
    for kernel in profile.kernels:
        if not kernel.inserted:
            for part in kernel.origin:
                inside[part.id].add(kernel.id)
    return inside


def _fastest(times: Sequence[int]) -> int | None:
    best = min(range(len(times)), key=lambda position: times[position])
    others = [time for position, time in enumerate(times) if position != best]
    return best if times[best] < (1 - _CLOSE) * min(others) else None
