"""The account of one run adds up whatever the samples are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whence.attribution.account import DISPATCH, DROPPED, IDLE, PROFILER, Span, account
from whence.runtime.profiler import SAMPLE

TIMES = st.integers(0, 2**50)


def samples_of(*rows: tuple[int, int, int]) -> np.ndarray:
    """Rows of step, begin, end."""
    return np.array([(begin, end, 0, step, 0) for step, begin, end in rows], SAMPLE)


def test_what_lies_between_kernels_is_dispatch() -> None:
    native = np.array([True, True, False, True])
    found = account(
        samples_of((0, 110, 150), (1, 155, 200), (2, 230, 260), (3, 261, 300)),
        Span(100, 100, 330, 330),
        native,
        clock_ns=2,
    )
    assert found.wall_ns == 230
    assert found.residual_ns == {DISPATCH: 10 + 5 + 30 + 1 + 30, IDLE: 0, PROFILER: 6}
    assert found.kernel_ns.tolist() == [38, 43, 30, 37]


def test_nobody_works_until_a_run_is_taken_up_and_after_it_is_done() -> None:
    found = account(
        samples_of((0, 110, 150)), Span(100, 107, 180, 200), np.ones(1, bool), clock_ns=0
    )
    assert found.residual_ns == {DISPATCH: 3 + 30, IDLE: 7 + 20, PROFILER: 0}


def test_waiting_for_other_threads_is_part_of_a_kernel() -> None:
    samples = samples_of((0, 110, 150), (1, 150, 200))
    samples["waited"] = 12, 900
    found = account(samples, Span(110, 110, 200, 200), np.ones(2, bool), clock_ns=2)
    assert found.kernel_ns.tolist() == [38, 48]
    assert found.waited_ns.tolist() == [12, 48]


def test_a_run_without_samples_is_all_dispatch() -> None:
    found = account(samples_of(), Span(100, 105, 130, 130), np.zeros(0, bool), clock_ns=2)
    assert found.residual_ns == {DISPATCH: 25, IDLE: 5, PROFILER: 0}


def test_what_was_dropped_has_a_name() -> None:
    found = account(
        samples_of((1, 400, 450)), Span(100, 100, 460, 460), np.ones(2, bool), clock_ns=0, dropped=7
    )
    assert found.residual_ns == {DISPATCH: 10, IDLE: 0, PROFILER: 0, DROPPED: 300}


@given(
    st.lists(st.tuples(st.integers(0, 4), TIMES, TIMES), max_size=30),
    st.tuples(TIMES, TIMES, TIMES, TIMES),
    st.integers(0, 1000),
    st.booleans(),
    TIMES,
)
def test_the_account_closes_exactly(
    rows: list[tuple[int, int, int]], times: tuple[int, ...], clock: int, dropped: bool, waited: int
) -> None:
    span = Span(*sorted(times))
    native = np.array([True, False, True, True, False])
    samples = samples_of(*rows)
    samples["waited"] = waited
    found = account(samples, span, native, clock, int(dropped))
    assert (
        int(found.kernel_ns.sum()) + sum(found.residual_ns.values())
        == found.wall_ns
        == span.end - span.begin
    )
    assert (found.kernel_ns >= found.waited_ns).all()
    assert (found.waited_ns >= 0).all()
    assert all(time >= 0 for time in found.residual_ns.values())
