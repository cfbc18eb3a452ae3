"""What is called a change on a machine with many users: kernels are interrupted, and whatever runs
at the same moment is slowed down together.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.diff_truth import slowed
from whence.attribution.compare import Verdict, compare
from whence.attribution.least_times import RANKS, least_times
from whence.attribution.noise import block_lows
from whence.attribution.profile import Profile, band_of
from whence.attribution.robust_changes import robust_changes
from whence.attribution.rows import KernelRow, Part, SourceRow
from whence.graph.outcomes import Coverage
from whence.report.comparison import unclear_line

KERNELS, RUNS = 60, 50


def busy_profile(rng: np.random.Generator, kernels: int = KERNELS, runs: int = RUNS) -> Profile:
    """Every kernel is two operators, three quarters and one quarter of it."""
    usual = 20_000.0 * (1 + np.arange(kernels) % 13)
    # Another process on the core beside: for a while all kernels take half as long again,
    # arithmetic more than memory.
    beside = np.repeat(rng.random((runs, kernels // 10 + 1)) < 0.7, 10, axis=1)
    beside = np.array([np.roll(row, rng.integers(10)) for row in beside])[:, :kernels]
    feels = 0.45 + 0.1 * np.random.default_rng(0).random(kernels)
    times = usual * (1 + beside * feels) * rng.lognormal(0, 0.02, (runs, kernels))
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
                bound="compute",
                is_contraction=True,
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


def with_kernel(profile: Profile, number: int, factor: float, *, contraction: bool) -> Profile:
    """The same with one kernel slower, a convolution or a pool."""
    kernels = tuple(
        dataclasses.replace(
            row,
            runs_ns=tuple(round(factor * each) for each in row.runs_ns),
            is_contraction=contraction,
            bound="compute" if contraction else "cache",
        )
        if row.id == number
        else row
        for row in profile.kernels
    )
    return dataclasses.replace(profile, kernels=kernels)


def test_what_streams_data_must_differ_by_more() -> None:
    """What others leave in the caches changes between profiles, without any change of the kernel."""
    profile = busy_profile(np.random.default_rng(11), runs=128)
    for contraction in (True, False):
        before, after = (
            with_kernel(profile, 38, factor, contraction=contraction) for factor in (1.0, 1.12)
        )
        found = robust_changes(before, after)
        assert found is not None
        assert (found.grown["operator76"] > 0) is contraction
        grown = with_kernel(after, 38, 1.5, contraction=contraction)
        more = robust_changes(before, grown)
        assert more is not None
        assert more.grown["operator76"] > 0.3


@pytest.mark.parametrize(
    ("scatter", "apart", "factor", "is_change", "is_unclear"),
    [
        (0.04, 0.06, 1.2, True, False),
        (0.06, 0.06, 1.2, False, True),
        (0.06, 0.06, 1.5, True, True),
        (0.06, 0.02, 1.2, True, False),
    ],
)
def test_an_unsteady_kernel_must_differ_by_much_more(
    scatter: float, apart: float, factor: float, is_change: bool, is_unclear: bool
) -> None:
    """One whose least time differs by more than a twentieth from moment to moment depends on what
    others do, which may be something else all through the other profile: unless its dozen shortest
    runs are hardly `apart`.
    """
    profile = busy_profile(np.random.default_rng(13), runs=128)

    def at(factor: float) -> Profile:
        slower = with_kernel(profile, 38, factor, contraction=True)
        return dataclasses.replace(
            slower,
            kernels=tuple(
                dataclasses.replace(
                    row,
                    shortest_busy_ns=tuple(
                        round(min(row.runs_ns) * (1 + apart * number / 11)) for number in range(24)
                    ),
                    busy_scatter=scatter if row.id == 38 else 0.01,
                )
                for row in slower.kernels
            ),
        )

    found = robust_changes(at(1.0), at(factor))
    assert found is not None
    assert (found.grown["operator76"] > 0) is is_change
    assert ("operator76" in found.unclear) is is_unclear


UNSTEADY = (8, 18, 19, 37, 38)


def test_what_unsteady_kernels_have_in_common_is_the_memory() -> None:
    """Others use it less all through a profile; one that differs from the rest of them changed."""
    profile = busy_profile(np.random.default_rng(14), runs=128)

    def at(factors: dict[int, float]) -> Profile:
        return dataclasses.replace(
            profile,
            kernels=tuple(
                dataclasses.replace(
                    row,
                    shortest_busy_ns=tuple(
                        round(factors.get(row.id, 1.0) * each) for each in sorted(row.runs_ns)[:24]
                    ),
                    busy_scatter=0.02 if row.id in UNSTEADY else 0.001,
                )
                for row in profile.kernels
            ),
        )

    unsteady = dict.fromkeys(UNSTEADY, 1.16)
    for factors, changed in (
        (unsteady, set()),
        ({38: 1.16}, {"operator76"}),
        ({**unsteady, 38: 1.5}, {"operator76"}),
        ({**unsteady, 7: 1.16}, {"operator14"}),
    ):
        found = robust_changes(at({}), at(factors))
        assert found is not None
        # Both operators of a kernel moved with it; the even ones have most of it.
        named = {name for name, grown in found.grown.items() if grown}
        assert {name for name in named if int(name.removeprefix("operator")) % 2 == 0} == changed


@pytest.mark.parametrize("contraction", [True, False])
def test_one_lucky_run_of_a_kernel_is_no_change(contraction: bool) -> None:
    profile = with_kernel(
        busy_profile(np.random.default_rng(12), runs=128), 38, 1.0, contraction=contraction
    )
    kernels = tuple(
        dataclasses.replace(row, runs_ns=(min(row.runs_ns) * 2 // 3, *row.runs_ns[1:]))
        if row.id == 38
        else row
        for row in profile.kernels
    )
    found = robust_changes(dataclasses.replace(profile, kernels=kernels), profile)
    assert found is not None
    assert set(found.grown.values()) == {0.0}


def test_few_runs_or_kernels_tell_nothing() -> None:
    rng = np.random.default_rng(3)
    whole = busy_profile(rng)
    assert robust_changes(whole, busy_profile(rng, kernels=4)) is None
    assert robust_changes(whole, busy_profile(rng, runs=8)) is None
    itself = robust_changes(whole, whole)
    assert itself is not None
    assert set(itself.grown.values()) == {0.0}


def with_busy_times(profile: Profile, rng: np.random.Generator, free: float) -> Profile:
    """Two threads. Every other kernel takes half as long when the second core is free, in so many
    of the runs; how long threads worked at it is the same in all.
    """
    runs = rng.random(len(profile.runs_ns)) < free

    def shared(row: KernelRow) -> KernelRow:
        busy = tuple(sorted(row.runs_ns)[:24])
        if row.id % 2:
            return dataclasses.replace(row, shortest_busy_ns=busy)
        times = tuple(
            time // 2 if both else time for time, both in zip(row.runs_ns, runs, strict=True)
        )
        return dataclasses.replace(row, runs_ns=times, shortest_busy_ns=busy)

    return dataclasses.replace(profile, threads=2, kernels=tuple(map(shared, profile.kernels)))


def test_how_often_a_second_core_is_free_is_no_change() -> None:
    """In one run of fifty, or in every other: what threads worked is the same."""
    rng = np.random.default_rng(6)
    for _ in range(10):
        before = with_busy_times(busy_profile(rng), rng, 0.02)
        after = with_busy_times(busy_profile(rng), rng, 0.5)
        found = compare(before, after)
        assert {each.verdict for each in found.operators} == {Verdict.SAME}
        assert found.total.verdict is Verdict.SAME
        slower = compare(before, slowed(after, 73)).operators[0]
        assert (slower.name, slower.verdict) == ("operator72", Verdict.SLOWER)


def test_threads_that_did_not_note_when_they_work_cannot_be_compared_by_that() -> None:
    rng = np.random.default_rng(6)
    one = dataclasses.replace(busy_profile(rng), threads=2)
    assert robust_changes(one, one) is None


def test_other_numbers_of_threads_share_the_work_in_another_way() -> None:
    """Twice as fast with two threads, which together work as long as one did."""
    rng = np.random.default_rng(6)
    two = with_busy_times(busy_profile(rng), rng, 1.0)
    one = dataclasses.replace(two, threads=1)
    assert robust_changes(one, two) is None
    assert robust_changes(two, dataclasses.replace(two, engine="onnxruntime")) is None


def slower_throughout(profile: Profile, factor: float) -> Profile:
    kernels = tuple(
        dataclasses.replace(row, runs_ns=tuple(round(factor * each) for each in row.runs_ns))
        for row in profile.kernels
    )
    return dataclasses.replace(profile, kernels=kernels)


def test_what_is_common_to_all_operators_is_the_machines_unless_fixed_work_denies_it() -> None:
    rng = np.random.default_rng(8)
    before, after = busy_profile(rng), slower_throughout(busy_profile(rng), 1.3)
    work = 10_000 * (1 + rng.exponential(0.01, (2, RUNS)))
    first, same = (tuple(each.astype(int).tolist()) for each in work)
    slow = tuple(round(1.3 * each) for each in same)
    before = dataclasses.replace(before, fixed_products_ns=first)

    with_same = compare(before, dataclasses.replace(after, fixed_products_ns=same))
    assert with_same.total.verdict is Verdict.SLOWER
    assert with_same.total.ratio == pytest.approx(0.3, abs=0.03)
    large = {row.name for row in after.sources if row.share > 0.005}
    verdicts = {each.verdict for each in with_same.operators if each.name in large}
    assert verdicts == {Verdict.SLOWER}

    with_slow = compare(before, dataclasses.replace(after, fixed_products_ns=slow))
    assert with_slow.total.verdict is Verdict.SAME
    assert {each.verdict for each in with_slow.operators} == {Verdict.SAME}
    assert with_slow.over(0.05) == []

    # Its shortest times lie far apart: how fast the machine was is not known, nor is the model.
    unsure = tuple(round(each * (1 + number / 20)) for number, each in enumerate(same))
    with_unsure = compare(before, dataclasses.replace(after, fixed_products_ns=unsure))
    assert with_unsure.total.verdict is Verdict.UNKNOWN


def test_a_model_of_which_no_run_was_left_alone_is_not_known() -> None:
    """No two runs agree: nothing is called a change, and `--fail-over` does not fail."""
    rng = np.random.default_rng(9)

    def disturbed(factor: float) -> Profile:
        profile = busy_profile(rng)
        kernels = tuple(
            dataclasses.replace(
                row,
                runs_ns=tuple(
                    int(factor * each)
                    for each in 1_000_000 * (1 + rng.random() + 20 * rng.random(RUNS))
                ),
            )
            for row in profile.kernels
        )
        return dataclasses.replace(profile, kernels=kernels)

    found = compare(disturbed(1.0), disturbed(2.0))
    assert found.total.verdict is Verdict.UNKNOWN
    assert {each.verdict for each in found.operators} == {Verdict.SAME}
    assert found.over(0.05) == []
    assert "not known: the machine was too busy" in unclear_line(found)


def test_the_interval_holds_the_lower_end() -> None:
    """At the level that is asked for, and it is narrow where runs agree."""
    rng = np.random.default_rng(10)
    times = 100_000 + rng.exponential(20_000, (RUNS, 4000))
    found = least_times(times, 0.01)
    assert np.mean(found.lower > 100_000) <= 0.01 * len(RANKS)
    close = least_times(100_000 + rng.exponential(200, (RUNS, 100)), 1e-4)
    assert np.all(close.lower > 99_000)
    lucky = np.full((RUNS, 1), 200_000.0)
    lucky[7] = 100_000
    assert least_times(lucky, 1e-4).lower[0] < 50_000


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
