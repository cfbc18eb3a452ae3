"""Inputs in several places in memory, in turns."""

from __future__ import annotations

import numpy as np
import pytest

from whence.attribution import input_buffers
from whence.attribution.input_buffers import InputBuffers
from whence.building.aligned_memory import aligned_bytes
from whence.machine import CACHE_LINE
from whence.ops.definition import Value


def address(value: Value) -> int:
    assert isinstance(value, np.ndarray)
    return value.ctypes.data


def test_places_take_turns_and_hold_the_same() -> None:
    given = np.arange(1000, dtype=np.float32)
    places = InputBuffers([given, None])
    runs = [places.next() for _ in range(24 * 9)]
    addresses = [address(run[0]) for run in runs]
    assert [len(set(addresses[row : row + 24])) for row in range(0, len(runs), 24)] == [1] * 9
    assert len(set(addresses)) == 8
    assert addresses[0] == addresses[-1] == given.ctypes.data
    for run in runs:
        np.testing.assert_array_equal(run[0], given)
        assert run[1] is None


def test_large_inputs_have_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_buffers, "_MOST_BYTES", 1000)
    for size, count in ((400, 2), (4000, 1)):
        places = InputBuffers([np.zeros(size, np.uint8)])
        assert len({address(places.next()[0]) for _ in range(24 * 9)}) == count


@pytest.mark.parametrize("offset", [0, 4, 48])
def test_places_begin_as_far_from_a_cache_line(offset: int) -> None:
    given = aligned_bytes(4096)[offset : offset + 1024].view(np.float32)
    places = InputBuffers([given])
    assert {address(places.next()[0]) % CACHE_LINE for _ in range(24 * 8)} == {offset}
