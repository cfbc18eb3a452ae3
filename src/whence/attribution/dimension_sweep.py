"""Profiles of one model at several sizes of a dimension: how each operator's time grows with it."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whence.attribution.growth import Growth, fit_growth
from whence.attribution.leave_out import silently
from whence.attribution.measure import ProfiledRuns
from whence.attribution.notebook import Render
from whence.attribution.profile import Profile, Writer, group_key
from whence.attribution.rows import Band, SourceRow
from whence.attribution.sample_inputs import working_inputs
from whence.building.backend import Progress
from whence.building.json_records import encoded
from whence.errors import InputError
from whence.rates import MachineRates
from whence.runtime.executable import Executable

SCHEMA = "whence.growth/1"
SWEPT_BY = ("op", "type", "module", "line")
_KEPT = 64
"""Profiles of more sizes than this take more memory than they tell."""


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """One operator, type, module or line."""

    key: str
    op: str
    """Of an operator: its type."""
    times_ns: tuple[int, ...]
    """Of one run, by size: the lower quartile, as what disturbs a run only ever makes it longer."""
    growth: Growth

    @property
    def increase_ns(self) -> int:
        """From the smallest size to the largest."""
        return self.times_ns[-1] - self.times_ns[0]


@dataclass(frozen=True, slots=True)
class DimensionSweep:
    dimension: str
    sizes: tuple[int, ...]
    """In ascending order."""
    profiles: tuple[Profile, ...]
    """By size."""

    @property
    def model(self) -> str:
        return self.profiles[0].model

    @property
    def total(self) -> GrowthRow:
        """The whole run."""
        bands = [profile.band for profile in self.profiles]
        times = tuple(band.low_ns for band in bands)
        return GrowthRow("", "", times, fit_growth(self.sizes, times, _noise(bands)))

    def rows(self, by: str = "op", depth: int = 0) -> list[GrowthRow]:
        """What grows most first."""
        if by not in SWEPT_BY:
            raise InputError(f"growth is told by {', '.join(SWEPT_BY)}, not by '{by}'")
        key = group_key(by, depth)
        members: dict[str, list[tuple[SourceRow, ...]]] = defaultdict(list)
        for rows in zip(*(profile.sources for profile in self.profiles), strict=True):
            members[key(rows[0])].append(rows)
        found = []
        for name, group in members.items():
            times = [
                sum(_undisturbed(row, profile.runs) for row in rows)
                for rows, profile in zip(zip(*group, strict=True), self.profiles, strict=True)
            ]
            bands = [row.band for rows in group for row in rows]
            growth = fit_growth(self.sizes, times, _noise(bands))
            op = group[0][0].op if by == "op" else ""
            found.append(GrowthRow(name, op, tuple(times), growth))
        return sorted(found, key=lambda row: (-row.increase_ns, -row.times_ns[-1]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": self.model,
            "engine": self.profiles[0].engine,
            "threads": self.profiles[0].threads,
            "runs": self.profiles[0].runs,
            "dimension": self.dimension,
            "sizes": list(self.sizes),
            "dimensions": [profile.dimensions for profile in self.profiles],
            "environment": dict(self.profiles[-1].environment),
            "total": _row_json(self.total),
            "operators": [_row_json(row) for row in self.rows()],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def without_local_paths(self) -> DimensionSweep:
        shown = tuple(profile.without_local_paths() for profile in self.profiles)
        return replace(self, profiles=shown)

    def save(
        self,
        folder: str | Path,
        page: Callable[[DimensionSweep], str] | None = None,
        *,
        full_paths: bool = False,
    ) -> list[Path]:
        """`growth.json`, the page, and a folder for the profile at each size."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        shown = self if full_paths else self.without_local_paths()
        files = [folder / "growth.json"]
        files[0].write_text(shown.to_json() + "\n", encoding="utf-8")
        if page is not None:
            files.append(folder / "growth.html")
            files[-1].write_text(page(shown), encoding="utf-8")
        for size, profile in zip(self.sizes, self.profiles, strict=True):
            files += profile.save(folder / str(size), full_paths=full_paths)
        return files


def sweep_dimension(
    executable: Executable,
    dimension: str,
    sizes: Sequence[int],
    *,
    runs: int = 50,
    warmup: int = 5,
    model: str = "",
    progress: Progress = silently,
    writers: Sequence[Writer] = (),
    render: Render | None = None,
    rates: MachineRates | None = None,
) -> DimensionSweep:
    """Profile a compiled model that leaves this dimension open at each of the sizes, in turns, so
    that what disturbs the machine disturbs all sizes alike. Other dimensions have the sizes that
    are taken where nobody says.
    """
    ordered = tuple(sorted(set(sizes)))
    if len(ordered) < 2:
        raise InputError(f"growth with '{dimension}' needs at least two sizes")
    if len(ordered) > _KEPT:
        raise InputError(
            f"{len(ordered)} sizes of '{dimension}' are too many, {_KEPT} are the most"
        )
    if runs < 1 or warmup < 0:
        raise InputError(f"{runs} runs after {warmup} to warm up make no sense")
    measuring: list[ProfiledRuns] = []
    for number, size in enumerate(ordered):
        progress(f"preparing {dimension}={size}", number, len(ordered))
        sample = working_inputs(executable, {dimension: size})
        measuring.append(ProfiledRuns(executable, sample))
    for _ in range(warmup):
        for each in measuring:
            each.warm_up()
    for number in range(runs):
        progress(f"running {len(ordered)} sizes in turns", number, runs)
        # Each size is the first of its round as often as any other.
        at = number % len(measuring)
        for each in (*measuring[at:], *measuring[:at]):
            each.run_profiled()
            each.run()
    profiles = [each.profile(model=model, writers=writers, rates=rates) for each in measuring]
    return DimensionSweep(
        dimension, ordered, tuple(replace(profile, render=render) for profile in profiles)
    )


def _undisturbed(row: SourceRow, runs: int) -> int:
    return row.band.low_ns if row.band.high_ns else round(row.time_ns / max(runs, 1))


def _noise(bands: Sequence[Band]) -> float:
    """How far the quartiles are from the median, as a part of it, usually."""
    spread = [(band.high_ns - band.low_ns) / 2 / band.median_ns for band in bands if band.median_ns]
    return statistics.median(spread) if spread else 0.0


def _row_json(row: GrowthRow) -> dict[str, Any]:
    times = list(row.times_ns)
    return {"name": row.key, "op": row.op, "times_ns": times, **encoded(row.growth)}
