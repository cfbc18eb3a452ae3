"""The work items of a kernel in the order of the rows of an image: kernels of neighbouring layers
can then take turns, so that what one makes is still in the cache when the next one reads it.
"""

from __future__ import annotations

from typing import NamedTuple


class Slice(NamedTuple):
    """Some of a kernel's work items, and how far the kernel is when they and all before are done."""

    tasks: tuple[tuple[int, int], ...]
    """Ranges of work items."""
    read: int
    """So many pixels of the source, from the first on, were read, in any channel."""
    made: int
    """So many pixels of the results, from the first on, are made, in all channels."""


class Slices(NamedTuple):
    """All work items of a kernel, each in one slice."""

    source: str
    """The parameter that the slices read row by row; others may be read anywhere."""
    parts: tuple[Slice, ...]
