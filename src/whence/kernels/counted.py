"""Results of which there are as many as a run finds.

The different elements of a value are sorted by merging ever longer runs, the first of equals first,
then numbered in one walk. A pair of runs that is in order already is copied as it is, which most
are in labels of an image.

Where elements are not zero, a walk over all of them in order tells: it writes each one's
coordinates and goes on to the next row only if it counts, so that nothing is to be predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.builder import Builder, Pointer
from whence.kernels.expressions import apply, both, cast, compute_type, precedes
from whence.kernels.group import Group
from whence.kernels.index import Var, of, unravel
from whence.kernels.ir import (
    Count,
    CountValue,
    Expr,
    Fn,
    Holds,
    Kernel,
    Literal,
    Micro,
    Not,
    Stmt,
    ValueCount,
    chosen,
    least,
    most,
)
from whence.ops.attributes import get_int
from whence.types import DType

_STEP = "step"
_MOST = 1 << 30
_WIDE = (DType.I32, DType.I64, DType.U32, DType.U64, DType.F32, DType.F64)
_AXIS = "axis"


@dataclass(frozen=True, slots=True)
class Distinct(Micro):
    """One work item: all elements."""

    length: int
    value: Expr
    """Of element `step`, in a type of at least 32 bits."""
    dtype: DType
    """Of the elements."""
    is_sorted: bool
    """Are they listed in order, or as they come?"""
    values: str | None
    first: str | None
    """Where each stood first."""
    inverse: str | None
    """Which of them each element is."""
    counts: str | None
    """How often each is there."""
    count: str | None

    @property
    def scratch_bytes(self) -> int:
        """Of two lists of elements and two of where they stood, and of a number for each."""
        return (2 * self.value.dtype.numpy.itemsize + 3 * 4) * self.length

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        with build.tasks(kernel.tasks):
            dtype, n = self.value.dtype, self.length
            behind = 2 * n * (dtype.numpy.itemsize // 4)
            one = (build.scratch("x", dtype), build.scratch("at", DType.I32, behind))
            other = (build.scratch("y", dtype, n), build.scratch("to", DType.I32, behind + n))
            number = build.scratch("number", DType.I32, behind + 2 * n)
            with build.loop(_STEP, n) as step:
                build.assign(one[0][step], self.value)
                build.assign(one[1][step], CountValue(step, DType.I32))
            width = build.count_variable("width", 1)
            # Twice an iteration, so that what is sorted ends where it began.
            with build.repeat(width < n):
                for pair in ((one, other), (other, one)):
                    self._merge(build, *pair, width)
                    build.set(width, width * 2)
            found = build.count_variable("found", 0)
            if self.is_sorted:
                self._in_order(build, one, found)
            else:
                self._as_they_come(build, one, other[1], number, found)
            self._repeat_last(build, found)
            if self.count is not None:
                build.assign(build.buffer(self.count, DType.I64)[0], CountValue(found, DType.I64))
        return build.finish()

    def _merge(
        self, build: Builder, source: Sequence[Pointer], target: Sequence[Pointer], width: Count
    ) -> None:
        """Runs of `width`, two by two."""
        n, keys = self.length, source[0]
        with build.loop("begin", n, step=width * 2) as begin:
            middle = build.count("middle", least(begin + width, n))
            end = build.count("end", least(begin + width * 2, n))
            # Without a second run, an element is compared with one of its own, which comes before
            # it.
            after = keys[least(middle, n - 1)]
            with build.when(Holds(precedes(after, keys[middle - 1])) & (middle < end)):
                i, j = build.count_variable("i", begin), build.count_variable("j", middle)
                with build.loop("k", end, begin=begin) as k:
                    left, right = keys[least(i, n - 1)], keys[least(j, n - 1)]
                    leads = (i < middle) & ((j >= end) | Not(Holds(precedes(right, left))))
                    is_left = build.count("is_left", chosen(leads, 1, 0))
                    taken = build.count("taken", chosen(is_left > 0, i, j))
                    for a, b in zip(source, target, strict=True):
                        build.assign(b[k], a[taken])
                    build.set(i, i + is_left)
                    build.set(j, j + 1 - is_left)
            with build.otherwise(), build.loop("k", end, begin=begin) as k:
                for a, b in zip(source, target, strict=True):
                    build.assign(b[k], a[k])

    def _in_order(self, build: Builder, ordered: Sequence[Pointer], found: Count) -> None:
        keys, at = ordered
        with build.loop("k", self.length) as k:
            with build.when((k < 1) | Not(Holds(_is_same(keys[k], keys[_before(k)])))):
                self._list(build, found, keys[k], ValueCount(at[k]))
                build.set(found, found + 1)
            self._note(build, ValueCount(at[k]), found - 1)

    def _as_they_come(
        self,
        build: Builder,
        ordered: Sequence[Pointer],
        rank: Pointer,
        number: Pointer,
        found: Count,
    ) -> None:
        """`number` has where an element of that value stood first, `rank` for such a place which of
        the values that is.
        """
        keys, at = ordered
        begin = build.count_variable("begin", 0)
        with build.loop("k", self.length) as k:
            with build.when(Not(Holds(_is_same(keys[k], keys[_before(k)])))):
                build.set(begin, k)
            build.assign(number[ValueCount(at[k])], at[begin])
        with build.loop(_STEP, self.length) as step:
            first = build.count("first", ValueCount(number[step]))
            with build.when(first.equals(step)):
                self._list(build, found, self.value, step)
                build.assign(rank[step], CountValue(found, DType.I32))
                build.set(found, found + 1)
            self._note(build, step, ValueCount(rank[first]))

    def _list(self, build: Builder, row: Count, key: Expr, place: Count) -> None:
        """A value that was not there before."""
        if self.values is not None:
            build.assign(build.buffer(self.values, self.dtype)[row], cast(key, self.dtype))
        if self.first is not None:
            build.assign(build.buffer(self.first, DType.I64)[row], CountValue(place, DType.I64))
        if self.counts is not None:
            build.assign(build.buffer(self.counts, DType.I64)[row], Literal(0, DType.I64))

    def _note(self, build: Builder, place: Count, row: Count) -> None:
        """The element there is the value of this row."""
        if self.inverse is not None:
            build.assign(build.buffer(self.inverse, DType.I64)[place], CountValue(row, DType.I64))
        if self.counts is not None:
            build.accumulate(build.buffer(self.counts, DType.I64)[row], Literal(1, DType.I64))

    def _repeat_last(self, build: Builder, found: Count) -> None:
        lists = ((self.values, self.dtype), (self.first, DType.I64), (self.counts, DType.I64))
        rows = [build.buffer(name, dtype) for name, dtype in lists if name is not None]
        if not rows:
            return
        with build.loop("rest", self.length, begin=found) as rest:
            for row in rows:
                build.assign(row[rest], row[found - 1])


def _is_same(x: Expr, y: Expr) -> Expr:
    """A NaN is the same as another."""
    if not x.dtype.is_float:
        return apply(Fn.EQ, x, y)
    neither = both(apply(Fn.ISNAN, x), apply(Fn.ISNAN, y))
    return apply(Fn.OR, apply(Fn.EQ, x, y), neither)


def _before(k: Count) -> Count:
    return chosen(k > 0, k - 1, 0)


def lower_distinct(group: Group, anchor: Node) -> Kernel:
    source = anchor.first_input
    shape, dtype = group.shape(source), group.dtype(source)
    length = math.prod(shape)
    if compute_type(dtype) is not dtype or not 0 < length < _MOST:
        raise UnsupportedError(f"'{anchor.name}' is of {length} elements of {dtype}")
    value = group.elements().value(source, unravel(of(Var(_STEP, length)), shape))
    names = group.output_names(anchor, 5)
    is_sorted = bool(get_int(anchor.attrs, "sorted", 1))
    wide = value if dtype in _WIDE else cast(value, DType.I32)
    micro = Distinct(length, wide, dtype, is_sorted, *names)
    return group.kernel(1, micro, scratch_bytes=micro.scratch_bytes)


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
