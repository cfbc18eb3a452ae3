"""What is known of polynomials over dimensions: bounds and equalities, from guards."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from whence.extent.polynomial import (
    Atom,
    Divided,
    Polynomial,
    depends,
    key_of,
    negated,
    product,
    split_constant,
    substituted,
    total,
)

LEAST = 2
"""The smallest size of a dimension that has a name when a model is compiled."""
MOST = 2**29
"""The largest, unless a larger or smaller one is stated: what files call `to the end` is more."""
_UNBOUNDED = 2**200


class Relation(enum.StrEnum):
    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="

    def holds(self, left: int, right: int) -> bool:
        return _HOLDS[self](left, right)


_HOLDS: dict[Relation, Callable[[int, int], bool]] = {
    Relation.LT: lambda a, b: a < b,
    Relation.LE: lambda a, b: a <= b,
    Relation.EQ: lambda a, b: a == b,
    Relation.NE: lambda a, b: a != b,
}


class KnownRelations:
    """What relations between polynomials that are known to hold say of others."""

    def __init__(self, most: Mapping[str, int]) -> None:
        self.most = dict(most)
        """The largest size of a dimension, where there is one."""
        self._ranges: dict[object, tuple[int, int]] = {}
        """By terms without the constant one: between which numbers they lie."""
        self._unequal: dict[object, set[int]] = {}
        """By terms without the constant one: numbers that they are not."""
        self._equal: dict[Atom, Polynomial] = {}
        """What a quotient, or a dimension, is known to be."""

    def add(self, difference: Polynomial, relation: Relation) -> None:
        """This polynomial stands in this relation to 0."""
        terms, constant = split_constant(difference)
        key, opposite = key_of(terms), key_of(negated(terms))
        if relation is Relation.NE:
            self._unequal.setdefault(key, set()).add(-constant)
            self._unequal.setdefault(opposite, set()).add(constant)
            return
        most = -constant - 1 if relation is Relation.LT else -constant
        self._narrow(key, -_UNBOUNDED, most)
        self._narrow(opposite, -most, _UNBOUNDED)
        if relation is Relation.EQ:
            self._narrow(key, most, most)
            self._narrow(opposite, -most, -most)
            self._add_equality(difference)

    def _narrow(self, key: object, low: int, high: int) -> None:
        least, most = self._ranges.get(key, (-_UNBOUNDED, _UNBOUNDED))
        self._ranges[key] = max(low, least), min(high, most)

    def _add_equality(self, terms: Polynomial) -> None:
        """From now on, the largest quotient in a difference that is 0 is written as the rest of it,
        and a dimension that is a number as that.
        """
        if len(terms) - (() in terms) == 1:
            ((key, factor),) = ((key, factor) for key, factor in terms.items() if key)
            if len(key) == 1 and abs(factor) == 1:
                self._equal[key[0]] = {(): -factor * terms.get((), 0)}
                return
        atoms = [
            key[0]
            for key, factor in terms.items()
            if len(key) == 1 and abs(factor) == 1 and isinstance(key[0], Divided)
        ]
        for atom in sorted(atoms, key=lambda atom: (-len(str(atom)), str(atom))):
            rest = {key: factor for key, factor in terms.items() if key != (atom,)}
            if any(depends(each, atom) for key in rest for each in key):
                continue
            sign = -terms[(atom,)]
            self._equal[atom] = {key: sign * factor for key, factor in rest.items()}
            return

    def simplified(self, terms: Polynomial) -> Polynomial:
        """The same polynomial by what is known to be equal."""
        return substituted(terms, self._equal) if self._equal else terms

    def is_unequal(self, terms: Polynomial) -> bool:
        """Is it known that this is not 0?"""
        others, constant = split_constant(terms)
        return -constant in self._unequal.get(key_of(others), ())

    def bounds(self, terms: Polynomial) -> tuple[int, int]:
        """The smallest and the largest number that a polynomial can be."""
        low = high = 0
        for key, factor in terms.items():
            least, most = 1, 1
            for atom in key:
                smallest, largest = self._atom_bounds(atom)
                corners = [least * smallest, least * largest, most * smallest, most * largest]
                least, most = min(corners), max(corners)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        others, constant = split_constant(terms)
        known = self._ranges.get(key_of(others))
        if known is not None:
            low, high = max(low, known[0] + constant), min(high, known[1] + constant)
        multiple = _multiple_of_quotient(terms)
        if multiple is not None:
            # k·c·(x / c) = k·x - k·(x % c), and the remainder lies between 0 and c - 1.
            rewritten, k, divisor = multiple
            least, most = self.bounds(rewritten)
            slack = k * (divisor - 1)
            low, high = max(low, least - max(slack, 0)), min(high, most - min(slack, 0))
        return low, high

    def _atom_bounds(self, atom: Atom) -> tuple[int, int]:
        if isinstance(atom, str):
            return LEAST, self.most.get(atom, MOST)
        (low, high), (least, most) = self.bounds(atom.left), self.bounds(atom.right)
        match atom.function:
            case "max":
                return max(low, least), max(high, most)
            case "min":
                return min(low, least), min(high, most)
            case "%":
                return 0, most - 1
        # Only what is not negative is divided, by what is positive: see `divided`.
        return max(low, 0) // most, max(high, 0) // max(least, 1)


def _multiple_of_quotient(terms: Polynomial) -> tuple[Polynomial, int, int] | None:
    """A polynomial with k·c·(x / c) in it, c a number, with k·x instead; k and c."""
    for key, factor in terms.items():
        if len(key) != 1 or not isinstance(key[0], Divided) or key[0].function != "/":
            continue
        divisor = key[0].right.get((), 0)
        if key[0].right.keys() == {()} and divisor > 1 and factor % divisor == 0:
            k = factor // divisor
            rest = {each: times for each, times in terms.items() if each != key}
            return total(rest, product(key[0].left, {(): k})), k, divisor
    return None
