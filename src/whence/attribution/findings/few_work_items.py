"""Kernels with fewer work items than threads, or with so few that threads end at different times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding, Kernels, named, per_run, percent
from whence.attribution.findings.thread_costs import barrier_ns, wake_up_ns
from whence.plural import counted

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow

# With so many items for each thread, those that end early have taken over what others had left.
_ENOUGH = 4


def few_work_items(profile: Profile) -> Iterator[Finding]:
    """What it would save if there were enough work items for all threads. How other engines divide
    their work is not known.
    """
    if profile.engine != "cpu":
        return
    threads = profile.threads
    for kernel in profile.kernels:
        has_enough = threads < 2 or kernel.items >= _ENOUGH * threads
        if has_enough or not kernel.native or kernel.bound == "dispatch":
            continue
        prize = _idle(profile, kernel) if kernel.items < threads else _uneven(profile, kernel)
        it = Kernels(profile, [kernel])
        if not it.are_worth(prize):
            continue
        items = counted(kernel.items, "work item")
        yield it.finding(
            "few_work_items",
            f"{it.share} of the time in {named(profile, kernel)}, which has {items}"
            f" for {threads} threads",
            "Larger batches, or more rows or channels, give it more; `--threads"
            f" {max(1, kernel.workers)}` leaves the other cores to somebody else.",
            prize,
            (
                f"{kernel.workers} of {threads} threads have work in it",
                f"the calling thread waits {percent(profile, _waited(profile, kernel))} of the run"
                " for others in it",
            ),
        )


def _idle(profile: Profile, kernel: KernelRow) -> float:
    """Threads without a work item. With one for each, the kernel is as much faster as the machine
    is with so many threads, not below what memory and arithmetic need, and the threads must meet.
    """
    spent, runs = per_run(profile, kernel), max(1, profile.runs)
    shared = spent / _speed_up(profile, kernel.workers)
    least = kernel.least_ns * kernel.calls / runs
    more = barrier_ns(profile, kernel) if kernel.workers < 2 else 0.0
    return max(0.0, spent - max(shared, least) - more)


def _uneven(profile: Profile, kernel: KernelRow) -> float:
    """Some threads have an item more than others, who wait for them. What items of one size make
    them wait is all that more of them would save; that threads wake up, and meet, stays.
    """
    rounds = -(-kernel.items // profile.threads)
    uneven = per_run(profile, kernel) * (1 - kernel.items / (rounds * profile.threads))
    stays = barrier_ns(profile, kernel) + wake_up_ns(profile, kernel)
    return max(0.0, min(uneven, _waited(profile, kernel) - stays))


def _waited(profile: Profile, kernel: KernelRow) -> float:
    return kernel.waited_ns / profile.runs if profile.runs else 0.0


def _speed_up(profile: Profile, workers: int) -> float:
    """Of all threads, in times of what so many of them do."""
    rates = profile.rates
    if rates is None or rates.threads < profile.threads:
        return profile.threads / workers
    peak = next(iter(rates.peak.values()))
    return max(1.0, peak.at(profile.threads, rates.threads) / peak.at(workers, rates.threads))
