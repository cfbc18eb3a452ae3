"""Reads that lie across memory, made along it: a square is loaded row by row, transposed in
registers, and read from there.

A transpose stores along one dimension and loads along another. Loop by loop, one of the two always
strides through memory and uses one element of each cache line it touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence.extent import surely_equal
from whence.kernels.builder import Builder
from whence.kernels.index import Index, Var, of
from whence.kernels.ir import Counter, Expr, Fn, Item, Kernel, Load, Micro, Op, Stmt, walk
from whence.types import DType

SIDE = 16
"""Rows and columns of a square."""


@dataclass(frozen=True, slots=True)
class SquareTranspose(Micro):
    """Fill the array `name`: element `along · SIDE + across` is that of `buffer` at `index`,
    in which `along` has the coefficient 1.
    """

    name: str
    buffer: str
    index: Index
    along: Var
    across: Var

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        stride = self.index.coefficient(self.across)
        base = self.index - of(self.along) - of(self.across) * stride
        made = build.array(self.name, SIDE * SIDE)
        with build.scope():
            source = build.pointer("from", build.buffer(self.buffer), base)
            square = build.array("rows", SIDE, lanes=SIDE)
            with build.unrolled(("i", SIDE)) as (i,):
                build.assign(square[i], source.vector(i * stride, SIDE))
            build.transpose(square)
            with build.unrolled(("i", SIDE)) as (i,):
                build.assign(made.vector(i * SIDE, SIDE), square[i])
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        stride = self.index.coefficient(self.across)
        base = self.index - of(self.along) - of(self.across) * stride
        made = build.array(self.name, SIDE * SIDE)
        with build.scope():
            source = build.pointer("from", build.buffer(self.buffer), base)
            with build.loop("i", SIDE) as i, build.loop("j", SIDE) as j:
                build.assign(made[j * SIDE + i], source[i * stride + j])
        return build.finish()

    @property
    def element(self) -> Item:
        """The element of the loops over both variables."""
        at = Counter(self.along.name) * SIDE + Counter(self.across.name)
        return Item(self.name, (at,), DType.F32)


def strided_loads(values: Sequence[Expr], inner: Var) -> list[Load]:
    """The single-precision loads that stride through memory as `inner` goes up; none when any load
    is made on a condition.
    """
    parts = list(walk(*values))
    if any(
        isinstance(part, Op)
        and part.fn in (Fn.SELECT, Fn.CHOOSE)
        and any(isinstance(each, Load) for each in walk(*part.args[1:]))
        for part in parts
    ):
        return []
    return [
        part
        for part in parts
        if isinstance(part, Load)
        and part.dtype is DType.F32
        and not any(surely_equal(part.index.coefficient(inner), step) for step in (0, 1))
        and _plain(part, inner)
    ]


def runs_along(load: Load, var: Var) -> bool:
    """Are neighbours along `var` neighbours in memory?"""
    return surely_equal(load.index.coefficient(var), 1) and _plain(load, var)


def _plain(load: Load, var: Var) -> bool:
    """Does the index depend on the variable through its own term alone?"""
    return not (load.index - of(var) * load.index.coefficient(var)).depends_on(var)
