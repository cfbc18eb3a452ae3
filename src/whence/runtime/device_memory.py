"""A tensor in memory of a device that the application has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Where a dense tensor lies, to be read or written there."""

    given: Any
    """What the application gave, and gets back for an output."""
    buffer: Any
    """The device's own object."""
    offset: int
    """In bytes, into the buffer."""
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize
