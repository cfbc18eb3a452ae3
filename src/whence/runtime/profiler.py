"""What a stream remembers of its runs: one time per execution, and under it when each step ran."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from whence.building.program import Program
from whence.runtime import native_library as native

SAMPLE = np.dtype(
    [("begin", "<u8"), ("end", "<u8"), ("execution", "<u4"), ("step", "<u4"), ("waited", "<u8")]
)
"""When one step ran, in nanoseconds of the monotonic clock. The execution counts from 0 at the last
reset; the step is its program's, or one of a program that ran as a part of it (`Profiler.parts`).

`waited` is how much of it the calling thread spent waiting for others to finish their part.
"""
BUSY = np.dtype([("begin", "<u8"), ("end", "<u8")])
"""When one thread worked at a step."""
_RING = 1 << 17
_FEW = 64


class ProfilingDataKind(enum.IntEnum):
    """What to query with `get_profiling_data`. Numbers as in oneDNN.

    Example:

        >>> whence.ProfilingDataKind.TIME
        <ProfilingDataKind.TIME: 1>
    """

    UNDEF = 0
    TIME = 1
    """Nanoseconds of each execution: latest end less earliest begin of its steps."""


class ProgramPart(NamedTuple):
    """A program that runs as part of another: what is behind sizes that only a run knows."""

    first_step: int
    """What the numbers of its steps begin with in samples."""
    program: Program


class Profiler:
    """A ring of samples and the times of all executions since the last reset. One per stream, read
    when the stream is at rest.
    """

    def __init__(self, ring: int = _RING) -> None:
        self._samples = np.zeros(ring, SAMPLE)
        self._busy = np.zeros((0, 0), BUSY)
        # Not forgotten by a reset: a part keeps its numbers.
        self.notes_parts = True
        """Are the steps of programs noted that run as part of another?"""
        self._parts: dict[Program, dict[object, ProgramPart]] = {}
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next execution is number 0."""
        self._busy[:] = 0
        self._times = np.zeros((_FEW, 2), np.uint64)
        self._programs: list[Program] = []
        self._noted: list[tuple[int, int, int, int]] = []
        self._struct = native.NativeProfiler(
            self._samples.ctypes.data,
            len(self._samples),
            0,
            self._times.ctypes.data,
            len(self._times),
            0,
            self._busy.ctypes.data if self._busy.size else None,
            self._busy.shape[1],
        )

    def record_workers(self, threads: int, ring: int) -> None:
        """Forget everything, and from now on note for each of so many threads when it works at a
        step, in a ring of this length. It costs two readings of the clock for each thread and step.
        """
        self._samples = np.zeros(ring, SAMPLE)
        self._busy = np.zeros((ring, threads), BUSY)
        self.reset()

    def begin(self, program: Program) -> None:
        """An execution of `program` starts."""
        self._enter_noted()
        execution = len(self._programs)
        self._programs.append(program)
        if execution >= len(self._times):
            self._times = np.concatenate([self._times, np.zeros_like(self._times)])
            self._struct.times, self._struct.times_capacity = (
                self._times.ctypes.data,
                len(self._times),
            )
        self._struct.execution = execution

    @contextmanager
    def part(self, program: Program) -> Iterator[None]:
        """What runs meanwhile is `program`, as part of the execution that is on its way."""
        parts = self._parts.setdefault(
            self._programs[-1], {None: ProgramPart(0, self._programs[-1])}
        )
        # Programs of the same code for different sizes have the same steps.
        key = program.template or program
        if key in parts:
            first = parts[key].first_step
        else:
            last = next(reversed(parts.values()))
            first = last.first_step + len(last.program.steps)
        parts[key] = ProgramPart(first, program)
        before = self._struct.first_step
        self._struct.first_step = first
        try:
            yield
        finally:
            self._struct.first_step = before

    def parts(self, program: Program) -> tuple[ProgramPart, ...]:
        """The program, and what ran as part of it."""
        found = self._parts.get(program)
        return (ProgramPart(0, program),) if found is None else tuple(found.values())

    @property
    def written(self) -> int:
        """How many samples were taken since the last reset."""
        return int(self._struct.written)

    def since(self, written: int) -> tuple[int, int] | None:
        """When the first of the samples began that were taken since there were so many, and when
        the last one ended; `None` if none was.
        """
        if self._struct.written == written:
            return None
        ring = len(self._samples)
        first = max(written, int(self._struct.written) - ring)
        return (
            int(self._samples["begin"][first % ring]),
            int(self._samples["end"][(int(self._struct.written) - 1) % ring]),
        )

    def note(self, begin: int, end: int, step: int) -> None:
        """A step that did not run in native code. It has its place now, and is entered later: that
        would take longer than some of the steps.
        """
        place = self._struct.written
        self._struct.written = place + 1
        self._noted.append((place, begin, end, step + int(self._struct.first_step)))

    def _enter_noted(self) -> None:
        """What was noted of the execution that is the last so far."""
        execution, ring = int(self._struct.execution), len(self._samples)
        for place, begin, end, step in self._noted:
            if self._struct.written - place <= ring:
                self._samples[place % ring] = (begin, end, execution, step, 0)
            times = self._times[execution]
            times[:] = min(times[0], begin) if times[0] else begin, max(times[1], end)
        self._noted.clear()

    def note_sample(self, begin: int, end: int, step: int) -> None:
        """As `note`, but the step does not count for the time of the execution."""
        self._samples[self._struct.written % len(self._samples)] = (
            begin,
            end,
            int(self._struct.execution),
            step,
            0,
        )
        self._struct.written += 1

    def times(self) -> list[int]:
        """Nanoseconds of every execution that ran a step, in the order of submission."""
        self._enter_noted()
        return [int(end) - int(begin) for begin, end in self._times[: len(self._programs)] if begin]

    @property
    def executions(self) -> tuple[Program, ...]:
        """What ran, in order; samples are numbered by execution, empty ones included."""
        return tuple(self._programs)

    def samples(self) -> np.ndarray:
        """The samples still in the ring, oldest first, as an array of `SAMPLE`."""
        self._enter_noted()
        return self._oldest_first(self._samples)

    def busy(self) -> np.ndarray:
        """For each of `samples()` and each thread when it worked at it, as an array of `BUSY`: the
        first thread is the caller. Zeros where a thread had no part; no columns without
        `record_workers`.
        """
        return self._oldest_first(self._busy)

    def _oldest_first(self, ring: np.ndarray) -> np.ndarray:
        written = int(self._struct.written)
        if written <= len(ring):
            return ring[:written].copy()
        start = written % len(ring) if len(ring) else 0
        return np.concatenate([ring[start:], ring[:start]])

    @property
    def dropped(self) -> int:
        """Samples that newer ones overwrote."""
        self._enter_noted()
        return max(0, int(self._struct.written) - len(self._samples))

    @property
    def pointer(self) -> object:
        return ctypes.byref(self._struct)
