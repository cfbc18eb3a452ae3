"""Measuring what variants save, in turns, until it is known well enough.

1. In a round the program runs as it is, and with each set of variants, in changing order. A step
   and its variant are compared within a round only: whatever slows the machine down for longer than
   a round slows both.
2. The rounds between two moves of the program's memory are a batch. Its answer is what is saved of
   all the time of the middle half of its rounds: one in which either was disturbed does not count,
   and where memory answers now sooner and now later, both do. (The middle one alone favours
   whichever happens more often.)
3. The batches' mean is the answer. How much groups of batches that follow each other differ gives
   its standard error, in which both the machine's noise, which lasts longer than a batch, and the
   luck of the memory's places are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

BUDGET_NS = 30_000_000_000
"""How long to go on until everything is known well enough: a round that has begun is finished, and
there are at least two.
"""
_BATCH_NS, _LEAST_ROUNDS, _MOST_ROUNDS = 50_000_000, 3, 50
_GROUP, _LEAST_GROUPS = 4, 8
# A short program finds in the caches what the run before it left there: it runs so often in a row,
# and the second half counts.
_SHORT_NS, _ROW = 20_000_000, 4


class Timer(Protocol):
    """A program that can be run with variants standing in for its steps: `exchange.Exchange`."""

    def run(self, variants: Sequence[int] = ()) -> np.ndarray: ...
    def move(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Saving:
    """What a variant saves, as a part of its step."""

    part: float
    error: float
    """The standard error."""


def measure(
    timer: Timer,
    steps: Sequence[int],
    enough: Sequence[float],
    clock: Callable[[], int],
    budget_ns: int = BUDGET_NS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Saving | None]:
    """What each variant saves of its step. `steps` says, by variant, which step it stands in for,
    `enough` which standard error will do.

    `None` for a variant of a step that does not run. `clock` is in nanoseconds.
    """
    began = clock()
    is_running = timer.run() > 0
    sets = _sets({variant: step for variant, step in enumerate(steps) if is_running[step]})
    if len(sets) == 1:
        return [None] * len(steps)
    rng = np.random.default_rng(0)

    def one_round(row: int) -> np.ndarray:
        """The times of the steps, by set."""
        times = np.zeros((len(sets), len(is_running)))
        for number in rng.permutation(len(sets)):
            runs = [timer.run(sets[number]) for _ in range(row)]
            times[number] = np.median(runs[row // 2 :], axis=0)
        return times

    def saved(rounds: Sequence[np.ndarray]) -> np.ndarray:
        """What each variant saved in some rounds."""
        parts, times = np.zeros(len(steps)), np.array(rounds)
        for number, variants in enumerate(sets):
            for variant in variants:
                step = steps[variant]
                parts[variant] = saved_part(times[:, 0, step], times[:, number, step])
        return parts

    first = clock()
    trial = one_round(1)
    spent = max(1, clock() - first)
    row = _ROW if spent < _SHORT_NS else 1
    rounds = int(np.clip(_BATCH_NS // (row * spent), _LEAST_ROUNDS, _MOST_ROUNDS))
    # When there is no time for two whole batches, every round counts.
    batches = [saved([trial])] if 2 * rounds * row * spent > budget_ns else []
    while True:
        timer.move()
        timer.run()
        batch: list[np.ndarray] = []
        while len(batch) < rounds and not (batch and clock() - began >= budget_ns):
            batch.append(one_round(row))
        batches.append(saved(batch))
        spent = clock() - began
        groups = (
            np.array(batches[len(batches) % _GROUP :]).reshape(-1, _GROUP, len(steps)).mean(axis=1)
        )
        is_over, is_grouped = spent >= budget_ns and len(batches) > 1, len(groups) >= _LEAST_GROUPS
        if is_over or (is_grouped and len(batches) % _GROUP == 0):
            # Of a slow program there are too few to be grouped.
            alike = groups if is_grouped else np.array(batches)
            mean, error = alike.mean(axis=0), np.std(alike, axis=0, ddof=1) / np.sqrt(len(alike))
            if is_over or np.all(error <= enough):
                if progress is not None:
                    progress(budget_ns, budget_ns)
                return [
                    Saving(float(mean[each]), float(error[each])) if is_running[step] else None
                    for each, step in enumerate(steps)
                ]
        if progress is not None:
            progress(min(spent, budget_ns), budget_ns)


def saved_part(whole: np.ndarray, less: np.ndarray) -> float:
    """What is saved in the middle half of the rounds, by the part that is saved, of all that the
    whole takes in them.
    """
    order, out = np.argsort(less / np.maximum(whole, 1.0)), (len(whole) + 1) // 4
    middle = order[out : len(whole) - out]
    return float(1 - less[middle].sum() / max(1.0, whole[middle].sum()))


def _sets(steps: Mapping[int, int]) -> list[list[int]]:
    """The program as it is, then sets of variants that stand in together: one for each step that
    has any left. `steps` is by variant.
    """
    by_step: dict[int, list[int]] = {}
    for variant, step in steps.items():
        by_step.setdefault(step, []).append(variant)
    rest = itertools.zip_longest(*by_step.values())
    return [[], *([variant for variant in together if variant is not None] for together in rest)]
