"""Permutations, and what to tell a Reshape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.passes.layout.axes import compose, inverse_perm, is_identity, reshape_target
from whence.types import Dim

PERMS = st.permutations(range(4))


@given(PERMS, PERMS)
def test_composition_is_doing_one_after_the_other(first: list[int], second: list[int]) -> None:
    x = np.arange(120).reshape(2, 3, 4, 5)
    assert np.array_equal(x.transpose(first).transpose(second), x.transpose(compose(first, second)))
    assert is_identity(compose(first, inverse_perm(first)))
    assert is_identity(compose(inverse_perm(first), first))


@pytest.mark.parametrize(
    ("before", "after", "target"),
    [
        ((2, 3), (6,), (6,)),
        (("n", 3), ("n", 1, 3), (0, 1, 3)),
        (("n", 3), (1, "n", 3), (1, -1, 3)),
        (("n", 3, "m"), ("n", "m", 3), (0, -1, 3)),
        (("n", "m"), ("m", "n"), None),
        ((None, 4), (None, 2, 2), (-1, 2, 2)),
        ((0, 3), (3, 0), None),
    ],
)
def test_targets_of_reshapes(
    before: tuple[Dim, ...], after: tuple[Dim, ...], target: tuple[int, ...] | None
) -> None:
    assert reshape_target(before, after) == target
