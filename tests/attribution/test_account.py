"""The account of one run adds up whatever the samples are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whence.attribution.account import DISPATCH, DROPPED, IDLE, PROFILER, account
from whence.runtime.profiler import SAMPLE

TIMES = st.integers(0, 2**50)


def samples_of(*rows: tuple[int, int, int]) -> np.ndarray:
    """Rows of step, begin, end."""
    return np.array([(begin, end, 0, step) for step, begin, end in rows], SAMPLE)


def test_gaps_are_named_by_what_surrounds_them() -> None:
    native = np.array([True, True, False, True])
    found = account(samples_of((0, 110, 150), (1, 155, 200), (2, 230, 260), (3, 261, 300)), 100, 330, native, clock_ns=2)
    assert found.wall_ns == 230
    assert found.residual_ns == {DISPATCH: 10 + 30 + 1 + 30, IDLE: 5, PROFILER: 6}
    assert found.kernel_ns.tolist() == [38, 43, 30, 37]


def test_a_run_without_samples_is_all_dispatch() -> None:
    found = account(samples_of(), 100, 130, np.zeros(0, bool), clock_ns=2)
    assert found.residual_ns == {DISPATCH: 30, IDLE: 0, PROFILER: 0}


def test_what_was_dropped_has_a_name() -> None:
    found = account(samples_of((1, 400, 450)), 100, 460, np.ones(2, bool), clock_ns=0, dropped=7)
    assert found.residual_ns == {DISPATCH: 10, IDLE: 0, PROFILER: 0, DROPPED: 300}


@given(st.lists(st.tuples(st.integers(0, 4), TIMES, TIMES), max_size=30), TIMES, TIMES, st.integers(0, 1000), st.integers(0, 1))
def test_the_account_closes_exactly(rows: list[tuple[int, int, int]], first: int, second: int, clock: int, dropped: int) -> None:
    begin, end = min(first, second), max(first, second)
    native = np.array([True, False, True, True, False])
    found = account(samples_of(*rows), begin, end, native, clock, dropped)
    assert int(found.kernel_ns.sum()) + sum(found.residual_ns.values()) == found.wall_ns == end - begin
    assert (found.kernel_ns >= 0).all()
    assert all(time >= 0 for time in found.residual_ns.values())
