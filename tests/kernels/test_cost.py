"""Work is divided by the number of threads that share it."""

from __future__ import annotations

import pytest

from whence.kernels.cost import chunk_size, imbalance


def test_one_thread_loses_nothing_whatever_the_items() -> None:
    assert [imbalance(tasks, 1) for tasks in (1, 2, 7, 64)] == [1.0] * 4


def test_items_that_cannot_be_shared_evenly_cost_the_thread_with_the_most() -> None:
    assert imbalance(1, 16) > 16
    assert imbalance(17, 16) > imbalance(16, 16) > imbalance(64, 16) > 1
    assert imbalance(2, 2) < imbalance(3, 2)


def test_one_thread_takes_the_largest_chunk_that_is_allowed() -> None:
    assert chunk_size(56, 1, 1, overhead=0.25) == 56
    assert chunk_size(56, 3, 1, overhead=0.25, least_parts=4) == 14


@pytest.mark.parametrize("threads", [2, 4, 16, 64])
@pytest.mark.parametrize("others", [1, 3, 16])
def test_many_threads_get_enough_items_of_even_size(threads: int, others: int) -> None:
    chunk = chunk_size(112, others, threads, overhead=0.25)
    items = others * -(-112 // chunk)
    # The busiest thread has at most a quarter more than an even share, or there is no finer
    # division.
    busiest = -(-items // threads) * chunk
    assert items >= min(threads, others * 112)
    assert busiest <= max(1.25 * others * 112 / threads, 1)


def test_no_item_is_smaller_than_allowed() -> None:
    assert chunk_size(100, 1, 64, overhead=0.25, most_parts=4) == 25
    assert chunk_size(3, 1, 64, overhead=0.25, least_parts=9, most_parts=1) == 3
