"""What operators that live on the caches take, where others use those as much."""

from __future__ import annotations

import numpy as np
import pytest

from whence.attribution.equal_pressure import FRACTIONS, moved_at_equal_pressure, quantiles

USUAL = np.array([200.0, 640.0, 170.0, 12.0, 25.0, 15.0, 300.0])
# The last one does not feel what others do in the caches.
FEELS = np.array([0.4, 1.0, 0.9, 0.7, 0.5, 0.8, 0.0])
PRESSED = FEELS > 0


def logarithms(rng: np.random.Generator, free: float, factors: dict[int, float]) -> np.ndarray:
    """Of quantiles, where the caches are free in so many of the runs, and half taken in most."""
    pressure = np.where(rng.random(800) < free, 0.02, 0.15) + rng.gamma(2.0, 0.08, 800)
    times = 1000 * USUAL * np.exp(np.outer(pressure, FEELS) + rng.gamma(2, 0.01, (800, len(USUAL))))
    for number, factor in factors.items():
        times[:, number] *= factor
    found: np.ndarray = np.log(quantiles(times))
    return found


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.0), (0.0, 0.5), (0.3, 0.3)])
def test_free_caches_in_one_of_two_profiles_are_no_change(before: float, after: float) -> None:
    rng = np.random.default_rng(1)
    for number in range(5):
        one, two = logarithms(rng, before, {}), logarithms(rng, after, {})
        moved = moved_at_equal_pressure(one, two, PRESSED)
        assert moved is not None
        assert abs(moved).max() < 0.06
        # The shortest times alone would tell of one.
        assert bool(abs(two[0] - one[0]).max() > 0.1) is (before != after)
        slower = moved_at_equal_pressure(one, logarithms(rng, after, {number: 1.2}), PRESSED)
        assert slower is not None
        assert slower[number] == pytest.approx(np.log(1.2), abs=0.05)
        assert abs(np.delete(slower, number)).max() < 0.13


def test_others_of_one_are_as_they_are() -> None:
    rng = np.random.default_rng(2)
    one, two = logarithms(rng, 0.3, {}), logarithms(rng, 0.3, {6: 1.3})
    moved = moved_at_equal_pressure(one, two, PRESSED)
    assert moved is not None
    assert moved[6] == pytest.approx(np.log(1.3), abs=0.02)


def test_few_companions_tell_nothing() -> None:
    rng = np.random.default_rng(3)
    one = logarithms(rng, 0.3, {})
    assert one.shape == (len(FRACTIONS), len(USUAL))
    assert moved_at_equal_pressure(one, one, np.arange(len(USUAL)) < 4) is None
