"""Passes over rows: the loop nest of operators whose every result depends on a whole row of the
input.

A work item is one row, or a range of neighbouring rows side by side where a row lies across
memory. Passes over the row fold it into a few numbers; the last one stores them, or maps the row to
the output. What is fused before is pulled into every pass, what is fused after into the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from whence.extent import estimate, is_symbolic, surely_divides, surely_equal
from whence.graph import Node
from whence.kernels.cost import largest_divisor
from whence.kernels.elements import Indices
from whence.kernels.expressions import cast, compute_type
from whence.kernels.index import Index, Quotient, Remainder, Var, of, ravel, unravel
from whence.kernels.ir import (
    COSTLY_FUNCTIONS,
    TASK,
    Accumulate,
    Accumulator,
    Expr,
    Fn,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    LoopKind,
    Name,
    Op,
    Stmt,
    Store,
    index_atoms,
    nested,
    walk,
)
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group

# Rows folded side by side: enough to fill vectors, few enough for the nearest cache.
_LANES = 512
# A sum longer than this is added up in parts: one number that takes in everything loses a digit
# for every ten times as much.
_LONG = 64
# Loads and calls in a prologue beyond which the row is kept in the output instead of being computed
# for every pass.
_CHEAP = 3
_CALLS = COSTLY_FUNCTIONS | {Fn.DIV}

Make: TypeAlias = Callable[[Indices], Expr]
"""A value of the element at an index."""


class RowNest:
    """The passes over one row, written as a loop nest.

    `shape` is the input's shape, or a finer division of its dimensions; `axes` say which of them a
    row runs over.
    """

    def __init__(
        self, group: Group, anchor: Node, shape: Sequence[int], axes: Sequence[int]
    ) -> None:
        source = anchor.first_input
        self.group, self.anchor, self.source = group, anchor, source
        self.shape, self.axes = tuple(shape), tuple(axes)
        self.count = math.prod(self.shape[axis] for axis in self.axes)
        self.dtype = compute_type(group.dtype(source))
        self.body: list[Stmt] = []
        self.elements = group.elements()
        self._kept = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        self._x: Make = lambda index: cast(self.elements.value(source, index), self.dtype)
        self._across: list[int] = []
        self._lane = self._make_lane()

    def _make_lane(self) -> Var | None:
        """Rows side by side when the dimension along memory is not part of a row."""
        wide = [axis for axis in range(len(self.shape)) if not surely_equal(self.shape[axis], 1)]
        if (
            0 in self.shape
            or not wide
            or wide[-1] in self.axes
            or not any(axis in self.axes for axis in wide)
        ):
            return None
        first = max(axis for axis in wide if axis in self.axes) + 1
        for across in (list(range(first, len(self.shape))), [wide[-1]]):
            self._across = across
            extent = math.prod(self.shape[axis] for axis in across)
            most = _LANES if is_symbolic(extent) else min(extent, _LANES)
            self._lane = Var(
                "lane", next(size for size in range(most, 0, -1) if surely_divides(size, extent))
            )
            steps = [of(Var(f"r{axis}", self.shape[axis])) for axis in self.axes]
            index = self._index([[axis] for axis in self.axes], steps)
            # Several dimensions side by side are one range of memory, unless something fused
            # before divides them.
            if not _divides(self._x(index), "lane"):
                break
        return self._lane

    # ---- where an element lies ----

    def _index(self, blocks: Sequence[Sequence[int]], steps: Sequence[Index]) -> Indices:
        """The index into the input of the element that the task, the lane and the steps along the
        row name.
        """
        front = [axis for axis in self._kept if axis not in self._across]
        extents = [self.shape[axis] for axis in front]
        outer = of(Var(TASK, self.tasks))
        places: dict[int, Index] = {}
        if self._lane is None:
            places.update(zip(front, unravel(outer, extents), strict=True))
        else:
            across = [self.shape[axis] for axis in self._across]
            chunks = math.prod(across) // self._lane.extent
            *before, chunk = unravel(outer, [*extents, chunks])
            own = unravel(chunk * self._lane.extent + of(self._lane), across)
            places.update(zip((*front, *self._across), (*before, *own), strict=True))
        for block, step in zip(blocks, steps, strict=True):
            along = unravel(step, [self.shape[axis] for axis in block])
            places.update(zip(block, along, strict=True))
        full = [places[axis] for axis in range(len(self.shape))]
        return unravel(ravel(full, self.shape), self.group.shape(self.source))

    @property
    def tasks(self) -> int:
        rows = math.prod(self.shape[axis] for axis in self._kept)
        return rows if self._lane is None else rows // self._lane.extent

    def flat(self, index: Indices) -> Index:
        return ravel(index, self.group.shape(self.source))

    def x(self, index: Indices) -> Expr:
        """The input's element, in the type of arithmetic."""
        return self._x(index)

    # ---- passes ----

    def _loops(self, make: Make) -> tuple[Indices, list[Var]]:
        """One flat loop along the row where that costs no division, else one for each of its
        dimensions.
        """
        found: tuple[Indices, list[Var]] = ((), [])
        for blocks in (_runs(self.axes), [[axis] for axis in self.axes]):
            steps = [
                Var(f"r{block[0]}", math.prod(self.shape[axis] for axis in block))
                for block in blocks
            ]
            found = self._index(blocks, [of(step) for step in steps]), steps
            if not _divides(make(found[0]), "r"):
                break
        return found

    def _pass(self, steps: Sequence[Var], inner: tuple[Stmt, ...], kind: LoopKind) -> None:
        if self._lane is not None:
            inner, kind = (Loop(self._lane, inner, LoopKind.VECTOR),), LoopKind.SERIAL
        self.body += nested(steps, inner, kind)

    def fold(
        self, name: str, fn: Fn, start: float | int, make: Make, dtype: DType | None = None
    ) -> Expr:
        """Fold a value of every element into one number of the row."""
        dtype = dtype or self.dtype
        index, steps = self._loops(make)
        self.body.append(Accumulator(name, Literal(start, dtype), self._lane))
        parts = self._parts(make) if fn is Fn.ADD and dtype.is_float else None
        if parts is None:
            self._pass(steps, (Accumulate(name, fn, make(index), self._lane),), LoopKind.REDUCE)
        else:
            self._add_parts(name, make(parts[0]), parts[1], dtype)
        return self._name(name, dtype)

    def _parts(self, make: Make) -> tuple[Indices, list[Var]] | None:
        """Loops along a long row that lies across memory, where every lane is one sum, the last of
        them over a part to add up by itself; along memory, a sum is a vector of sums already.
        """
        if self._lane is None or estimate(self.count) <= _LONG:
            return None
        blocks = _runs(self.axes)
        if len(blocks) == 1 and not is_symbolic(self.count):
            inner = largest_divisor(self.count, math.isqrt(self.count), 8)
            if not inner:
                return None
            steps = [Var("r", self.count // inner), Var("rr", inner)]
            index = self._index(blocks, [of(steps[0]) * inner + of(steps[1])])
        else:
            # Whether a size divides is not known, or a part may not go over the gap between two
            # runs of axes: a part is one axis.
            *outer, last = sorted(self.axes)
            if surely_equal(self.shape[last], 1) or not outer:
                return None
            steps = [Var(f"r{axis}", self.shape[axis]) for axis in (*outer, last)]
            index = self._index([[axis] for axis in (*outer, last)], [of(each) for each in steps])
        return None if _divides(make(index), "r") else (index, steps)

    def _add_parts(self, name: str, value: Expr, steps: Sequence[Var], dtype: DType) -> None:
        assert self._lane is not None
        part = f"{name}_part"
        *outer, last = steps
        grown = Accumulate(part, Fn.ADD, value, self._lane)
        added = Accumulate(name, Fn.ADD, self._name(part, dtype), self._lane)
        body = (
            Accumulator(part, Literal(0.0, dtype), self._lane),
            *nested([last, self._lane], (grown,), LoopKind.VECTOR),
            Loop(self._lane, (added,), LoopKind.VECTOR),
        )
        self.body += nested(outer, body)

    def fold_stored(self, name: str, make: Make) -> tuple[Expr, Make]:
        """The sum of a value that costs more than a load, and the value itself for later passes:
        from the output's memory if it fits there.
        """
        if not self._fits_output():
            return self.fold(name, Fn.ADD, 0.0, make), make
        index, steps = self._loops(make)
        self.body.append(Accumulator(name, Literal(0.0, self.dtype), self._lane))
        kept = Name("kept", self.dtype)
        inner = (
            Let("kept", make(index)),
            Store("out0", self.flat(index), kept),
            Accumulate(name, Fn.ADD, kept, self._lane),
        )
        self._pass(steps, inner, LoopKind.REDUCE)
        return self._name(name, self.dtype), lambda place: Load(
            "out0", self.flat(place), self.dtype
        )

    def keep_costly(self) -> None:
        """Compute a costly prologue once, into the output's memory, from where the passes then read
        it.
        """
        index, steps = self._loops(self._x)
        value = self._x(index)
        parts = list(walk(value))
        costly = sum(isinstance(part, Load) for part in parts) > _CHEAP or any(
            isinstance(part, Op) and part.fn in _CALLS for part in parts
        )
        if costly and self._fits_output():
            self._pass(steps, (Store("out0", self.flat(index), value),), LoopKind.VECTOR)
            self._x = lambda place: Load("out0", self.flat(place), self.dtype)

    def hold(self, name: str, value: Expr) -> Expr:
        """Give a number of the row a name, so that it is computed once."""
        if self._lane is None:
            self.body.append(Let(name, value))
            return Name(name, value.dtype)
        self.body.append(Accumulator(name, Literal(0.0, value.dtype), self._lane))
        self.body.append(
            Loop(self._lane, (Accumulate(name, Fn.ADD, value, self._lane),), LoopKind.VECTOR)
        )
        return self._name(name, value.dtype)

    def finish(self, make: Make, numbers: Sequence[Expr] = ()) -> Kernel:
        """The last pass: the anchor's element at every index, through what is fused after it.
        `numbers` are the anchor's further outputs.
        """
        group, anchor = self.group, self.anchor
        names = group.output_names(anchor, 1 + len(numbers))[1:]
        mapped = [ref for ref in group.outputs if ref.node != anchor.id or ref.index == 0]

        def stored(index: Indices) -> tuple[Store, ...]:
            return group.stores(anchor, make(index), self.flat(index), mapped)

        index, steps = self._loops(lambda place: stored(place)[-1].value)
        self._pass(steps, stored(index), LoopKind.VECTOR)
        return self.finish_numbers(
            Store(name, self.row_number, value)
            for name, value in zip(names, numbers, strict=True)
            if name is not None
        )

    def finish_numbers(self, numbers: Iterable[Store]) -> Kernel:
        """The kernel, storing these numbers of each row last, at `row_number`: outputs that have
        one element for a row.
        """
        if stores := tuple(numbers):
            self.body += nested([] if self._lane is None else [self._lane], stores, LoopKind.VECTOR)
        return self.group.kernel(self.tasks, Loop(Var(TASK, self.tasks), tuple(self.body)))

    @property
    def row_number(self) -> Index:
        """Which row it is, counting all rows in the order of their first elements."""
        outer = of(Var(TASK, self.tasks))
        return outer if self._lane is None else outer * self._lane.extent + of(self._lane)

    def _fits_output(self) -> bool:
        """Can the first output's memory hold the row meanwhile?"""
        first = self.group.outputs[0]
        return self.group.dtype(first) is self.dtype and surely_equal(
            math.prod(self.group.shape(first)), math.prod(self.shape)
        )

    def _name(self, name: str, dtype: DType) -> Expr:
        return Accumulator(name, Literal(0, dtype), self._lane).value


def _runs(axes: Sequence[int]) -> list[list[int]]:
    """The axes in runs of neighbours."""
    runs: list[list[int]] = []
    for axis in sorted(axes):
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _divides(value: Expr, stem: str) -> bool:
    """Does a load depend on a variable of such a name through a division?"""
    return any(
        isinstance(atom, Quotient | Remainder)
        and any(var.name.startswith(stem) for var in atom.of.variables())
        for atom in index_atoms(value)
    )
