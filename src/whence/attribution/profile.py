"""A profile: where the time went, in the words of the file the user started with.

`sum(row.time_ns for row in profile.sources) + sum(profile.residual_ns.values()) ==
profile.wall_ns`, exactly; every operator of the file is in `sources` exactly once.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from whence.attribution.findings import Finding, find
from whence.attribution.local_paths import shorten_location
from whence.attribution.memory_use import MemoryUse
from whence.attribution.notebook import Render, Report, summary
from whence.attribution.policy import MODELLED
from whence.attribution.rows import (
    NO_BAND,
    Band,
    Distribution,
    Event,
    KernelRow,
    RowGroup,
    Share,
    SourceRow,
    WorkerEvent,
    distribution_of,
)
from whence.attribution.throughput import Throughput
from whence.building.json_records import encoded, in_json
from whence.building.machine_record import encode
from whence.building.program import Program
from whence.errors import InputError, UnsupportedError
from whence.graph import Graph
from whence.graph.outcomes import Coverage
from whence.plural import counted
from whence.rates import MachineRates

SCHEMA = "whence.profile/1"
GROUPINGS = ("op", "type", "module", "line", "kernel", "pass")
_NOTING_A_RUN_NS, _NOTING_A_KERNEL_NS = 100_000, 5_000
_USUAL_NOISE = 0.1
Writer: TypeAlias = "Callable[[Profile, Path], Iterable[Path]]"
"""Writes files about a profile into a folder and says which."""


@dataclass(frozen=True, slots=True)
class Background:
    """What was profiled. A profile read from a file has none."""

    source_graph: Graph
    """As it was loaded."""
    program: Program
    shares: Mapping[int, Sequence[Share]]
    """By step: who has which part of it."""
    samples: np.ndarray
    """When kernels ran, in some of the runs, as an array of `whence.runtime.profiler.SAMPLE`."""
    full_paths: bool = True
    """May the paths of this machine be shown?"""


DIMENSION = "dimension "
"""How the names of dimensions begin in a profile's environment."""
TRACE = "trace"
"""In the environment of a profile: the file of another engine's tools that it was read from. What
machine it was made on, with how many threads, and what profiling cost is then not known.
"""
COMPILED_FOR = "compiled for"
"""What a program was compiled for, in the environment of a profile: open sizes, or those it ran
with alone; nothing where the model leaves no sizes open.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """Where the time of a model went, by operator of its file. Times are integers, in nanoseconds,
    summed over the timed runs.

        >>> profile = whence.profile("model.onnx", runs=10)
        >>> [row.name for row in profile.sources]
        ['conv1', 'bn1', 'relu1', 'pool', 'flatten', 'fc']
        >>> profile.sources[1].became
        'folded into conv1, relu1 → kernel 0'
    """

    model: str
    engine: str
    threads: int
    runs: int
    wall_ns: int
    """From submitting a run until the caller knows that it is done."""
    residual_ns: Mapping[str, int]
    """What is not in a kernel, by name."""
    overhead_ratio: float
    """How much longer a run takes because it is profiled, relative to one that is not. Noise can
    make it negative.
    """
    coverage: Coverage
    sources: tuple[SourceRow, ...]
    kernels: tuple[KernelRow, ...]
    passes: Mapping[str, int] = field(default_factory=dict)
    """The time by the pass that made the nodes it was spent in."""
    runs_ns: tuple[int, ...] = ()
    """The wall time of each run."""
    fixed_products_ns: tuple[int, ...] = ()
    """What a fixed piece of work took between runs that has nothing to do with the model: it tells
    whether the machine itself was slower than in another profile.
    """
    timeline: tuple[Event, ...] = ()
    """The kernels of one run of middling length."""
    timeline_ns: int = 0
    """How long that run took."""
    workers: tuple[WorkerEvent, ...] = ()
    """What each thread did in that run; empty where nobody noted it."""
    policy: str = MODELLED
    """How kernels were split, in words."""
    notes: tuple[str, ...] = ()
    """What the policy does not hold for, a line each."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What was run and with what: the shapes of the inputs, the model's digest, versions, the
    machine, the date.
    """
    rates: MachineRates | None = field(default=None, repr=False, metadata=in_json("machine"))
    """How fast the machine is; `None` in profiles of other tools, and of before it was measured."""
    throughput: Throughput | None = None
    """What several callers at once achieve, if that was measured."""
    memory: MemoryUse | None = field(default=None, repr=False)
    """What memory a run needs, step by step; `None` where nobody knows."""
    background: Background | None = field(default=None, repr=False, compare=False)
    writers: tuple[Writer, ...] = field(default=(), repr=False, compare=False)
    render: Render | None = field(default=None, repr=False, compare=False)
    """Makes the page that `report` shows."""

    # ---- questions ----

    @property
    def dimensions(self) -> dict[str, int]:
        """The sizes of the model's named dimensions in these runs."""
        return {
            name.removeprefix(DIMENSION): int(size)
            for name, size in self.environment.items()
            if name.startswith(DIMENSION) and size.isdecimal()
        }

    @property
    def attributed_ns(self) -> int:
        """What is in kernels and has a source operator.

        Example:

            >>> profile = whence.profile("model.onnx", runs=10)
            >>> profile.wall_ns - profile.attributed_ns == sum(profile.residual_ns.values())
            True
        """
        return sum(row.time_ns for row in self.sources)

    @property
    def waited_ns(self) -> int:
        """Of the time in kernels, what the calling thread waited for others to finish their
        part.
        """
        return sum(row.waited_ns for row in self.kernels)

    @property
    def run_ns(self) -> float:
        """The mean wall time of a run."""
        return self.wall_ns / self.runs if self.runs else 0.0

    @property
    def unprofiled_ns(self) -> float:
        """The mean wall time of a run that is not profiled, as far as that can be told. What could
        be saved is a part of that.

        Example:

            >>> profile = whence.profile("model.onnx", runs=10)
            >>> 0 < profile.unprofiled_ns <= profile.run_ns
            True
        """
        cost = max(0.0, self.overhead_ratio) if self.overhead_is_credible else 0.0
        # Noting takes what it takes, also where others make a run several times as long.
        undisturbed = min(self.band.low_ns or self.run_ns, self.run_ns)
        return self.run_ns - undisturbed * cost / (1.0 + cost)

    @property
    def band(self) -> Band:
        """The spread of the runs' wall times."""
        return band_of(self.runs_ns)

    @property
    def distribution(self) -> Distribution:
        """Of the runs' wall times."""
        return distribution_of(self.runs_ns)

    @property
    def is_imported(self) -> bool:
        """Was it made elsewhere, and read from a trace (`whence import`)?"""
        return TRACE in self.environment

    @property
    def overhead_is_credible(self) -> bool:
        """Can profiling have cost what was measured? Noting a kernel takes microseconds at most:
        what is far beyond that is the noise of the machine.
        """
        calls = sum(row.calls for row in self.kernels) / self.runs if self.runs else 0.0
        most_ns = _NOTING_A_RUN_NS + _NOTING_A_KERNEL_NS * calls
        return abs(self.overhead_ratio) <= max(_USUAL_NOISE, most_ns / max(1.0, self.run_ns))

    @property
    def findings(self) -> list[Finding]:
        """What could be better, the largest prize first.

        Example:

            >>> for each in whence.profile("model.onnx", runs=10).findings:
            ...     assert each.title and each.prize_ns >= 0
        """
        return find(self)

    def __repr__(self) -> str:
        """In a line: the whole of it is in `to_dict()`."""
        heaviest = max(self.sources, key=lambda row: row.time_ns, default=None)
        most = f", most in {heaviest.name!r} ({heaviest.share:.1%})" if heaviest else ""
        threads = counted(self.threads, "thread")
        return (
            f"<Profile of {self.model!r} on {self.engine}, {threads}:"
            f" {self.run_ns / 1e6:.3g} ms per run, {len(self.sources)} operators in"
            f" {len(self.kernels)} kernels{most}>"
        )

    def _repr_html_(self) -> str:
        return summary(self)

    def report(self, height: int = 800) -> Report:
        """The whole report, for a notebook to show inline. `height` is that of its frame, in
        pixels.

            >>> page = whence.profile("model.onnx", runs=10).report(height=600)
            >>> "conv1" in page.page
            True
        """
        if self.render is None:
            raise UnsupportedError(
                "this profile has no report; whence.profile() makes one that has, and"
                " `profile.save(folder)` writes report.html"
            )
        return Report(self.render(self.without_local_paths()), height)

    def share(self, time_ns: int) -> float:
        """A time, summed over all runs, as a part of the wall time."""
        return time_ns / self.wall_ns if self.wall_ns else 0.0

    def by(self, what: str, depth: int = 0) -> list[RowGroup]:
        """The time by `op` (operator of the file), `type`, `module`, `line`, `kernel` or `pass`,
        most first. Adds up to `attributed_ns`.

        By `module`, `depth` takes together what is deeper than so many modules; 0 for none of it.
        By `kernel`, a kernel none of whose nodes has an origin is left out: it stands among the
        residuals.

            >>> profile = whence.profile("model.onnx", runs=10)
            >>> sorted(row.key for row in profile.by("type"))
            ['BatchNormalization', 'Conv', 'Flatten', 'Gemm', 'GlobalAveragePool', 'Relu']
        """
        if what not in GROUPINGS:
            raise InputError(f"cannot group a profile by '{what}'; there is {', '.join(GROUPINGS)}")
        if what == "kernel":
            rows = [
                self._group(f"{row.id} {row.name}", row.time_ns, len(row.origin), 1)
                for row in self.kernels
                if row.origin
            ]
        elif what == "pass":
            rows = [self._group(name, time, 0, 0) for name, time in self.passes.items()]
        else:
            key = group_key(what, depth)
            members: dict[str, list[SourceRow]] = defaultdict(list)
            for source in self.sources:
                members[key(source)].append(source)
            rows = [
                self._group(
                    name,
                    sum(each.time_ns for each in group),
                    len(group),
                    len({kernel for each in group for kernel in each.kernels}),
                )
                for name, group in members.items()
            ]
        return sorted(rows, key=lambda row: -row.time_ns)

    def _group(self, key: str, time_ns: int, operators: int, kernels: int) -> RowGroup:
        return RowGroup(key, time_ns, self.share(time_ns), operators, kernels)

    # ---- out ----

    def rows(self) -> list[dict[str, Any]]:
        """The source operators as plain dictionaries, as they stand in `profile.json`. Times are
        nanoseconds, of all `runs` together.

        Example:

            >>> [row["name"] for row in whence.profile("model.onnx", runs=10).rows()][:2]
            ['conv1', 'bn1']
        """
        return [encoded(row) for row in self.sources]

    def to_dataframe(self) -> Any:
        """The source operators as a pandas DataFrame. Needs pandas; `rows()` does not.

        Example:

            >>> profile = whence.profile("model.onnx", runs=10)
            >>> try:
            ...     slowest = profile.to_dataframe().nlargest(3, "time_ns")
            ... except whence.UnsupportedError:
            ...     slowest = sorted(profile.rows(), key=lambda row: -row["time_ns"])[:3]
            >>> len(slowest)
            3
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise UnsupportedError(
                "to_dataframe() needs pandas, which is not installed: pip install pandas, or use"
                " profile.rows()"
            ) from None
        return pandas.DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """The contents of `profile.json`.

        Example:

            >>> whence.profile("model.onnx", runs=10).to_dict()["schema"]
            'whence.profile/1'
        """
        return {
            "schema": SCHEMA,
            **encoded(self),
            "machine": None if self.rates is None else encode(self.rates),
            "throughput": (
                None
                if self.throughput is None
                else _with(self.throughput, "runs_per_second", "samples_per_second")
            ),
            "distribution_ns": list(self.distribution),
            "findings": encoded(tuple(self.findings)),
            "kernels": [
                {
                    **_with(row, "gflops", "gbytes", "of_peak"),
                    "origin": [part._asdict() for part in row.origin],
                }
                for row in self.kernels
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """The text of `profile.json`."""
        return json.dumps(self.to_dict(), indent=indent)

    def without_local_paths(self) -> Profile:
        """The same profile with the paths of this machine shortened, fit to be handed on."""
        return dataclasses.replace(
            self,
            model=Path(self.model).name,
            background=(
                dataclasses.replace(self.background, full_paths=False)
                if self.background is not None
                else None
            ),
            sources=tuple(
                dataclasses.replace(row, line=shorten_location(row.line)) if row.line else row
                for row in self.sources
            ),
        )

    def save(self, folder: str | Path, *, full_paths: bool = False) -> list[Path]:
        """Write `profile.json` and what the profile's writers make into a folder; returns the
        files. Local paths are shortened unless asked for.

            >>> files = whence.profile("model.onnx", runs=10).save("out")
            >>> {"profile.json", "report.html"} <= {file.name for file in files}
            True
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        shown = self if full_paths else self.without_local_paths()
        file = folder / "profile.json"
        file.write_text(shown.to_json() + "\n", encoding="utf-8")
        return [file, *(path for writer in self.writers for path in writer(shown, folder))]


def _with(record: object, *derived: str) -> dict[str, Any]:
    """A record with what its fields tell, for those who read the file without whence."""
    return {**encoded(record), **{name: getattr(record, name) for name in derived}}


def band_of(times: Sequence[int]) -> Band:
    """The quartiles of a list of times."""
    if not times:
        return NO_BAND
    ordered = sorted(times)
    last = len(ordered) - 1
    return Band(ordered[last // 4], ordered[len(ordered) // 2], ordered[last - last // 4])


def module_of(row: SourceRow) -> str:
    """The module of the program the file was exported from; where the file does not say, the path
    in the operator's name.
    """
    if row.module:
        return row.module
    path = row.name.strip("/").rpartition("/")[0]
    return path.replace("/", ".") or row.scope or "(no module)"


_KEYS: Mapping[str, Callable[[SourceRow], str]] = {
    "op": lambda row: row.name,
    "type": lambda row: row.op,
    "module": module_of,
    "line": lambda row: row.line or "(no line in the file)",
}


def group_key(by: str, depth: int = 0) -> Callable[[SourceRow], str]:
    """What operators are grouped by; `depth` modules deep where that is by module, 0 for all."""
    if by == "module" and depth:
        return lambda row: ".".join(module_of(row).split(".")[:depth])
    return _KEYS[by]
