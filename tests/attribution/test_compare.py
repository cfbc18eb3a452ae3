"""Two profiles side by side."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.attribution.harness import conv_bn_relu, profile_of
from tests.attribution.test_robust_changes import busy_profile
from whence.attribution.compare import Verdict, compare
from whence.attribution.policy import EXACT, MODELLED
from whence.attribution.profile import Profile
from whence.attribution.rows import Band
from whence.report.comparison import as_json, unclear_line


@pytest.fixture
def profile() -> Profile:
    return profile_of(conv_bn_relu(), 1_000_000, runs=4)


def slower(profile: Profile, factor: float, spread: float = 0.0) -> Profile:
    """The same with every time multiplied, and with runs that differ by `spread`."""

    def band(old: Band) -> Band:
        return Band(
            round(old.low_ns * (factor - spread)),
            round(old.median_ns * factor),
            round(old.high_ns * (factor + spread)),
        )

    runs = [
        time * (factor + spread * side)
        for time, side in zip(profile.runs_ns, (-1, 0, 0, 1), strict=True)
    ]
    return dataclasses.replace(
        profile,
        sources=tuple(dataclasses.replace(row, band=band(row.band)) for row in profile.sources),
        runs_ns=tuple(round(time) for time in runs),
    )


def test_a_profile_equals_itself(profile: Profile) -> None:
    found = compare(profile, profile)
    assert found.total.verdict is Verdict.SAME
    assert {each.verdict for each in found.operators} == {Verdict.SAME}
    assert found.over(0.0) == []


def test_a_slower_model_fails_over_the_limit_only(profile: Profile) -> None:
    found = compare(profile, slower(profile, 1.1))
    assert found.total.verdict is Verdict.SLOWER
    assert found.total.ratio == pytest.approx(0.1, abs=1e-3)
    assert found.over(0.05)[0] is found.total
    assert found.over(0.15) == []
    assert compare(slower(profile, 1.1), profile).total.verdict is Verdict.FASTER
    assert compare(slower(profile, 1.1), profile).over(0.0) == []


def test_a_difference_within_the_noise_does_not_count(profile: Profile) -> None:
    quiet = compare(profile, slower(profile, 1.1))
    found = compare(slower(profile, 1.0, 0.2), slower(profile, 1.1, 0.2))
    assert quiet.operators[0].verdict is Verdict.SLOWER
    assert found.operators[0].verdict is Verdict.SAME
    assert [each for each in found.over(0.05) if each is not found.total] == []


def test_operators_that_only_one_has(profile: Profile) -> None:
    fewer = dataclasses.replace(profile, sources=profile.sources[1:])
    gone = {each.name: each for each in compare(profile, fewer).operators}
    assert gone["/net/layer1/conv"].verdict is Verdict.REMOVED
    new = compare(fewer, profile)
    assert {each.name: each.verdict for each in new.operators}["/net/layer1/conv"] is Verdict.ADDED
    assert [each.name for each in new.over(0.05)] == ["/net/layer1/conv"]
    assert new.operators[0].ratio == float("inf")


def with_parts(profile: Profile, kernel: int, *weights: float) -> Profile:
    """The same profile with other parts of a kernel, as a model splits it that has seen other
    times.
    """
    row = profile.kernels[kernel]
    assert len(row.origin) == len(weights)
    old = {part.id: part.weight for part in row.origin}
    new = dict(zip(old, weights, strict=True))
    return dataclasses.replace(
        profile,
        kernels=tuple(
            dataclasses.replace(
                each,
                origin=tuple(part._replace(weight=new[part.id]) for part in each.origin),
            )
            if each is row
            else each
            for each in profile.kernels
        ),
        sources=tuple(
            dataclasses.replace(
                each, band=Band(*(round(time * new[each.id] / old[each.id]) for time in each.band))
            )
            if old.get(each.id)
            else each
            for each in profile.sources
        ),
    )


def test_other_modelled_parts_of_a_kernel_are_no_change() -> None:
    """A small operator in a kernel has a larger part of it on a quiet machine than on a busy
    one.
    """
    rng = np.random.default_rng(4)
    before, after = busy_profile(rng), busy_profile(rng)
    for number in (10, 30, 50):
        after = with_parts(after, number, 0.6, 0.4)
    assert {each.verdict for each in compare(before, after).operators} == {Verdict.SAME}
    assert {each.verdict for each in compare(after, before).operators} == {Verdict.SAME}


def test_other_measured_parts_of_a_kernel_are_a_change() -> None:
    rng = np.random.default_rng(4)
    before, after = (dataclasses.replace(busy_profile(rng), policy=EXACT) for _ in range(2))
    found = compare(before, with_parts(after, 30, 0.55, 0.45)).operators
    changed = {each.name for each in found if each.verdict is not Verdict.SAME}
    assert changed == {"operator60", "operator61"}
    # A modelled profile takes over what the other one measured.
    modelled = dataclasses.replace(with_parts(after, 30, 0.55, 0.45), policy=MODELLED)
    assert {each.verdict for each in compare(before, modelled).operators} == {Verdict.SAME}


def test_what_the_noise_hides_is_said() -> None:
    rng = np.random.default_rng(4)
    found = compare(busy_profile(rng), busy_profile(rng))
    assert unclear_line(found) == ""
    names = frozenset(each.name for each in found.operators)
    hidden = dataclasses.replace(found, unclear=names)
    assert unclear_line(hidden).startswith(f"for {len(names)} of them, 100 % of the time, noise")
    assert "operator3" in json.loads(as_json(hidden, []))["unclear"]
