"""Loops that look bytes up in tables: several iterations at a time as vectors, the rest one by one.

A compiler sees in such a loop only one load after another. Other loops it makes vectors of by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whence.kernels.builder import Builder
from whence.kernels.ir import (
    BEGIN,
    END,
    TASK,
    Counter,
    For,
    Kernel,
    Loop,
    LoopKind,
    Micro,
    Stmt,
    Store,
    count,
    least,
    most,
)
from whence.kernels.vectorise import Vectoriser, looks_up, moves_with

# Iterations at a time; machines with shorter vectors take several.
_LANES = 16


@dataclass(frozen=True, slots=True)
class LookUpLoop(Micro):
    """A loop over stores that look something up."""

    loop: Loop
    stores: tuple[Store, ...]

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        var, first = self.loop.var, self.loop.first
        values = [store.value for store in self.stores]
        build, vectors = Builder(_names(self.stores)), Vectoriser(var, _LANES, {})
        with build.scope():
            low, high = count(0), count(var.extent)
            if var.name == TASK:
                low = build.count("low", most(Counter(BEGIN) - first, 0))
                high = build.count("high", least(Counter(END) - first, var.extent))
            whole = build.count("whole", low + most(high - low, 0) // _LANES * _LANES)
            vectors.load_ahead(build, values, var.name)
            wide = tuple(
                Store(store.buffer, store.index, vectors.write(store.value))
                for store in self.stores
            )
            build.add(For(var.name, low, whole, wide, count(_LANES)))
            build.add(For(var.name, whole, high, self.stores))
        return build.finish()


def _names(stores: tuple[Store, ...]) -> set[str]:
    """Of the variables that they read."""
    indices = {var for store in stores for var in store.index.variables()}
    return {var.name for var in indices.union(*(store.value.variables() for store in stores))}


def with_look_up_loops(kernel: Kernel) -> Kernel:
    """The kernel with its innermost loops as vectors where they look something up."""
    return replace(kernel, body=tuple(_marked(stmt, kernel) for stmt in kernel.body))


def _marked(stmt: Stmt, kernel: Kernel) -> Stmt:
    if not isinstance(stmt, Loop):
        return stmt
    stores = tuple(each for each in stmt.body if isinstance(each, Store))
    if (
        stmt.kind is LoopKind.VECTOR
        and len(stores) == len(stmt.body)
        and looks_up(*(store.value for store in stores))
        and _has_vectors(stmt, stores, kernel)
    ):
        return LookUpLoop(stmt, stores)
    return replace(stmt, body=tuple(_marked(each, kernel) for each in stmt.body))


def _has_vectors(loop: Loop, stores: tuple[Store, ...], kernel: Kernel) -> bool:
    in_order = all(
        moves_with(store.index, loop.var) and store.value.dtype is kernel.dtype_of(store.buffer)
        for store in stores
    )
    values = (store.value for store in stores)
    return in_order and Vectoriser(loop.var, _LANES, {}).can_write(*values)
