"""Integers that count and address: loop bounds, offsets, extents.

They are expressions, so that an extent can be a number of the text or an argument of the kernel.
Their arithmetic never overflows, and division is of numbers that are not negative; a renderer may
compute them in whatever width holds them.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from whence.extent import larger, smaller, surely_equal
from whence.kernels.index import Index

if TYPE_CHECKING:
    from whence.kernels.ir.values import Expr


class CountFn(enum.StrEnum):
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    REM = "%"
    MIN = "min"
    MAX = "max"


RESULTS: Mapping[CountFn, Callable[[int, int], int]] = {
    CountFn.ADD: operator.add,
    CountFn.SUB: operator.sub,
    CountFn.MUL: operator.mul,
    CountFn.DIV: operator.floordiv,
    CountFn.REM: operator.mod,
    CountFn.MIN: smaller,
    CountFn.MAX: larger,
}
"""What the functions are of numbers."""


class Comparator(enum.StrEnum):
    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="


class Count:
    """Arithmetic on counts, with the obvious simplifications done on the way."""

    __slots__ = ()

    def __add__(self, other: Countable) -> Count:
        left, right = self, count(other)
        if right == Number(0):
            return left
        return right if left == Number(0) else _computed(CountFn.ADD, left, right)

    def __radd__(self, other: int) -> Count:
        return count(other) + self

    def __sub__(self, other: Countable) -> Count:
        right = count(other)
        return self if right == Number(0) else _computed(CountFn.SUB, self, right)

    def __rsub__(self, other: int) -> Count:
        return count(other) - self

    def __mul__(self, other: Countable) -> Count:
        right = count(other)
        for one, by in ((self, right), (right, self)):
            if one in (Number(0), Number(1)):
                return one if one == Number(0) else by
        return _computed(CountFn.MUL, self, right)

    def __rmul__(self, other: int) -> Count:
        return count(other) * self

    def __floordiv__(self, other: Countable) -> Count:
        right = count(other)
        return self if right == Number(1) else _computed(CountFn.DIV, self, right)

    def __mod__(self, other: Countable) -> Count:
        right = count(other)
        return Number(0) if right == Number(1) else _computed(CountFn.REM, self, right)

    def __lt__(self, other: Countable) -> Condition:
        return CountComparison(Comparator.LT, self, count(other))

    def __le__(self, other: Countable) -> Condition:
        return CountComparison(Comparator.LE, self, count(other))

    def __gt__(self, other: Countable) -> Condition:
        return CountComparison(Comparator.LT, count(other), self)

    def __ge__(self, other: Countable) -> Condition:
        return CountComparison(Comparator.LE, count(other), self)

    def equals(self, other: Countable) -> Condition:
        """`==` compares expressions, this the numbers they stand for."""
        return CountComparison(Comparator.EQ, self, count(other))

    def differs(self, other: Countable) -> Condition:
        return CountComparison(Comparator.NE, self, count(other))


@dataclass(frozen=True, slots=True, eq=False)
class Number(Count):
    """A number, or a size that is known at run time."""

    value: int

    def __eq__(self, other: object) -> bool:
        # Simplifications compare numbers all the time, which must ask nothing of a size.
        return isinstance(other, Number) and surely_equal(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class Counter(Count):
    """A loop's counter, or a count bound by a `LetCount`."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic(Count):
    fn: CountFn
    left: Count
    right: Count


@dataclass(frozen=True, slots=True)
class Chosen(Count):
    """One count or another."""

    condition: Condition
    then: Count
    otherwise: Count


@dataclass(frozen=True, slots=True)
class IndexCount(Count):
    """An index in normal form, of variables that have counters of the same names."""

    index: Index


@dataclass(frozen=True, slots=True)
class ValueCount(Count):
    """A value as a count: an integer that was read."""

    value: Expr


Countable: TypeAlias = Count | int
ONE = Number(1)


class Condition:
    """What an `If` asks, and a choice between counts."""

    __slots__ = ()

    def __and__(self, other: Condition) -> Condition:
        return Both(self, other)

    def __or__(self, other: Condition) -> Condition:
        return Either(self, other)


@dataclass(frozen=True, slots=True)
class CountComparison(Condition):
    comparator: Comparator
    left: Count
    right: Count


@dataclass(frozen=True, slots=True)
class Both(Condition):
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Either(Condition):
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Not(Condition):
    of: Condition


@dataclass(frozen=True, slots=True)
class Holds(Condition):
    """A value that is true or false."""

    value: Expr


@dataclass(frozen=True, slots=True)
class SameAddress(Condition):
    """Do two parameters of the kernel lie at the same place?"""

    one: str
    other: str


def count(value: Countable | Index) -> Count:
    """A number or an index as a count."""
    if isinstance(value, int):
        return Number(value)
    if isinstance(value, Index):
        return IndexCount(value) if value.terms else Number(value.const)
    return value


def least(left: Countable, right: Countable) -> Count:
    return _computed(CountFn.MIN, count(left), count(right))


def most(left: Countable, right: Countable) -> Count:
    return _computed(CountFn.MAX, count(left), count(right))


def _computed(fn: CountFn, left: Count, right: Count) -> Count:
    """Of numbers, the number."""
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(RESULTS[fn](left.value, right.value))
    return Arithmetic(fn, left, right)


def chosen(condition: Condition, then: Countable, otherwise: Countable) -> Count:
    return Chosen(condition, count(then), count(otherwise))
