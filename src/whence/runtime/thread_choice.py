"""How many threads are fastest, found out while a model runs.

More threads help as long as each has work and a core of its own. Whether it has, nobody knows in
advance: other processes come and go, a control group gives a part of a core, a small model spends
more on waking threads than they save. So runs are compared: some with the number of threads that is
in use, some with half and some with twice as many, in turns, so that whatever else the machine does
meets all of them. The winner is used until the next comparison.

Where processes compete for the cores, each is quicker with more threads, because it gets a larger
part of the machine, and all of them are slower, because threads wait for others that have no core.
The system tells when threads lost their core to others; then fewer of them are taken even if they
are somewhat slower. Once all do so, none loses its core any more, and more threads look better to
each of them again: so after every such retreat it takes twice as long until more are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

_FIRST_RUNS = 2
"""Runs that are not compared: they touch fresh memory."""
_LEAST_RUNS, _LEAST_NS = 4, 20_000_000
"""A number of threads is tried for so many runs and so long: a process that shares a core with
another is held up for milliseconds at a time, which a single run may not meet."""
_MOST_RUNS = 64
_BETTER = 0.95
"""The number in use is left for one that takes at most this part of the time."""
_TAKEN_AWAY, _LEFT_ALONE, _PATIENCE = 60, 20, 1.75
"""Cores are shared with others if threads lose theirs so often in a second, and no longer once it
is less than the second number; while they are, the fewest threads are used that take at most this
much longer than the fastest number. Against one process that has a thread on every core, half as
many threads take up to 1.5 times as long, and a little more as threads are moved from core to core.
"""
_SOON, _LATE = 16, 4096
"""Runs until the next comparison: few after a change, twice as many each time that nothing changes,
"""
_LATE_NS = 5_000_000_000
"""but a comparison is never further away than this."""
_LOOK_NS = 20_000_000
"""How often it is looked whether others have come to the cores: then a comparison is due."""


def cores_lost() -> int:
    """How often a thread of this process had work to do and lost its core to another."""
    try:
        import resource
    except ImportError:  # not on every system
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class ThreadChoice:
    """For one model with memory of its own, which runs on at most so many threads."""

    def __init__(
        self,
        most: int,
        clock: Callable[[], int] = perf_counter_ns,
        losses: Callable[[], int] = cores_lost,
    ) -> None:
        self._clock, self._losses = clock, losses
        self._numbers = [most]
        while self._numbers[-1] > 1:
            self._numbers.append(-(-self._numbers[-1] // 2))
        self._level = 0
        self._wait = self._wait_after_retreat = _SOON
        self._left = _FIRST_RUNS
        # While a comparison goes on: for each level in it the runs it had and their time.
        self._tried: dict[int, list[int]] = {}
        self._turn = 0
        self._is_shared = False
        # Was the comparison begun because others have come?
        self._is_due = False
        # Since when cores that were lost are counted, and how many had been lost then.
        self._since, self._lost_before = 0, 0
        self._runs_between_looks = self._runs_until_look = 0

    @property
    def threads(self) -> int:
        """The number that was fastest so far."""
        return self._numbers[self._level]

    def begin(self) -> tuple[int, int]:
        """The number of threads for a run, and its beginning, to be given to `end`."""
        if self._left:
            return self.threads, 0
        if not self._tried:
            near = range(self._level - 1, self._level + 2)
            self._tried = {each: [0, 0] for each in near if 0 <= each < len(self._numbers)}
            self._count_from_now()
        levels = list(self._tried)
        return self._numbers[levels[self._turn % len(levels)]], self._clock()

    def end(self, began: int) -> None:
        if not began:
            self._left -= 1
            self._runs_until_look -= 1
            if self._runs_until_look == 0:
                self._look()
            return
        levels = list(self._tried)
        tried = self._tried[levels[self._turn % len(levels)]]
        tried[0] += 1
        tried[1] += self._clock() - began
        self._turn += 1
        if self._turn % len(levels) == 0 and self._is_decided():
            self._decide()

    def _is_decided(self) -> bool:
        runs = min(runs for runs, _ in self._tried.values())
        time = min(time for _, time in self._tried.values())
        return runs >= _MOST_RUNS or (runs >= _LEAST_RUNS and time >= _LEAST_NS)

    def _decide(self) -> None:
        time_of = {level: time for level, (_, time) in self._tried.items()}
        runs = self._tried[self._level][0]
        least = min(time_of.values())
        self._is_shared = self._is_due or self._cores_are_shared()
        self._is_due = False
        if self._is_shared:
            best = max(level for level, time in time_of.items() if time <= _PATIENCE * least)
            is_better = best != self._level
        else:
            best = min(time_of, key=lambda level: time_of[level])
            is_better = least <= _BETTER * time_of[self._level]
        if is_better and self._is_shared:
            self._wait = self._wait_after_retreat
            self._wait_after_retreat = min(2 * self._wait_after_retreat, _LATE)
        elif is_better:
            self._wait = _SOON
        else:
            self._wait = min(2 * self._wait, _LATE)
            if not self._is_shared:
                self._wait_after_retreat = _SOON
        self._level = best if is_better else self._level
        run_ns = max(time_of[self._level] // runs, 1)
        self._left = max(min(self._wait, _LATE_NS // run_ns), _SOON)
        self._tried, self._turn = {}, 0
        self._runs_between_looks = max(_LOOK_NS // run_ns, 1)
        self._runs_until_look = self._runs_between_looks
        self._count_from_now()

    def _look(self) -> None:
        if not self._is_shared and self._cores_are_shared():
            self._left, self._is_due = 0, True
        self._runs_until_look = self._runs_between_looks
        self._count_from_now()

    def _count_from_now(self) -> None:
        self._since, self._lost_before = self._clock(), self._losses()

    def _cores_are_shared(self) -> bool:
        lost = 1_000_000_000 * (self._losses() - self._lost_before)
        enough = _LEFT_ALONE if self._is_shared else _TAKEN_AWAY
        return lost > enough * (self._clock() - self._since)
