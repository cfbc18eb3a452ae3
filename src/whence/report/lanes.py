"""What each thread did in the run on the timeline: a lane for each, with waiting in it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from whence.attribution.profile import Profile


class LaneSpan(NamedTuple):
    """A thread's work at a kernel, or its waiting while a kernel ran."""

    kernel: int
    begin_ns: int
    end_ns: int
    is_waiting: bool


def lanes(profile: Profile) -> dict[int, list[LaneSpan]]:
    """By thread, the caller first: its spans in the order of time, none over another. While a
    kernel runs a thread works at it or waits; between kernels nobody waits for a thread.
    """
    if not profile.workers:
        return {}
    parts: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in profile.workers:
        parts[event.worker, event.kernel].append((event.begin_ns, event.end_ns))
    found: dict[int, list[LaneSpan]] = {}
    known = max(event.worker for event in profile.workers) + 1
    for worker in range(max(known, profile.threads)):
        mine = found[worker] = []
        for run in profile.timeline:
            at = run.begin_ns
            for begin, end in sorted(parts[worker, run.kernel]):
                if begin < run.begin_ns or end > run.end_ns:
                    continue  # the kernel ran more than once: this is another time
                if begin > at:
                    mine.append(LaneSpan(run.kernel, at, begin, True))
                mine.append(LaneSpan(run.kernel, begin, end, False))
                at = end
            if run.end_ns > at:
                mine.append(LaneSpan(run.kernel, at, run.end_ns, True))
    return found
