"""Arrays of the caller, on their way into a run and out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.building.program import Block
from whence.errors import InputError

if TYPE_CHECKING:
    from whence.ops.definition import Value


def dense(wanted: Block, value: Value) -> np.ndarray:
    """The value as native code reads it: of exactly the expected size, dense and aligned."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype != wanted.dtype
        or value.shape != wanted.shape
    ):
        found = (
            f"{value.dtype}{list(value.shape)}"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise InputError(
            f"input {wanted.name!r} is {found}, and was compiled for"
            f" {wanted.dtype}{list(wanted.shape)}"
        )
    # Nearly all arrays are, and can be written as well: one look tells.
    return value if value.flags.carray else np.require(value, requirements=("C", "A"))


def copied(value: Value) -> Value:
    if isinstance(value, np.ndarray):
        return value.copy()
    return [copied(item) for item in value] if isinstance(value, list) else value
