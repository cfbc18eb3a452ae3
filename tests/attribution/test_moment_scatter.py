"""By how much a kernel's time differs from one moment of a profile to another."""

from __future__ import annotations

import numpy as np

from whence.attribution.moment_scatter import moment_scatter

RUNS, KERNELS = 128, 20


def quiet_times(rng: np.random.Generator) -> np.ndarray:
    usual = 50_000.0 * (1 + np.arange(KERNELS) % 5)
    return usual * (1 + rng.exponential(0.005, (RUNS, KERNELS)))


def test_what_slows_down_all_kernels_is_no_scatter_of_one() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        moments = np.repeat(rng.uniform(1, 2, RUNS // 8), 8)[:, None]
        assert np.all(moment_scatter(quiet_times(rng) * moments) < 0.01)


def test_a_kernel_that_others_disturb_from_moment_to_moment() -> None:
    """However many runs share a moment: they are no independent measurements."""
    rng = np.random.default_rng(2)
    times = quiet_times(rng)
    times[:, 3] *= np.repeat(np.exp(rng.normal(0, 0.1, RUNS // 8)), 8)
    often = np.repeat(times, 4, axis=0)
    for found in (moment_scatter(times), moment_scatter(often)):
        assert 0.04 < found[3] < 0.2
        assert np.all(np.delete(found, 3) < 0.01)


def test_interrupted_runs_do_not_count() -> None:
    rng = np.random.default_rng(3)
    times = quiet_times(rng)
    times[rng.random(times.shape) < 0.3] *= 20
    assert np.all(moment_scatter(times) < 0.02)


def test_steps_that_do_not_run_and_few_runs() -> None:
    times = quiet_times(np.random.default_rng(4))
    times[:, 7] = 0
    assert moment_scatter(times)[7] == 0
    assert moment_scatter(times[:12]).tolist() == [0.0] * KERNELS
    assert moment_scatter(np.zeros((0, 3))).tolist() == [0.0] * 3
