"""What of the difference between two measurements is noise.

Runs that follow each other are taken together in blocks; of each block the lower quarter counts, as
what disturbs a run only ever makes it slower. How far blocks of one profile lie apart is the noise,
slow drifts included, which runs by themselves would not show. Other users of a machine slow down
all operators at once: on a noisy machine an operator is compared beside the others of its own
blocks, on a quiet one by itself. Where it is known how long threads worked, `robust_changes.py`
tells more on a noisy machine.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

BLOCKS = 8
"""Blocks that runs are divided into."""
_FEWEST = 4
# What is smaller, as a part of the operator or of the model, is never called a change.
_LEAST_CHANGE, _LEAST_PART = 0.08, 0.0005
# How many times the usual distance of blocks from their middle a change must be.
_DISTANCES = 4.0
_QUIET = 0.02
# What slows down all operators slows down some more than others: of how much slower the whole
# became, and of how much it changes from block to block, so much may be no change of an operator.
_UNEVEN, _SPREAD = 0.6, 0.3
# The same of how much longer than the shortest run the usual one took. Found by comparing 120 pairs
# of identical profiles on two cores that eight people used: with half of it, nothing was called
# changed.
_DISTURBED = 0.5


def block_lows(times: Sequence[int]) -> tuple[int, ...]:
    """The lower quartile of each block of consecutive runs; none where runs are too few."""
    count = min(BLOCKS, len(times) // 2)
    if count < _FEWEST:
        return ()
    edges = [round(number * len(times) / count) for number in range(count + 1)]
    return tuple(
        sorted(times[first:last])[(last - first - 1) // 4]
        for first, last in itertools.pairwise(edges)
    )


def disturbance(times: Sequence[int]) -> float:
    """How much longer than the shortest run the usual one took, as a part of it: little on a quiet
    machine, several times as long on one that many use.
    """
    return statistics.median(times) / max(1, min(times)) - 1 if times else 0.0


def change_of(
    before: Sequence[int],
    after: Sequence[int],
    all_before: Sequence[int],
    all_after: Sequence[int],
    disturbed: float = 0.0,
) -> float:
    """By how much an operator with these blocks became slower, as a part of what it took, if these
    are the blocks of the whole model; 0 where that is noise. `disturbed` is how much longer than
    the shortest run the usual one took.
    """
    least = max(_LEAST_CHANGE, _DISTURBED * disturbed)
    was, now = statistics.median(all_before), statistics.median(all_after)
    if are_quiet(all_before, all_after) or list(before) == list(all_before):
        change = abs(statistics.median(after) - statistics.median(before))
        matters = change >= _LEAST_PART * max(was, now)
        return _difference(before, after, least) if matters else 0.0
    beside = _beside(before, all_before), _beside(after, all_after)
    if abs(statistics.median(beside[1]) - statistics.median(beside[0])) < _LEAST_PART:
        return 0.0
    uneven = _UNEVEN * abs(now - was) / max(1.0, min(was, now))
    spread = _SPREAD * max(_spread(all_before), _spread(all_after))
    return _difference(*beside, max(least, uneven, spread))


def _difference(before: Sequence[float], after: Sequence[float], least: float) -> float:
    """How far they lie apart, as a part of what was before. 0 where blocks of one lie among those
    of the other, or the middles are no further from each other than blocks usually are from their
    own, or where it is less than `least`.
    """
    lower, upper = sorted((sorted(before), sorted(after)), key=statistics.median)
    # One block of each may be disturbed.
    if lower[-2] >= upper[1]:
        return 0.0
    was, now = statistics.median(before), statistics.median(after)
    usual = max(_distance(before), _distance(after))
    apart = abs(now - was) > max(least * min(was, now), _DISTANCES * usual)
    return (now - was) / max(was, 1e-12) if apart else 0.0


def _distance(blocks: Sequence[float]) -> float:
    """How far a block usually lies from the middle one."""
    middle = statistics.median(blocks)
    return statistics.median(abs(each - middle) for each in blocks)


def _beside(blocks: Sequence[int], whole: Sequence[int]) -> list[float]:
    """An operator's time as a part of what the others took in the same block."""
    return [own / max(1, both - own) for own, both in zip(blocks, whole, strict=False)]


def are_quiet(*wholes: Sequence[int]) -> bool:
    """Do blocks of each profile differ so little that a change of all operators is one of each?"""
    return all(whole and _spread(whole) <= _QUIET for whole in wholes)


def _spread(blocks: Sequence[int]) -> float:
    return (max(blocks) - min(blocks)) / max(1, min(blocks))
