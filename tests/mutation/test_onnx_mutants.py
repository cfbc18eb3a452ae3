"""The changes that mutants are made by can be made to every array."""

from __future__ import annotations

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


def _limits(dtype: type[np.integer]) -> list[int]:
    info = np.iinfo(dtype)
    return [int(info.min), int(info.max)]
