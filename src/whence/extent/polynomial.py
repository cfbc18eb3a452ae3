"""Polynomials over named dimensions: what the size of a tensor is before its model is called.

A polynomial maps products of atoms to factors: `768*sequence - 3` is {("sequence",): 768, (): -3}.
An atom is the name of a dimension, or what no polynomial expresses: a quotient, a remainder, the
larger or smaller of two polynomials. Nothing here knows what sizes the dimensions have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Divided:
    """A quotient or a remainder that does not come out even, or the larger or smaller of two."""

    __slots__ = ("_hash", "_key", "function", "left", "right")

    def __init__(self, function: str, left: Polynomial, right: Polynomial) -> None:
        self.function = function
        self.left = left
        self.right = right
        self._key = function, key_of(left), key_of(right)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Divided) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        # Not the hash, which is another one in each process.
        return Divided, (self.function, self.left, self.right)

    def __str__(self) -> str:
        left, right = text_of(self.left), text_of(self.right)
        if self.function in ("max", "min"):
            return f"{self.function}({left}, {right})"
        return f"({_grouped(left)}{self.function}{_grouped(right)})"

    def __repr__(self) -> str:
        return f"Divided({self.function!r}, {text_of(self.left)}, {text_of(self.right)})"

    def value(self, sizes: Mapping[str, int]) -> int:
        return _FUNCTIONS[self.function](value_of(self.left, sizes), value_of(self.right, sizes))


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}
Atom = str | Divided
Monomial = tuple[Atom, ...]
Polynomial = Mapping[Monomial, int]


def key_of(terms: Polynomial) -> object:
    """Equal for polynomials with the same terms, in whatever order."""
    return frozenset(terms.items())


def value_of(terms: Polynomial, sizes: Mapping[str, int]) -> int:
    """The number that a polynomial is when the dimensions have these sizes."""
    total = 0
    for key, factor in terms.items():
        for atom in key:
            factor *= sizes[atom] if isinstance(atom, str) else atom.value(sizes)
        total += factor
    return total


def names_in(terms: Polynomial) -> set[str]:
    """The dimensions that a polynomial depends on."""
    found: set[str] = set()
    for key in terms:
        for atom in key:
            found |= {atom} if isinstance(atom, str) else names_in(atom.left) | names_in(atom.right)
    return found


def without_remainders(terms: Polynomial) -> Polynomial:
    """Without the terms that are the remainder of something by a number."""
    return {
        key: factor
        for key, factor in terms.items()
        if not (
            len(key) == 1
            and isinstance(key[0], Divided)
            and key[0].function == "%"
            and not names_in(key[0].right)
        )
    }


def depends(atom: Atom, part: Divided) -> bool:
    """Does the atom have this part in it?"""
    if isinstance(atom, str):
        return False
    return atom == part or any(
        depends(each, part) for side in (atom.left, atom.right) for key in side for each in key
    )


# ---- arithmetic ----


def negated(terms: Polynomial) -> dict[Monomial, int]:
    return {key: -factor for key, factor in terms.items()}


def total(one: Polynomial, two: Polynomial) -> dict[Monomial, int]:
    found = dict(one)
    for key, factor in two.items():
        found[key] = found.get(key, 0) + factor
    return found


def product(one: Polynomial, two: Polynomial) -> dict[Monomial, int]:
    found: dict[Monomial, int] = {}
    for left, factor in one.items():
        for right, by in two.items():
            key = _times(left, right)
            found[key] = found.get(key, 0) + factor * by
    return found


def substituted(terms: Polynomial, equal: Mapping[Atom, Polynomial]) -> Polynomial:
    """The same polynomial with these atoms written as what they are equal to."""
    while True:
        monomial = next((key for key in terms if any(atom in equal for atom in key)), None)
        if monomial is None:
            return terms
        atom = next(atom for atom in monomial if atom in equal)
        others = without(monomial, (atom,))
        assert others is not None
        rest = {key: factor for key, factor in terms.items() if key != monomial}
        terms = total(rest, product(equal[atom], {others: terms[monomial]}))


def split_constant(terms: Polynomial) -> tuple[dict[Monomial, int], int]:
    """The terms without the constant one, and that."""
    others = dict(terms)
    return others, others.pop((), 0)


def divided_by_term(
    left: Polynomial, key: Monomial, factor: int
) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """Quotient and remainder of division by one term, each term of the dividend by itself."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, count in left.items():
        others = without(monomial, key)
        if others is None:
            rest[monomial] = count
        else:
            # Towards zero, so that what is rounded up later stays a round number of terms.
            whole = abs(count) // abs(factor) * (1 if (count < 0) == (factor < 0) else -1)
            quotient[others] = quotient.get(others, 0) + whole
            rest[monomial] = count - whole * factor
    return quotient, rest


def long_division(
    left: Polynomial, by: Polynomial
) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """Quotient and remainder of two polynomials: long division by the leading term."""
    leading, factor = min(by.items(), key=_rank)
    quotient: dict[Monomial, int] = {}
    undivided: dict[Monomial, int] = {}
    rest = {key: count for key, count in left.items() if count}
    while rest:
        monomial, count = min(rest.items(), key=_rank)
        others = without(monomial, leading)
        if others is None or count % factor or others in quotient:
            undivided[monomial] = undivided.get(monomial, 0) + rest.pop(monomial)
            continue
        quotient[others] = count // factor
        subtracted = product(by, {others: -quotient[others]})
        rest = {key: count for key, count in total(rest, subtracted).items() if count}
    return quotient, undivided


def only_quotient(terms: Polynomial) -> Divided | None:
    """The division that a polynomial is, if it is nothing else."""
    if len(terms) == 1:
        ((key, factor),) = terms.items()
        if factor == 1 and len(key) == 1 and isinstance(key[0], Divided) and key[0].function == "/":
            return key[0]
    return None


def without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """A product divided by these atoms, if it has them all."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _times(one: Monomial, two: Monomial) -> Monomial:
    return tuple(sorted((*one, *two), key=str))


def _rank(term: tuple[Monomial, int]) -> tuple[int, str]:
    """Higher degrees come first."""
    return -len(term[0]), str(term[0])


# ---- text ----


def text_of(terms: Polynomial, atom_text: Callable[[Atom], str] = str) -> str:
    """The terms, those of higher degree first."""
    text = " + ".join(_term(*term, atom_text) for term in sorted(terms.items(), key=_rank))
    return text.replace("+ -", "- ")


def _term(key: Monomial, factor: int, atom_text: Callable[[Atom], str]) -> str:
    words = [atom_text(atom) for atom in key]
    if factor != 1 or not words:
        words = [str(factor), *words] if factor != -1 or not words else ["-" + words[0], *words[1:]]
    return "*".join(words)


def _grouped(text: str) -> str:
    return text if text.isalnum() or text.isidentifier() else f"({text})"
