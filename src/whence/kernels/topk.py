"""The k largest or smallest elements of each row, in order: kept in a sorted list that an element
enters only if it beats the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.builder import Builder
from whence.kernels.expressions import compute_type, precedes
from whence.kernels.group import Group
from whence.kernels.index import Index, Var, of, unravel
from whence.kernels.ir import TASK, CountValue, Expr, Holds, Kernel, Micro, Stmt, least
from whence.ops.attributes import get_int
from whence.types import DType

# Beyond this a list that is shifted for every entry is the wrong way.
_MOST = 512

STEP, RANK = "step", "rank"


@dataclass(frozen=True, slots=True)
class TopK(Micro):
    """Work item t is a row: what its elements are, how many there are, how many are wanted, and
    where each goes.
    """

    length: int
    k: int
    largest: bool
    value: Expr
    """Of element `step`."""
    dtype: DType
    values: str | None
    indices: str | None
    place: Index
    """Of the result number `rank`."""

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        with build.tasks(kernel.tasks):
            self._row(build)
        return build.finish()

    def _row(self, build: Builder) -> None:
        """A row: the best so far, in order."""
        best = build.array("best", self.k, dtype=self.dtype)
        where = build.array("where", self.k, dtype=DType.I32)
        found = build.count_variable("count", 0)
        with build.loop(STEP, self.length) as step:
            x = build.let("x", self.value)
            with build.when((found < self.k) | Holds(self._ranks_before(x, best[self.k - 1]))):
                at = build.count_variable("at", least(found, self.k - 1))
                build.set(found, least(found + 1, self.k))
                # Of equals the earlier stays in front.
                with build.repeat((at > 0) & Holds(self._ranks_before(x, best[at - 1]))):
                    build.assign(best[at], best[at - 1])
                    build.assign(where[at], where[at - 1])
                    build.set(at, at - 1)
                build.assign(best[at], x)
                build.assign(where[at], CountValue(step, DType.I32))
        with build.loop(RANK, self.k) as rank:
            for target, made in ((self.values, best), (self.indices, where)):
                if target is not None:
                    build.store(target, self.place, made[rank])

    def _ranks_before(self, x: Expr, y: Expr) -> Expr:
        """Does `x` stand before `y`? A NaN is larger than every number."""
        return precedes(y, x) if self.largest else precedes(x, y)


def lower_topk(group: Group, anchor: Node) -> Kernel:
    """A kernel for a TopK whose k is known and not too large."""
    source = anchor.first_input
    shape, attrs = group.shape(source), anchor.attrs
    axis = get_int(attrs, "axis", -1) % max(len(shape), 1)
    k = int(group.shape(anchor.ref())[axis])
    if not 0 < k <= _MOST or 0 in shape:
        raise UnsupportedError(f"TopK '{anchor.name}' of {k} elements")
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    task = Var(TASK, outer * inner)
    front, back = unravel(of(task), (outer, inner))
    step, rank = Var(STEP, shape[axis]), Var(RANK, k)
    flat = (front * shape[axis] + of(step)) * inner + back
    value = group.elements().value(source, unravel(flat, shape))
    dtype, largest = compute_type(group.dtype(source)), bool(get_int(attrs, "largest", 1))
    place = (front * k + of(rank)) * inner + back
    values, indices = group.output_names(anchor, 2)
    micro = TopK(shape[axis], k, largest, value, dtype, values, indices, place)
    return group.kernel(task.extent, micro)
