"""What is called a change, on runs with the noise of a shared machine: spikes, drifts that all
operators have in common, and some that they do not.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.attribution.harness import profile_of
from tests.report.browser import residual_net
from whence.attribution.compare import Verdict, compare
from whence.attribution.noise import BLOCKS, block_lows, change_of
from whence.attribution.profile import Profile, band_of
from whence.attribution.rows import NO_DISTRIBUTION

OPERATORS, RUNS = 60, 50


def _profile(base: Profile, rng: np.random.Generator, slower: int = -1) -> Profile:
    """Runs of a model on a busy machine; operator `slower` takes a fifth longer."""
    count = len(base.sources)
    own = 20_000 * (1 + np.arange(count) % 13)
    if slower >= 0:
        own[slower] = own[slower] * 6 // 5
    # Others use the machine for a while: everything takes longer, arithmetic more than memory.
    busy = np.abs(np.cumsum(rng.normal(0, 0.03, RUNS)))[:, None] + rng.exponential(0.1)
    feels = 0.7 + 0.3 * np.random.default_rng(0).random(count)[None]
    jitter = rng.lognormal(0, 0.04, (RUNS, count))
    spikes = np.where(rng.random((RUNS, count)) < 0.03, rng.exponential(3.0, (RUNS, count)), 0)
    times = (own * (1 + busy * feels) * jitter * (1 + spikes)).astype(int)
    rows = tuple(
        dataclasses.replace(
            row,
            name=f"operator{number}",
            time_ns=int(times[:, number].sum()),
            band=band_of(times[:, number].tolist()),
            distribution=NO_DISTRIBUTION,
            blocks=block_lows(times[:, number].tolist()),
        )
        for number, row in enumerate(base.sources)
    )
    walls = tuple(int(each) for each in times.sum(axis=1))
    return dataclasses.replace(base, sources=rows, runs_ns=walls, runs=RUNS, wall_ns=sum(walls))


@pytest.fixture(scope="module")
def base() -> Profile:
    return profile_of(residual_net(tuple(f"block{number}" for number in range(OPERATORS // 5))))


def test_nothing_is_called_changed_between_identical_runs(base: Profile) -> None:
    rng = np.random.default_rng(1)
    changed = [
        each.name
        for _ in range(40)
        for each in compare(_profile(base, rng), _profile(base, rng)).operators
        if each.verdict is not Verdict.SAME
    ]
    assert changed == []


def test_an_operator_that_became_slower_by_a_fifth_is_named_first(base: Profile) -> None:
    rng = np.random.default_rng(2)
    named = 0
    for pair in range(20):
        # One that takes a few parts in a hundred of the run: others are below what matters.
        slower = (13 * pair + 12) % len(base.sources)
        found = compare(_profile(base, rng), _profile(base, rng, slower))
        first = found.operators[0]
        named += first.name == f"operator{slower}" and first.verdict is Verdict.SLOWER
    assert named >= 19


def test_on_a_quiet_machine_a_change_of_all_operators_is_a_change_of_each() -> None:
    before, after = [100, 101, 100, 100] * 2, [110, 111, 110, 110] * 2
    assert change_of(before, after, [1000] * 8, [1100] * 8) == pytest.approx(0.1)
    noisy = [1000, 1300, 1100, 1000] * 2
    assert not change_of(before, after, noisy, [each * 11 // 10 for each in noisy])


def test_what_is_small_beside_the_model_is_no_change() -> None:
    assert not change_of([100] * 8, [200] * 8, [10**6] * 8, [10**6] * 8)


def test_blocks_are_lower_quartiles_of_consecutive_runs() -> None:
    assert block_lows([5, 1, 9, 7, 3, 2, 8, 8]) == (1, 7, 2, 8)
    assert len(block_lows(list(range(50)))) == BLOCKS
    assert block_lows([1, 2, 3, 4, 5]) == ()
