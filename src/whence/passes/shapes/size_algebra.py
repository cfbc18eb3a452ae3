"""Arithmetic with sizes that are only partly known: polynomials with whole coefficients over
dimensions.

`SizeTable` numbers the dimensions it meets, and everything it cannot expand (`a // b`, `min(a,
b)`), each once, so that equal expressions are equal values. Every dimension is at least 0, and so
is every such unexpanded expression; that is what comparisons are decided by. Numbers are taken to
fit the 64 bits that the graph computes them in. They may be expressions (`whence.extent`), when a
model is compiled for more than one size; then what is not decided is asked of those.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from whence.extent import is_symbolic
from whence.types import same_dim

Monomial: TypeAlias = tuple[int, ...]
"""The numbers of the dimensions that are multiplied, ascending; empty for the constant term."""

# Longer expressions are of no use for finding two sizes equal.
_MAX_TERMS = 16
_MAX_DEGREE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """A polynomial. No coefficient is 0, so equal polynomials are equal values, for all sizes."""

    terms: tuple[tuple[Monomial, int], ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Size)
            and len(self.terms) == len(other.terms)
            and all(
                one == two and same_dim(a, b)
                for (one, a), (two, b) in zip(self.terms, other.terms, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash(self.terms)

    @property
    def number(self) -> int | None:
        """The value when no dimension occurs, else `None`."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def least(self) -> int | None:
        """A lower bound; `None` when a dimension counts against it."""
        bound = 0
        for monomial, coefficient in self.terms:
            if not monomial:
                bound = coefficient
            elif coefficient < 0:
                return None
        return bound

    @property
    def atom(self) -> int | None:
        """The number of the dimension when the size is exactly one dimension, else `None`."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None


def number(value: int) -> Size:
    return Size((((), value),) if is_symbolic(value) or value else ())


def _size(terms: Mapping[Monomial, int]) -> Size | None:
    nonzero = tuple(
        sorted(
            (
                (monomial, coefficient)
                for monomial, coefficient in terms.items()
                if is_symbolic(coefficient) or coefficient
            ),
            key=lambda term: term[0],
        )
    )
    if len(nonzero) <= _MAX_TERMS and all(len(monomial) <= _MAX_DEGREE for monomial, _ in nonzero):
        return Size(nonzero)
    return None


def add(left: Size, right: Size) -> Size | None:
    terms = dict(left.terms)
    for monomial, coefficient in right.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _size(terms)


def negate(size: Size) -> Size:
    return Size(tuple((monomial, -coefficient) for monomial, coefficient in size.terms))


def subtract(left: Size, right: Size) -> Size | None:
    return add(left, negate(right))


def multiply(left: Size, right: Size) -> Size | None:
    terms: dict[Monomial, int] = {}
    for a, m in left.terms:
        for b, n in right.terms:
            monomial = tuple(sorted(a + b))
            terms[monomial] = terms.get(monomial, 0) + m * n
    return _size(terms)


def equal(left: Size, right: Size) -> bool | None:
    """Are they equal whatever the dimensions? `None` when that depends on them."""
    gap = subtract(left, right)
    if gap is None:
        return None
    if gap.number is not None:
        return gap.number == 0
    # One that is always larger is never equal.
    apart = any(bound is not None and bound > 0 for bound in (gap.least, negate(gap).least))
    return False if apart else None


def less(left: Size, right: Size) -> bool | None:
    """Is the left smaller whatever the dimensions? `None` when that depends on them."""
    gap = subtract(right, left)
    if gap is None:
        return None
    if gap.number is not None:
        return gap.number > 0
    least, least_other_way = gap.least, negate(gap).least
    if least is not None and least > 0:
        return True
    return False if least_other_way is not None and least_other_way >= 0 else None


class SizeTable:
    """The dimensions and unexpanded expressions of one graph, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._names: dict[int, str] = {}

    def named(self, name: str) -> Size:
        """The dimension that the model calls `name`: one size wherever it occurs."""
        size = self._atom(("name", name))
        assert size.atom is not None
        self._names[size.atom] = name
        return size

    def of(self, what: Hashable) -> Size:
        """A size nothing is known of, the same one for the same `what`."""
        return self._atom(("unknown", what))

    def name_of(self, size: Size) -> str | None:
        """What the model calls this size, if it is exactly one named dimension."""
        return None if size.atom is None else self._names.get(size.atom)

    def divide(self, left: Size, right: Size) -> Size | None:
        """`left // right` as integer division makes it; `None` when a negative number may be
        involved and it does not come out even.
        """
        if right.number == 0:
            return None
        exact = _divide_exactly(left, right)
        return self._unexpanded("div", left, right) if exact is None else exact

    def remainder(self, left: Size, right: Size) -> Size | None:
        if right.number == 0:
            return None
        exact = _divide_exactly(left, right)
        return self._unexpanded("mod", left, right) if exact is None else number(0)

    def smaller(self, left: Size, right: Size) -> Size | None:
        return self._extreme("min", left, right)

    def larger(self, left: Size, right: Size) -> Size | None:
        return self._extreme("max", left, right)

    def _extreme(self, op: str, left: Size, right: Size) -> Size | None:
        if left.number is not None and right.number is not None:
            # Asked, as sizes that are the smaller of two are hard to compare with others.
            below: bool | None = left.number <= right.number
        else:
            below = less(left, right)
        if below is None:
            if left == right:
                return left
            return self._unexpanded(op, *sorted((left, right), key=lambda size: size.terms))
        low, high = (left, right) if below else (right, left)
        return low if op == "min" else high

    def _unexpanded(self, op: str, left: Size, right: Size) -> Size | None:
        if left.number is not None and right.number is not None:
            a, b = left.number, right.number
            if op in ("div", "mod") and (a < 0 or b < 0):
                return None
            return number({"div": a // b, "mod": a % b}[op])
        if any(size.least is None or size.least < 0 for size in (left, right)):
            return None
        return self._atom((op, left, right))

    def _atom(self, key: Hashable) -> Size:
        return Size((((self._numbers.setdefault(key, len(self._numbers)),), 1),))


def _divide_exactly(size: Size, divisor: Size) -> Size | None:
    """`size` divided by a divisor of one term, when every term of it is a multiple; `None` too when
    there are expressions among the coefficients.
    """
    coefficients = [each for _, each in (*size.terms, *divisor.terms)]
    if len(divisor.terms) != 1 or any(map(is_symbolic, coefficients)):
        return None
    ((monomial, coefficient),) = divisor.terms
    terms: dict[Monomial, int] = {}
    for factors, count in size.terms:
        left = list(factors)
        for atom in monomial:
            if atom not in left:
                return None
            left.remove(atom)
        if count % coefficient:
            return None
        terms[tuple(left)] = count // coefficient
    return _size(terms)
