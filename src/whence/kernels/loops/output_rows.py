"""Loop nests whose work items are rows of an (N, C, D1, ..., Dn) output, a row's elements side by
side: windows over plain tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.errors import UnsupportedError
from whence.extent import is_symbolic, same_shape
from whence.graph import Node
from whence.kernels.cost import largest_divisor
from whence.kernels.elements import Indices
from whence.kernels.group import Group
from whence.kernels.index import Var, of, ravel, unravel
from whence.kernels.ir import (
    TASK,
    Count,
    Counter,
    Expr,
    Kernel,
    LetCount,
    Loop,
    LoopKind,
    Stmt,
    count,
    least,
)

# Results kept side by side while a window passes over a row: enough to fill vectors, few enough for
# the nearest cache.
_LANES = 512
# As many of a row that no such number divides, and no more: the results lie on the stack.
_MOST_LANES = 1 << 13
_END = "lanes"
"""The count of elements in a work item."""


class OutputRows:
    """The rows of an output of this shape, or parts of rows that are very long."""

    def __init__(self, shape: Sequence[int]) -> None:
        *outer, width = shape
        lanes = _lanes(width)
        parts = [*outer, -(-width // lanes)]
        self.shape = tuple(shape)
        self.lane = Var("lane", lanes)
        self.task = Var(TASK, 1)
        for extent in parts:
            self.task = Var(TASK, self.task.extent * extent)
        *front, part = unravel(of(self.task), parts)
        self.index: Indices = (*front, part * lanes + of(self.lane))
        """Of the element that belongs to a lane."""
        self._end: Count | None = None
        self._begins: tuple[Stmt, ...] = ()
        if is_symbolic(width) or width % lanes:
            here = least(lanes, count(width) - count(part * lanes))
            self._end, self._begins = Counter(_END), (LetCount(_END, here),)

    def loop(self, *body: Stmt) -> Loop:
        """Over the elements of a work item."""
        return Loop(self.lane, body, LoopKind.VECTOR, end=self._end)

    def kernel(self, group: Group, *body: Stmt) -> Kernel:
        """A kernel whose work items do this."""
        return group.kernel(self.task.extent, Loop(self.task, (*self._begins, *body)))

    def stores(self, group: Group, anchor: Node, value: Expr) -> tuple[Stmt, ...]:
        """The anchor's element, through whatever was fused behind it."""
        if any(not same_shape(group.shape(ref), self.shape) for ref in group.outputs):
            raise UnsupportedError(
                f"group '{group.name}' changes the shape of what '{anchor.name}' makes"
            )
        return group.stores(anchor, value, ravel(self.index, self.shape))


def _lanes(width: int) -> int:
    """Elements of a work item: so many that they divide the row evenly, if its width is known and
    has such a divisor.
    """
    if is_symbolic(width):
        return _LANES
    lanes = largest_divisor(width, _LANES)
    if lanes >= min(width, _LANES) // 8:
        return lanes
    # Of a row of prime length, better one array than single elements.
    return width if width <= _MOST_LANES else _LANES
