"""Runs in which every thread notes when it works: how long all of them together worked at each
kernel, and for one of the runs a lane for each thread in the timeline, with waiting between its
parts.

Noting costs two readings of the clock for each thread and kernel, so the runs that times are summed
over do not do it: other runs, in turns with those, do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whence.attribution.account import Span
from whence.attribution.rows import Event, WorkerEvent
from whence.building.program import Program
from whence.runtime.profiler import Profiler, ProgramPart

FEWEST_RUNS, LONG_RUN_NS = 3, 500_000_000
"""Runs to choose the one for the timeline from; of long ones, one will do."""
_RING = 1 << 14
# Runs that the one for the timeline is chosen from, and those of which sums are kept.
_CANDIDATES, _STORED_RUNS = 8, 1024


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The kernels of one run, and what each thread did of them."""

    events: tuple[Event, ...]
    workers: tuple[WorkerEvent, ...]
    wall_ns: int


class WorkerRuns:
    """Runs in which threads note when they work."""

    def __init__(self, profiler: Profiler, threads: int) -> None:
        self._profiler = profiler
        profiler.record_workers(threads, _RING)
        self._candidates: list[RecordedRun] = []
        self._busy: list[tuple[np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        return len(self._busy)

    @property
    def has_capacity(self) -> bool:
        """Are more runs remembered?"""
        return len(self._busy) < _STORED_RUNS

    @property
    def most_at_once(self) -> int:
        """So many runs like those so far can be noted at once; one where none is known."""
        longest = max((len(steps) for steps, _ in self._busy), default=_RING)
        return max(1, _RING // max(1, longest))

    def enter(self, runs: Callable[[], Sequence[Span]]) -> None:
        """Those that are done then. They do not count where they have more kernels than can be
        noted.
        """
        if not self.has_capacity:
            return
        self._profiler.reset()
        spans = runs()
        if self._profiler.dropped:
            return
        samples, busy = self._profiler.samples(), self._profiler.busy()
        for execution, span in enumerate(spans):
            mine = samples["execution"] == execution
            self._enter(samples[mine], busy[mine], span)

    def _enter(self, samples: np.ndarray, busy: np.ndarray, span: Span) -> None:
        self._busy.append((samples["step"].astype(np.int64), _worked_ns(samples, busy)))
        if len(self._candidates) < _CANDIDATES:
            self._candidates.append(_recorded(samples, busy, span))

    def parts(self, program: Program) -> Sequence[ProgramPart]:
        """The program, and what ran as part of it."""
        return self._profiler.parts(program)

    def usual(self, runs_ns: Sequence[int]) -> RecordedRun | None:
        """The one that is nearest to the median of these wall times."""
        middle = statistics.median(runs_ns)
        return min(self._candidates, key=lambda each: abs(each.wall_ns - middle), default=None)

    def busy_ns(self, steps: int) -> np.ndarray:
        """How long all threads together worked, by run and step."""
        found = np.zeros((len(self._busy), steps), np.int64)
        for row, (numbers, worked) in zip(found, self._busy, strict=True):
            np.add.at(row, numbers, worked)
        return found


def _worked_ns(samples: np.ndarray, busy: np.ndarray) -> np.ndarray:
    """By sample: how long all threads together worked at it."""
    begin, end = busy["begin"].astype(np.int64), busy["end"].astype(np.int64)
    worked = np.where(end > 0, end - begin, 0).sum(axis=1)
    whole = samples["end"].astype(np.int64) - samples["begin"].astype(np.int64)
    # A step that the host does is the caller's.
    found: np.ndarray = np.where((end > 0).any(axis=1), worked, whole)
    return found


def events_of(samples: np.ndarray, begin: int) -> tuple[Event, ...]:
    """Samples of one run as events, in nanoseconds from its begin."""
    return tuple(
        Event(
            int(row["step"]),
            int(row["begin"]) - begin,
            int(row["end"]) - begin,
            min(int(row["waited"]), int(row["end"]) - int(row["begin"])),
        )
        for row in samples[np.argsort(samples["begin"], kind="stable")]
    )


def _recorded(samples: np.ndarray, busy: np.ndarray, span: Span) -> RecordedRun:
    workers = []
    for row, parts in zip(samples, busy, strict=True):
        step, begin, end = int(row["step"]), int(row["begin"]), int(row["end"])
        worked = [
            WorkerEvent(
                worker,
                step,
                max(begin, int(part["begin"])) - span.begin,
                min(end, int(part["end"])) - span.begin,
            )
            for worker, part in enumerate(parts)
            if part["end"]
        ]
        # A step that the host does is the caller's.
        workers += worked or [WorkerEvent(0, step, begin - span.begin, end - span.begin)]
    return RecordedRun(events_of(samples, span.begin), tuple(sorted(workers)), span.elapsed)
