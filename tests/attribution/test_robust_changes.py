"""What is called a change on a machine with many users: kernels are interrupted, and whatever runs
at the same moment is slowed down together.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.diff_truth import slowed
from whence.attribution.compare import Verdict, compare
from whence.attribution.noise import block_lows
from whence.attribution.profile import Profile, band_of
from whence.attribution.robust_changes import robust_changes
from whence.attribution.rows import KernelRow, Part, SourceRow
from whence.graph.outcomes import Coverage

KERNELS, RUNS = 60, 50


def busy_profile(rng: np.random.Generator, kernels: int = KERNELS, runs: int = RUNS) -> Profile:
    """Every kernel is two operators, three quarters and one quarter of it."""
    usual = 20_000.0 * (1 + np.arange(kernels) % 13)
    # Another process on the core beside: for a while all kernels take half as long again, arithmetic
    # more than memory.
    beside = np.repeat(rng.random((runs, kernels // 10 + 1)) < 0.7, 10, axis=1)
    beside = np.array([np.roll(row, rng.integers(10)) for row in beside])[:, :kernels]
    feels = 0.45 + 0.1 * np.random.default_rng(0).random(kernels)
    times = usual * (1 + beside * feels) * rng.lognormal(0, 0.03, (runs, kernels))
    # And the scheduler takes the core away, more often from long kernels.
    taken = rng.random((runs, kernels)) < usual / 3e6
    times = (times + taken * rng.exponential(4e6, (runs, kernels))).astype(int)
    walls = times.sum(axis=1) + 50_000
    total = int(walls.sum())
    rows, parts = [], []
    for number in range(kernels):
        mine = times[:, number]
        parts.append(
            KernelRow(
                number,
                f"kernel{number}",
                tuple(
                    Part(2 * number + which + 1, weight, int(mine.sum() * weight))
                    for which, weight in enumerate((0.75, 0.25))
                ),
                int(mine.sum()),
                runs,
                int(mine.min()),
                True,
                runs_ns=tuple(mine.tolist()),
            )
        )
        for which, weight in enumerate((0.75, 0.25)):
            own = (mine * weight).astype(int).tolist()
            rows.append(
                SourceRow(
                    2 * number + which + 1,
                    f"operator{2 * number + which}",
                    "Conv",
                    "live",
                    sum(own),
                    sum(own) / total,
                    (number,),
                    band=band_of(own),
                    blocks=block_lows(own),
                )
            )
    count = 2 * kernels
    return Profile(
        "made up",
        "cpu",
        1,
        runs,
        total,
        {},
        0.0,
        Coverage(count, count, 0, 0, 0, 0),
        tuple(rows),
        tuple(parts),
        runs_ns=tuple(walls.tolist()),
    )


def test_nothing_is_called_changed_between_identical_runs_of_a_busy_machine() -> None:
    rng = np.random.default_rng(1)
    changed = [
        each.name
        for _ in range(40)
        for each in compare(busy_profile(rng), busy_profile(rng)).operators
        if each.verdict is not Verdict.SAME
    ]
    assert changed == []


def test_an_operator_a_fifth_slower_is_named_first_on_a_busy_machine() -> None:
    rng = np.random.default_rng(2)
    named = 0
    for pair in range(20):
        before, after = busy_profile(rng), busy_profile(rng)
        # The larger one of a kernel.
        large = [row for row in after.sources if row.share >= 0.01 and row.id % 2]
        chosen = large[pair % len(large)]
        first = compare(before, slowed(after, chosen.id)).operators[0]
        named += first.name == chosen.name and first.verdict is Verdict.SLOWER
        if first.name == chosen.name:
            assert 0.05 < first.ratio < 0.4, "by how much is told, not how the busy times differ"
    assert named >= 19


def test_few_runs_or_kernels_tell_nothing() -> None:
    rng = np.random.default_rng(3)
    whole = busy_profile(rng)
    assert robust_changes(whole, busy_profile(rng, kernels=4)) is None
    assert robust_changes(whole, busy_profile(rng, runs=8)) is None
    itself = robust_changes(whole, whole)
    assert itself is not None
    assert set(itself.grown.values()) == {0.0}


def test_little_is_said_where_the_usual_run_takes_many_times_as_long_as_the_shortest() -> None:
    """Of an operator with most of its kernel, which is a seventh slower."""

    def with_shortest(profile: Profile, shortest: float) -> Profile:
        usual = int(np.median(profile.runs_ns))
        runs = (round(shortest * usual), *[usual] * (len(profile.runs_ns) - 1))
        return dataclasses.replace(profile, runs_ns=runs)

    rng = np.random.default_rng(5)
    before, after = busy_profile(rng), slowed(busy_profile(rng), 73)
    for shortest, seen in ((0.95, True), (0.01, False)):
        found = robust_changes(with_shortest(before, shortest), with_shortest(after, shortest))
        assert found is not None
        assert (found.grown["operator72"] > 0) is seen
        assert ("operator72" in found.unclear) is not seen


def with_second_core(profile: Profile, rng: np.random.Generator, free: float) -> Profile:
    """Every other kernel takes half as long when the second core is free, in so many of the runs."""
    runs = rng.random(len(profile.runs_ns)) < free

    def quicker(row: KernelRow) -> KernelRow:
        if row.id % 2:
            return row
        times = tuple(
            time // 2 if both else time for time, both in zip(row.runs_ns, runs, strict=True)
        )
        return dataclasses.replace(row, runs_ns=times)

    return dataclasses.replace(profile, threads=2, kernels=tuple(map(quicker, profile.kernels)))


def test_how_often_a_second_core_is_free_is_no_change() -> None:
    """In one run of fifty, or in one of ten: the shortest runs tell nothing."""
    rng = np.random.default_rng(6)
    changed = [
        each.name
        for _ in range(10)
        for each in compare(
            with_second_core(busy_profile(rng), rng, 0.02),
            with_second_core(busy_profile(rng), rng, 0.1),
        ).operators
        if each.verdict is not Verdict.SAME
    ]
    assert changed == []


def test_a_kernel_that_is_interrupted_in_nearly_every_run_is_no_change() -> None:
    """A long one on a very busy machine: its shortest run differs by chance."""
    rng = np.random.default_rng(7)

    def with_long_kernel(profile: Profile) -> Profile:
        times = 10_000_000 * (1 + np.minimum(*rng.exponential(0.8, (2, RUNS))) + 0.1 * rng.random())
        long = dataclasses.replace(profile.kernels[30], runs_ns=tuple(times.astype(int).tolist()))
        kernels = tuple(long if row.id == 30 else row for row in profile.kernels)
        return dataclasses.replace(profile, kernels=kernels)

    for _ in range(10):
        pair = [with_long_kernel(busy_profile(rng)) for _ in range(2)]
        found = robust_changes(*pair)
        assert found is not None
        assert set(found.grown.values()) == {0.0}
