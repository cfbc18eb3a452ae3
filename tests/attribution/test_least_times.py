"""When the shortest runs tell what work takes."""

from __future__ import annotations

import numpy as np

from whence.attribution.least_times import agree, agreement


def runs(*columns: list[float]) -> np.ndarray:
    return np.array(columns).T


def test_agreement_is_how_far_the_dozen_shortest_lie_apart() -> None:
    tight = [1000.0] * 11 + [1010.0] + [5000.0] * 20
    found = agreement(runs(tight, tight[::-1], [float(each) for each in range(1000, 1032)]))
    np.testing.assert_allclose(found, np.log([1.01, 1.01, 1.011]))


def test_few_runs_agree_as_far_as_all_of_them_do() -> None:
    np.testing.assert_allclose(agreement(runs([1000.0, 1200.0, 1100.0])), np.log(1.2))
    assert not agree(runs([1000.0] * 11))
    assert agree(runs([1000.0] * 12))


def test_only_large_steps_must_agree() -> None:
    steady, unsteady = [1000.0] * 24, [10.0 + each for each in range(24)]
    assert agree(runs(steady, unsteady))
    assert not agree(runs(steady, [100 * each for each in unsteady]))
