"""What a stream on a device remembers of its runs: times from the device's own counters."""

from __future__ import annotations

from typing import Any

from whence.runtime.profiler import Profiler


class DeviceProfiler(Profiler):
    """Events are kept until their run is done, then become samples.

    A device counts nanoseconds from a moment of its own. Commands say when they were queued by that
    clock, and we know when that was by ours; the smallest difference seen in a run puts its events
    on our clock. Lengths are the device's, unchanged. Runs of a stream follow each other, so none
    is put before the end of the one before it, however late we looked at our clock then.
    """

    def __init__(self) -> None:
        self._events: list[tuple[Any, int, int, bool]] = []
        self._host: list[tuple[int, int, int]] = []
        self._ended = 0
        super().__init__()

    def note_event(self, event: Any, queued: int, step: int, *, is_kernel: bool) -> None:
        """A command that was given to the queue just now. The time of an execution is that of its
        kernels; other commands have samples only.
        """
        self._events.append((event, queued, step, is_kernel))

    def note_host(self, begin: int, end: int, step: int) -> None:
        """A step of the host, which is no command: it is in the samples, not in the times of
        executions.
        """
        self._host.append((begin, end, step))

    def settle(self) -> None:
        """All commands of the run are done: read their counters."""
        events, self._events = self._events, []
        host, self._host = self._host, []
        # A command that failed has no times, and its run raises an error of its own.
        done = [
            (event.profile, queued, step, is_kernel)
            for event, queued, step, is_kernel in events
            if event.command_execution_status == 0
        ]
        if done:
            shift = min(queued - times.queued for times, queued, *_ in done)
            shift = max(shift, self._ended - min(times.start for times, *_ in done))
            self._ended = max(times.end for times, *_ in done) + shift
            for times, _, step, is_kernel in done:
                note = self.note if is_kernel else self.note_sample
                note(times.start + shift, times.end + shift, step)
        for begin, end, step in host:
            self.note_sample(begin, end, step)
