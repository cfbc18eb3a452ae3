"""The changes that mutants are made by can be made to every array."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.mutation.onnx_mutants import Mutant


@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.int8, np.float16, np.bool_])
def test_arrays_in_the_whole_range_of_their_type(dtype):
    limits = np.array([0, 1] if dtype in (np.float16, np.bool_) else _limits(dtype), dtype)
    mutant = Mutant(b"", (), np.random.default_rng(0))
    for _ in range(20):
        made = mutant.made_up((3, 2), limits)
        assert made.shape == (3, 2)
        assert made.dtype == dtype


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32, np.int8, np.bool_])
def test_an_element_of_any_type_can_be_spoiled(dtype):
    mutant = Mutant(b"", (), np.random.default_rng(0))
    found = [mutant.spoiled(np.ones(3, dtype)) for _ in range(20)]
    assert all(each.dtype == dtype and each.shape == (3,) for each in found)
    assert any((each != np.ones(3, dtype)).any() for each in found)


def _limits(dtype: type[np.integer]) -> list[int]:
    info = np.iinfo(dtype)
    return [int(info.min), int(info.max)]
