"""Kernels with fewer work items than threads, or with so few that threads end at different times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import (
    Finding,
    is_worth,
    named,
    per_run,
    percent,
    sources_of,
)

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

# With so many items for each thread, those that end early have taken over what others had left.
_ENOUGH = 4


def few_work_items(profile: Profile) -> Iterator[Finding]:
    """What it would save if all threads had the same work."""
    threads = profile.threads
    for kernel in profile.kernels:
        if threads < 2 or not kernel.native or kernel.items >= _ENOUGH * threads:
            continue
        spent = per_run(profile, kernel)
        waited = kernel.waited_ns / profile.runs if profile.runs else 0.0
        idle = spent * (1 - kernel.workers / threads) if kernel.items < threads else 0.0
        prize = max(idle, waited * (threads - 1) / threads)
        if kernel.bound == "dispatch" or not is_worth(profile, prize):
            continue
        items = f"{kernel.items} work item{'s' if kernel.items != 1 else ''}"
        yield Finding(
            "few_work_items",
            f"{percent(profile, spent)} of the time in {named(profile, kernel)}, which has {items}"
            f" for {threads} threads",
            "Larger batches, or more rows or channels, give it more; `--threads"
            f" {max(1, kernel.workers)}` leaves the other cores to somebody else.",
            prize,
            (
                f"{kernel.workers} of {threads} threads have work in it",
                f"the calling thread waits {percent(profile, waited)} of the run for others in it",
            ),
            (kernel.id,),
            sources_of([kernel]),
        )
