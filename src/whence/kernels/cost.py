"""What the cost models of several kernels have in common: memory latency that prefetching hides,
and work items that threads share, and their sizes.
"""

from __future__ import annotations

_NOT_HIDDEN = 0.3
# As a part of a work item: how much later than the others the last thread ends. Threads are not
# equally fast where others use the same machine, and a quick one can only take over work items that
# a slow one has not begun.
_STRAGGLING = 0.3
ITEMS_PER_THREAD = 4
"""Work items that let threads end at about the same time where items cannot be counted out
evenly.
"""
FEWEST_ITEMS = 16
"""Work items worth having for any number of threads: a kernel's part of the caches stays small."""


def overlapped(computing: float, fetching: float) -> float:
    """Cycles where memory is prefetched while something else is multiplied, which hides most of the
    latency.
    """
    return max(computing, fetching) + min(computing, fetching) * _NOT_HIDDEN


def imbalance(tasks: int, threads: int) -> float:
    """How much longer than an even share the thread with the most work takes, as a factor."""
    return -(-tasks // threads) * threads / tasks + _STRAGGLING * (threads - 1) / tasks


def chunk_size(
    units: int,
    others: int,
    threads: int,
    *,
    overhead: float,
    least_parts: int = 1,
    most_parts: int | None = None,
) -> int:
    """How many of `units` make a work item, if there are `others` times as many items as parts of
    the units: so many that the thread with the most work ends soonest.

    `overhead` is what an item costs besides its units, in units.
    """
    most = units if most_parts is None else max(min(units, most_parts), 1)
    least = max(min(least_parts, most), 1)

    def longest(chunk: int) -> float:
        items = others * -(-units // chunk)
        straggling = _STRAGGLING * chunk if threads > 1 else 0.0
        return -(-items // threads) * (chunk + overhead) + straggling

    return min(
        {-(-units // parts) for parts in range(least, most + 1)}, key=lambda c: (longest(c), -c)
    )


def largest_divisor(number: int, most: int, least: int = 1) -> int:
    """The largest divisor of a number that lies between these two; 0 if there is none."""
    sizes = range(min(number, most), least - 1, -1)
    return next((size for size in sizes if number % size == 0), 0)
