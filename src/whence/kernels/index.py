"""Integer index arithmetic in normal form: a constant plus multiples of atoms.

Layout operators (transpose, reshape, slice) are index maps. Composing them naively fills a kernel's
inner loop with divisions; in this form `(32·i + j) // 32` is seen to be `i` as soon as `0 <= j <
32` is known, and most of them vanish.

Numbers may be extents, which are known only at run time. Nothing here asks about them: what their
expressions and bounds do not decide stays a quotient or a remainder, and indices are equal that are
equal for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from whence.extent import (
    Relation,
    decide,
    is_symbolic,
    larger,
    smaller,
    surely_divides,
    surely_equal,
)

if TYPE_CHECKING:
    from whence.kernels.ir import Expr

# Expressions with more parts are not written out to be compared.
_LONG = 64


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A loop variable: `0 <= var < extent`."""

    name: str
    extent: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Var)
            and self.name == other.name
            and surely_equal(self.extent, other.extent)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.extent))


@dataclass(frozen=True, slots=True, eq=False)
class _Division:
    of: Index
    by: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Division)
            and type(self) is type(other)
            and surely_equal(self.by, other.by)
            and self.of == other.of
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.of, self.by))


class Quotient(_Division):
    """`of // by`, rounding towards minus infinity."""

    __slots__ = ()


class Remainder(_Division):
    """`of mod by`, always in `0 .. by-1`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class LoadedIndex:
    """An index computed from data, such as the row a gather reads. `0 <= value < extent` is the
    lowering's promise.
    """

    value: Expr
    extent: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LoadedIndex)
            and surely_equal(self.extent, other.extent)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.value, self.extent))


Atom: TypeAlias = Var | Quotient | Remainder | LoadedIndex


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """`const + Σ coefficient · atom`. Build with the operators and functions of this file, which
    keep it normal.
    """

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Index)
            and len(self.terms) == len(other.terms)
            and surely_equal(self.const, other.const)
            and all(
                surely_equal(own, theirs) and atom == same
                for (atom, own), (same, theirs) in zip(self.terms, other.terms, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self.const, self.terms))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, self.terms)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        for atom, coefficient in merged.items():
            if not isinstance(atom, Remainder) or surely_equal(coefficient, 0):
                continue
            # by · (x // by) + x mod by = x
            whole = Quotient(atom.of, atom.by)
            if surely_equal(merged.get(whole, 0), coefficient * atom.by):
                del merged[atom], merged[whole]
                return (
                    Index(self.const + other.const, tuple(merged.items())) + atom.of * coefficient
                )
        terms = [
            (atom, coefficient)
            for atom, coefficient in merged.items()
            if not surely_equal(coefficient, 0)
        ]
        # One order for one sum, so that equal indices compare equal.
        terms.sort(key=_sort_key)
        return Index(self.const + other.const, tuple(terms))

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1 if isinstance(other, Index) else -other)

    def __mul__(self, factor: int) -> Index:
        if surely_equal(factor, 0):
            return Index(0)
        return Index(
            self.const * factor,
            tuple((atom, coefficient * factor) for atom, coefficient in self.terms),
        )

    def __divmod__(self, by: int) -> tuple[Index, Index]:
        if surely_equal(by, 1):
            return self, Index(0)
        whole, rest = self._split(by)
        quotient = rest._only_quotient(by)
        if quotient is not None:
            return whole + quotient, rest - quotient * by
        common = rest._common_factor(by)
        if common > 1:
            inner, left = divmod(rest._divided(common), by // common)
            return whole + inner, left * common + rest.const % common
        return whole + of(Quotient(rest, by)), of(Remainder(rest, by))

    def __floordiv__(self, by: int) -> Index:
        return divmod(self, by)[0]

    def __mod__(self, by: int) -> Index:
        return divmod(self, by)[1]

    def _common_factor(self, by: int) -> int:
        """Of this number and all coefficients: what is left of the constant after dividing by it
        never carries, `(4·x + 3) // 16 = x // 4`.
        """
        numbers = [by, self.const, *(coefficient for _, coefficient in self.terms)]
        if not self.terms or any(map(is_symbolic, numbers)):
            return 1
        return math.gcd(by, *(coefficient for _, coefficient in self.terms))

    def _divided(self, common: int) -> Index:
        """By a factor of all coefficients, rounding the constant down."""
        terms = tuple((atom, coefficient // common) for atom, coefficient in self.terms)
        return Index(self.const // common, terms)

    def _only_quotient(self, by: int) -> int | None:
        """What it is divided by this, if that is the same for all its values."""
        low, high = self.bounds()
        if is_symbolic(low) or is_symbolic(high) or is_symbolic(by):
            if decide(0, Relation.LE, low) and decide(high, Relation.LT, by):
                return 0
            if len(self.terms) == 1 and surely_equal(self.const, 0):
                ((atom, coefficient),) = self.terms
                if isinstance(atom, Quotient) and surely_equal(coefficient, 1):
                    # (x // a) // b = x // (a·b)
                    return atom.of._only_quotient(atom.by * by)
            return None
        return low // by if low // by == high // by else None

    def _split(self, by: int) -> tuple[Index, Index]:
        """`self = by · whole + rest`, with every multiple of `by` moved into `whole`."""
        whole, rest = [], []
        for atom, coefficient in self.terms:
            if surely_divides(by, coefficient):
                whole.append((atom, coefficient // by))
            else:
                rest.append((atom, coefficient))
        is_open = is_symbolic(by) or is_symbolic(self.const)
        if is_open and (surely_equal(self.const, 0) or not surely_divides(by, self.const)):
            return Index(0, tuple(whole)), Index(self.const, tuple(rest))
        return Index(self.const // by, tuple(whole)), Index(self.const % by, tuple(rest))

    def bounds(self) -> tuple[int, int]:
        """The smallest and largest value it can take, as far as its atoms' ranges tell."""
        low = high = self.const
        for atom, coefficient in self.terms:
            atom_low, atom_high = _bounds(atom)
            if not decide(0, Relation.LE, coefficient) and not coefficient >= 0:
                atom_low, atom_high = atom_high, atom_low
            low += coefficient * atom_low
            high += coefficient * atom_high
        return low, high

    def coefficient(self, var: Var) -> int:
        """How far the index moves when `var` moves by one; only of the variable's own term."""
        return dict(self.terms).get(var, 0)

    def depends_on(self, var: Var) -> bool:
        return any(_depends(atom, var) for atom, _ in self.terms)

    def is_affine(self) -> bool:
        """No division, remainder or looked-up term: the compiler sees plain strides."""
        return all(isinstance(atom, Var) for atom, _ in self.terms)

    def variables(self) -> set[Var]:
        found: set[Var] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                found.add(atom)
            elif isinstance(atom, Quotient | Remainder):
                found |= atom.of.variables()
            else:
                found |= atom.value.variables()
        return found


def _sort_key(term: tuple[Atom, int]) -> tuple[str, str]:
    atom = term[0]
    return type(atom).__name__, atom.name if isinstance(atom, Var) else _text(atom)


def _text(atom: Quotient | Remainder | LoadedIndex) -> str:
    """What an atom is, the same in every run: written out, unless what it looks up is long."""
    size = _size(atom)
    return repr(atom) if size <= _LONG else f"{type(atom).__name__} of {size} parts"


def _size(atom: Atom) -> int:
    """How many parts the expressions have that are looked up, as trees."""
    if isinstance(atom, LoadedIndex):
        return atom.value.size
    return 0 if isinstance(atom, Var) else sum(_size(part) for part, _ in atom.of.terms)


def _bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Var | LoadedIndex):
        # Where a loop of open length runs at all, it has at least one iteration.
        last = atom.extent - 1
        return 0, last if is_symbolic(last) else max(last, 0)
    if isinstance(atom, Remainder):
        return 0, atom.by - 1
    low, high = atom.of.bounds()
    if decide(0, Relation.LT, atom.by):
        if decide(0, Relation.LE, low) and surely_divides(atom.by, high + 1):
            # The last of so many whole rows lies in the last row.
            return low // atom.by, (high + 1) // atom.by - 1
        # Of numbers whose sign is open, 0 is a bound that can be divided without asking.
        if decide(0, Relation.LE, low) is None:
            low = smaller(low, 0)
        if decide(0, Relation.LE, high) is None:
            high = larger(high, 0)
        return low // atom.by, high // atom.by
    # Nothing is divided where there is nothing to divide by.
    return smaller(low, 0), larger(high, 0)


def _depends(atom: Atom, var: Var) -> bool:
    if isinstance(atom, Var):
        return atom == var
    if isinstance(atom, LoadedIndex):
        return var in atom.value.variables()
    return atom.of.depends_on(var)


def of(atom: Atom | int) -> Index:
    """An index that is one atom, or a number. A variable that can only be 0 is 0."""
    if isinstance(atom, int):
        return Index(atom)
    if isinstance(atom, Var) and surely_equal(atom.extent, 1):
        return Index(0)
    return Index(0, ((atom, 1),))


def ravel(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major position of a multi-dimensional index."""
    flat = Index(0)
    for position, extent in zip(index, shape, strict=True):
        flat = flat * extent + position
    return flat


def unravel(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The multi-dimensional index of a row-major position."""
    parts: list[Index] = []
    for extent in reversed(shape[1:]):
        flat, part = divmod(flat, extent)
        parts.append(part)
    if shape:
        parts.append(flat)
    return tuple(reversed(parts))


def strided(index: Iterable[Index], strides: Iterable[int]) -> Index:
    """The position of an index in a layout with these strides."""
    total = Index(0)
    for position, stride in zip(index, strides, strict=True):
        total = total + position * stride
    return total
