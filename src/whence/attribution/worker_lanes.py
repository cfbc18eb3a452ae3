"""One run in which every thread notes when it works: a lane for each in the timeline, with waiting
between its parts.

Noting costs two readings of the clock for each thread and kernel, so the runs that times are summed
over do not do it: a few runs behind them do, and the one whose length is most usual is shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whence.attribution.account import Span
from whence.attribution.rows import Event, WorkerEvent
from whence.runtime.profiler import Profiler

_RUNS, _LONG_RUN_NS = 3, 500_000_000
_RING = 1 << 14


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The kernels of one run, and what each thread did of them."""

    events: tuple[Event, ...]
    workers: tuple[WorkerEvent, ...]
    wall_ns: int


def recorded_run(
    profiler: Profiler, threads: int, run: Callable[[], Span], usual: Sequence[int]
) -> RecordedRun | None:
    """The one of a few runs that is nearest to the median of the `usual` wall times; `None` when a
    run has more kernels than are noted.
    """
    middle = statistics.median(usual)
    profiler.record_workers(threads, _RING)
    found: list[RecordedRun] = []
    for _ in range(1 if middle > _LONG_RUN_NS else _RUNS):
        profiler.reset()
        span = run()
        samples, busy = profiler.samples(), profiler.busy()
        if not profiler.dropped:
            found.append(_recorded(samples, busy, span))
    return min(found, key=lambda each: abs(each.wall_ns - middle), default=None)


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
    return RecordedRun(
        events_of(samples, span.begin), tuple(sorted(workers)), span.end - span.begin
    )
