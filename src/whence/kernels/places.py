"""Where elements are not zero: a walk over all of them in order that writes each one's coordinates
and goes on to the next row only if it counts, so that nothing is to be predicted.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass

from whence.graph import Node
from whence.kernels.builder import Builder
from whence.kernels.expressions import apply, cast
from whence.kernels.group import Group
from whence.kernels.index import Var, of
from whence.kernels.ir import CountValue, Expr, Fn, Kernel, Literal, Micro, Stmt, ValueCount, most
from whence.types import DType

_AXIS = "axis"


@dataclass(frozen=True, slots=True)
class Places(Micro):
    """One work item: all elements."""

    shape: tuple[int, ...]
    value: Expr
    """Of the element at `axis0`, `axis1`, ..."""
    places: str | None
    count: str | None

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        rank = len(self.shape)
        with build.tasks(kernel.tasks):
            found = build.count_variable("found", 0)
            with ExitStack() as loops:
                at = [
                    loops.enter_context(build.loop(f"{_AXIS}{axis}", size))
                    for axis, size in enumerate(self.shape)
                ]
                if self.places is not None:
                    row = build.buffer(self.places, DType.I64)
                    for axis, place in enumerate(at):
                        build.assign(row[found * rank + axis], CountValue(place, DType.I64))
                build.set(found, found + ValueCount(cast(self._counts(), DType.I32)))
            if self.places is not None:
                rows = build.buffer(self.places, DType.I64)
                # Every row was written before it counted.
                with build.when(found < 1):
                    build.fill(rows, 0, rank)
                last = build.count("last", most(found - 1, 0))
                with build.loop("rest", math.prod(self.shape), begin=last + 1) as rest:
                    for axis in range(rank):
                        build.assign(rows[rest * rank + axis], rows[last * rank + axis])
            if self.count is not None:
                build.assign(build.buffer(self.count, DType.I64)[0], CountValue(found, DType.I64))
        return build.finish()

    def _counts(self) -> Expr:
        if self.value.dtype is DType.BOOL:
            return self.value
        return apply(Fn.NOT, apply(Fn.EQ, self.value, Literal(0, self.value.dtype)))


def lower_places(group: Group, anchor: Node) -> Kernel:
    source = anchor.first_input
    shape = group.shape(source)
    index = tuple(of(Var(f"{_AXIS}{axis}", size)) for axis, size in enumerate(shape))
    names = group.output_names(anchor, 2)
    micro = Places(tuple(shape), group.elements().value(source, index), *names)
    return group.kernel(1, micro)
