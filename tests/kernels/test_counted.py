"""Lists as long as can be, and how many of their rows are meant: places of what is not zero, and
different elements.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import Cases

_TYPES = (np.bool_, np.int8, np.uint8, np.int16, np.int32, np.int64, np.float32, np.float64)


def _places(cases: Cases, x: np.ndarray, name: str) -> None:
    found = cases.op("Places", cases.feed(x), n_outputs=2)
    for index in range(2):
        cases.expect(found[index], f"{name}_{index}", limit=0)


@pytest.mark.parametrize("dtype", _TYPES)
def test_places(dtype: type) -> None:
    cases = Cases()
    for shape in ((1,), (7,), (3, 5), (2, 1, 4), (2, 3, 2, 3)):
        for among in (2, 5):
            _places(cases, cases.rng.integers(0, among, shape).astype(dtype), "some")
        _places(cases, np.zeros(shape, dtype), "none")
        _places(cases, np.ones(shape, dtype), "all")
    if dtype in (np.float32, np.float64):
        odd = np.array([0.0, -0.0, np.nan, np.inf, -1e-45, 0.0], dtype)
        _places(cases, odd, "odd")
    cases.check(peer=False)


def _distinct(cases: Cases, x: np.ndarray, name: str, *, is_sorted: int) -> None:
    found = cases.op("Distinct", cases.feed(x), n_outputs=5, sorted=is_sorted)
    for index in range(5):
        cases.expect(found[index], f"{name}_{index}", limit=0)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("dtype", _TYPES)
def test_distinct(dtype: type, is_sorted: int) -> None:
    cases = Cases()
    for length in (1, 2, 3, 8, 31, 33, 100):
        for among in (2, 10, 120):
            x: np.ndarray = cases.rng.integers(0, among, length).astype(dtype)
            _distinct(cases, x, f"{length}_{among}", is_sorted=is_sorted)
    rising: np.ndarray = np.arange(50).astype(dtype)
    _distinct(cases, rising, "rising", is_sorted=is_sorted)
    _distinct(cases, rising[::-1].copy(), "falling", is_sorted=is_sorted)
    _distinct(
        cases, cases.rng.integers(0, 9, (4, 5, 6)).astype(dtype), "image", is_sorted=is_sorted
    )
    if dtype in (np.int32, np.int64):
        edges = np.iinfo(dtype)
        _distinct(cases, np.array([edges.max, 0, edges.min, -1], dtype), "far", is_sorted=is_sorted)
    if dtype in (np.float32, np.float64):
        odd = np.array([np.nan, 1, -np.inf, np.nan, np.inf, 1, 0.5, np.nan], dtype)
        _distinct(cases, odd, "odd", is_sorted=is_sorted)
    cases.check(peer=False)


def test_only_what_is_read_is_made() -> None:
    cases = Cases()
    x = cases.rng.integers(0, 6, (6, 7)).astype(np.int64)
    for slot in range(5):
        for is_sorted in (0, 1):
            found = cases.op("Distinct", cases.feed(x), n_outputs=5, sorted=is_sorted)
            cases.expect(found[slot], f"distinct_{slot}", limit=0)
    for slot in range(2):
        cases.expect(cases.op("Places", cases.feed(x), n_outputs=2)[slot], "places", limit=0)
    cases.check(peer=False)
