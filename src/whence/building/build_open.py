"""Building for as many sizes of a model's open dimensions as one compilation can serve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from whence.building.program import Program

CallShapes: TypeAlias = Mapping[str, Sequence[int]]
"""Of the inputs of a call."""


def build_open(
    opened: Callable[[Collection[str]], CallShapes], build: Callable[[CallShapes], Program]
) -> tuple[Program, CallShapes, frozenset[str]]:
    """The program for as many sizes as can stay open; what it was built for, and the names of the
    dimensions that had to be numbers. `opened` gives the shapes with some of them closed.
    """
    from whence.building.build import PinnedSizesError

    closed: frozenset[str] = frozenset()
    while True:
        # Opened anew each time: dimensions remember what was asked about them.
        shapes = opened(closed)
        try:
            return build(shapes), shapes, closed
        except PinnedSizesError as error:
            closed |= error.names
