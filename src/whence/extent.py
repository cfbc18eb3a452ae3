"""Sizes that are known only when a model is called: expressions over its named dimensions.

An `Extent` goes wherever the size of a tensor goes. It is used as an `int`, and answers as one: its
arithmetic gives further extents (`sequence * 768`), and an f-string has it as an expression of C.
Nothing of it is an `int` for C code, though, so that NumPy, `range` and the like must ask for the
number.

Whoever *asks* for something that the expression alone does not decide gets the answer of the call
that the model is compiled for, and the answer becomes a *guard*: what is compiled serves all calls
for which every guard holds. `sequence > 100` is such a question, `int(sequence)` is one whose guard
only the same size passes. So a compiled program is right for every size that it is used for, and
what costs generality is listed, with the line that asked. `estimate` is the size for whoever only
compares costs: any choice is right then, and nothing is recorded.

Named dimensions are at least 2: tensors of size 1 broadcast and those of size 0 are empty, so what
is compiled for them is another program, as it is in PyTorch.
"""

from __future__ import annotations

import ast
import enum
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

C_PREFIX = "dim_"
"""Before the name of a dimension, where it is a variable of C."""
LEAST = 2
"""The smallest size of a dimension that has a name when a model is compiled."""
_MOST = 2**29
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


@dataclass(frozen=True, slots=True)
class Guard:
    """`left` stands in this relation to `right`, whatever sizes the program is used for."""

    left: int
    relation: Relation
    right: int
    asked_by: str = field(default="", compare=False)
    """The file and the line that asked, for whoever wants the program to serve more."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.relation.holds(evaluate(self.left, sizes), evaluate(self.right, sizes))

    def __str__(self) -> str:
        return f"{self.left!s} {self.relation} {self.right!s}"


class Dimensions:
    """The named dimensions of one compilation: their sizes in the call that it is made for, and
    what was asked about them.
    """

    def __init__(self, sizes: Mapping[str, int], most: Mapping[str, int] | None = None) -> None:
        self.sizes = dict(sizes)
        self.most = dict(most or {})
        """The largest size of a dimension, where there is one."""
        self.labels = {name: name for name in sizes}
        """What the model calls each dimension, for messages."""
        self._guards: dict[tuple[object, Relation, object], Guard] = {}
        self._ranges: dict[object, tuple[int, int]] = {}
        """By terms: between which numbers the guards say they lie."""
        self._unequal: dict[object, set[int]] = {}
        """By terms: numbers that the guards say they are not."""
        self._equal: dict[_Atom, _Terms] = {}
        """What the guards say that a quotient is."""
        for name, size in sizes.items():
            assert re.fullmatch(r"[A-Za-z_]\w*", name), name
            assert size >= LEAST, (name, size)

    def __getitem__(self, name: str) -> int:
        """The dimension of this name, as a size."""
        assert name in self.sizes, name
        return cast(int, Extent({(name,): 1}, self))

    @property
    def guards(self) -> list[Guard]:
        return list(self._guards.values())

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Is what was compiled right for these sizes?"""
        return all(
            LEAST <= sizes[name] <= self.most.get(name, _MOST) for name in self.sizes
        ) and all(guard.holds(sizes) for guard in self._guards.values())

    @property
    def pinned(self) -> set[str]:
        """The dimensions that somebody needed the number of, so that what is compiled serves one
        size only.
        """
        return {
            name
            for guard in self._guards.values()
            if guard.relation is Relation.EQ
            for one, other in ((guard.left, guard.right), (guard.right, guard.left))
            if not is_symbolic(other)
            for name in names(one)
        }

    def parse(self, text: str) -> int:
        """The extent whose text this is."""
        return _parsed(ast.parse(text.replace("/", "//"), mode="eval").body, self)

    def add_guard(self, left: int, relation: Relation, right: int, asked_by: str = "") -> None:
        key = (_key(left), relation, _key(right))
        if key not in self._guards:
            self._guards[key] = Guard(left, relation, right, asked_by or _asking_line())
            difference = left - right
            self._limit(difference, relation)
            if relation is Relation.EQ:
                self._add_equality(difference)

    def _limit(self, difference: int, relation: Relation) -> None:
        """Remember what a relation of a difference to 0 says of its terms without the constant."""
        terms, constant = _split(difference)
        key, opposite = _terms_key(terms), _terms_key({at: -by for at, by in terms.items()})
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

    def _narrow(self, key: object, low: int, high: int) -> None:
        least, most = self._ranges.get(key, (-_UNBOUNDED, _UNBOUNDED))
        self._ranges[key] = max(low, least), min(high, most)

    def range_of(self, size: int) -> tuple[int, int]:
        """Between which numbers a size lies, by what was asked before."""
        terms, constant = _split(size)
        low, high = self._ranges.get(_terms_key(terms), (-_UNBOUNDED, _UNBOUNDED))
        return (
            low if low == -_UNBOUNDED else low + constant,
            high if high == _UNBOUNDED else high + constant,
        )

    def is_unequal(self, size: int) -> bool:
        """Was it asked whether this size is 0, and is it not?"""
        terms, constant = _split(size)
        return -constant in self._unequal.get(_terms_key(terms), ())

    def _add_equality(self, difference: int) -> None:
        """From now on, the largest quotient in a difference that is 0 is written as the rest of it,
        and a dimension that is a number as that.
        """
        terms = _terms(difference)
        if len(terms) - (() in terms) == 1:
            ((key, factor),) = ((key, factor) for key, factor in terms.items() if key)
            if len(key) == 1 and abs(factor) == 1:
                self._equal[key[0]] = {(): -factor * terms.get((), 0)}
                return
        atoms = [
            key[0]
            for key, factor in terms.items()
            if len(key) == 1 and abs(factor) == 1 and isinstance(key[0], _Divided)
        ]
        for atom in sorted(atoms, key=lambda atom: (-len(str(atom)), str(atom))):
            rest = {key: factor for key, factor in terms.items() if key != (atom,)}
            if any(_depends(each, atom) for key in rest for each in key):
                continue
            sign = -terms[(atom,)]
            self._equal[atom] = {key: sign * factor for key, factor in rest.items()}
            return

    def _rewritten(self, terms: Mapping[_Monomial, int]) -> Mapping[_Monomial, int]:
        """The same polynomial by what is known to be equal."""
        while True:
            monomial = next(
                (key for key in terms if any(atom in self._equal for atom in key)), None
            )
            if monomial is None:
                return terms
            atom = next(atom for atom in monomial if atom in self._equal)
            others = cast(_Monomial, _without(monomial, (atom,)))
            factor = terms[monomial]
            total = {key: count for key, count in terms.items() if key != monomial}
            for key, count in self._equal[atom].items():
                product = tuple(sorted((*key, *others), key=str))
                total[product] = total.get(product, 0) + factor * count
            terms = total


@dataclass(frozen=True, slots=True, eq=False)
class _Divided:
    """A quotient or a remainder that does not come out even, or the larger or smaller of two."""

    function: str
    left: int
    right: int

    def __eq__(self, other: object) -> bool:
        # Of expressions: whether their values are equal would be a question.
        return isinstance(other, _Divided) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, object, object]:
        return self.function, _key(self.left), _key(self.right)

    def __str__(self) -> str:
        if self.function in ("max", "min"):
            return f"{self.function}({self.left!s}, {self.right!s})"
        return f"({_grouped(self.left)}{self.function}{_grouped(self.right)})"

    def value(self, sizes: Mapping[str, int]) -> int:
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        return _FUNCTIONS[self.function](left, right)

    def bounds(self) -> tuple[int, int]:
        (low, high), (least, most) = _bounds(self.left), _bounds(self.right)
        if self.function == "max":
            return max(low, least), max(high, most)
        if self.function == "min":
            return min(low, least), min(high, most)
        if self.function == "%":
            return 0, most - 1
        # Only what is not negative is divided, by what is positive: see `_divided`.
        return max(low, 0) // most, max(high, 0) // max(least, 1)


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}
_Atom = str | _Divided
_Monomial = tuple[_Atom, ...]
_Terms = dict[_Monomial, int]


class Extent:
    """A polynomial over the dimensions, their quotients and remainders. Never a constant: what
    turns out to be one is an `int`.
    """

    __slots__ = ("_hash", "dimensions", "terms")

    def __init__(self, terms: _Terms, dimensions: Dimensions) -> None:
        self.terms = terms
        self.dimensions = dimensions
        self._hash = hash(frozenset(terms.items()))

    @property  # type: ignore[misc]  # writable in `object`, which nobody does
    def __class__(self) -> type:
        """What `isinstance` goes by."""
        return int

    # ---- arithmetic ----

    def __add__(self, other: object) -> int:
        if isinstance(other, float):
            return self.__index__() + other  # type: ignore[return-value]
        if not isinstance(other, int):
            return NotImplemented
        return _number(_sum(self.terms, _terms(other)), self.dimensions)

    __radd__ = __add__

    def __neg__(self) -> int:
        return _number({key: -factor for key, factor in self.terms.items()}, self.dimensions)

    def __pos__(self) -> int:
        return cast(int, self)

    def __sub__(self, other: int) -> int:
        if not isinstance(other, int | float):
            return NotImplemented
        return self + (-other)

    def __rsub__(self, other: int) -> int:
        if not isinstance(other, int | float):
            return NotImplemented
        return -self + other

    def __mul__(self, other: object) -> int:
        if isinstance(other, float):
            return self.__index__() * other  # type: ignore[return-value]
        if not isinstance(other, int):
            return NotImplemented
        product: _Terms = {}
        for one, factor in self.terms.items():
            for two, by in _terms(other).items():
                key = tuple(sorted((*one, *two), key=str))
                product[key] = product.get(key, 0) + factor * by
        return _number(product, self.dimensions)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        return _divided(cast(int, self), other, self.dimensions)[0]

    def __rfloordiv__(self, other: int) -> int:
        return _divided(other, cast(int, self), self.dimensions)[0]

    def __mod__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        return _divided(cast(int, self), other, self.dimensions)[1]

    def __rmod__(self, other: int) -> int:
        return _divided(other, cast(int, self), self.dimensions)[1]

    def __divmod__(self, other: int) -> tuple[int, int]:
        return _divided(cast(int, self), other, self.dimensions)

    # ---- questions ----

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return False
        return self._ask(Relation.EQ, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> bool:
        return self._ask(Relation.LT, other)

    def __le__(self, other: int) -> bool:
        return self._ask(Relation.LE, other)

    def __gt__(self, other: int) -> bool:
        return not self._ask(Relation.LE, other)

    def __ge__(self, other: int) -> bool:
        return not self._ask(Relation.LT, other)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return self._hash

    def _ask(self, relation: Relation, other: int) -> bool:
        decided = decide(cast(int, self), relation, other)
        if decided is not None:
            return decided
        this = cast(int, self)
        answer = relation.holds(estimate(this), estimate(other))
        if answer:
            self.dimensions.add_guard(this, relation, other)
        elif relation is Relation.EQ:
            self.dimensions.add_guard(this, Relation.NE, other)
        else:
            self.dimensions.add_guard(other, _TURNED[relation], this)
        return answer

    # ---- the number itself, which only one size has ----

    def __index__(self) -> int:
        number = estimate(cast(int, self))
        self.dimensions.add_guard(cast(int, self), Relation.EQ, number)
        return number

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: float) -> float:
        return self.__index__() / other

    def __rtruediv__(self, other: float) -> float:
        return other / self.__index__()

    def bit_length(self) -> int:
        return self.__index__().bit_length()

    # ---- text ----

    def __str__(self) -> str:
        text = " + ".join(_term(key, factor) for key, factor in _ordered(self.terms))
        return text.replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"<{self!s}>"

    def __format__(self, spec: str) -> str:
        """An expression of C, in parentheses, since it may stand in a product. A dimension may have
        the name of anything in a kernel, so it gets a prefix there.
        """
        text = " + ".join(_term(key, factor, _c_atom) for key, factor in _ordered(self.terms))
        ((key, factor), *more) = self.terms.items()
        is_whole = not more and len(key) == 1 and factor == 1
        return text if is_whole else f"({text.replace('+ -', '- ')})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Extent, (self.terms, self.dimensions)

    def __copy__(self) -> Extent:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Extent:
        # Questions about a copy are questions about the same dimensions.
        return self


# ---- for those who know that sizes may be extents ----


def is_symbolic(size: object) -> bool:
    """Is this size known only when the model is called?"""
    return type(size) is Extent


def estimate(size: int) -> int:
    """The size in the call that is compiled for: for costs, where any answer is right."""
    symbolic = _symbolic(size)
    return size if symbolic is None else evaluate(size, symbolic.dimensions.sizes)


def described(size: object) -> str:
    """A size for a message: what it is in the call that is compiled for, and in the model's words."""
    symbolic = _symbolic(size)
    return str(size) if symbolic is None else f"{estimate(cast(int, size))} ({size!s})"


def evaluate(size: int, sizes: Mapping[str, int]) -> int:
    """The size when the dimensions have these sizes."""
    symbolic = _symbolic(size)
    if symbolic is None:
        return size
    total = 0
    for key, factor in symbolic.terms.items():
        for atom in key:
            factor *= sizes[atom] if isinstance(atom, str) else atom.value(sizes)
        total += factor
    return total


def decide(left: int, relation: Relation, right: int) -> bool | None:
    """Whether the relation holds, if the expressions, the bounds of the dimensions or what was asked
    before decide it; nothing is recorded.
    """
    if not is_symbolic(left) and not is_symbolic(right):
        return relation.holds(left, right)
    difference = left - right
    if not is_symbolic(difference):
        return relation.holds(difference, 0)
    low, high = _bounds(difference)
    if relation is Relation.LT:
        return True if high < 0 else False if low >= 0 else None
    if relation is Relation.LE:
        return True if high <= 0 else False if low > 0 else None
    if low == high == 0:
        return relation is Relation.EQ
    if low > 0 or high < 0 or _dimensions(difference).is_unequal(difference):
        return relation is Relation.NE
    return None


def surely_equal(left: int, right: int) -> bool:
    """Are the two the same for all sizes? For choices where doing without the knowledge is right
    too.
    """
    if type(left) is int and type(right) is int:
        return left == right
    return decide(left, Relation.EQ, right) is True


def same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Are two shapes the same for all sizes?"""
    return len(one) == len(other) and all(map(surely_equal, one, other))


def surely_divides(divisor: int, size: int) -> bool:
    """Is the size a multiple of the divisor, whatever the dimensions are?"""
    if type(divisor) is int and type(size) is int:
        return size % divisor == 0
    if not decide(0, Relation.LT, divisor):
        # It may be zero, for some sizes.
        return surely_equal(divisor, size) or surely_equal(size, 0)
    remainder = size % divisor
    return not is_symbolic(remainder) and remainder == 0


def larger(left: int, right: int) -> int:
    """The larger of two, which asks nothing."""
    return _chosen("max", left, right)


def smaller(left: int, right: int) -> int:
    """The smaller of two, which asks nothing."""
    return _chosen("min", left, right)


def names(size: int) -> set[str]:
    """The dimensions that a size depends on."""
    symbolic = _symbolic(size)
    if symbolic is None:
        return set()
    found: set[str] = set()
    for key in symbolic.terms:
        for atom in key:
            found |= {atom} if isinstance(atom, str) else names(atom.left) | names(atom.right)
    return found


def as_sizes(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape that somebody gave, its numbers as those of Python; what is open stays so."""
    return tuple(dim if is_symbolic(dim) else int(dim) for dim in shape)


def dimensions_of(sizes: Iterable[object]) -> Dimensions | None:
    """The dimensions that some of the sizes are expressions over; `None` if all are numbers."""
    found = (symbolic for size in sizes if (symbolic := _symbolic(size)) is not None)
    return next((symbolic.dimensions for symbolic in found), None)


# ---- how it is done ----


def _symbolic(size: object) -> Extent | None:
    return size if type(size) is Extent else None


def _chosen(function: str, left: int, right: int) -> int:
    if decide(left, Relation.LE, right):
        return right if function == "max" else left
    if decide(right, Relation.LE, left):
        return left if function == "max" else right
    return _number({(_Divided(function, left, right),): 1}, _dimensions(left, right))


def _dimensions(*sizes: int) -> Dimensions:
    return next(symbolic.dimensions for size in sizes if (symbolic := _symbolic(size)) is not None)


def _terms(size: int) -> Mapping[_Monomial, int]:
    symbolic = _symbolic(size)
    return {(): size} if symbolic is None else symbolic.terms


def _number(terms: Mapping[_Monomial, int], dimensions: Dimensions) -> int:
    if dimensions._equal:
        terms = dimensions._rewritten(terms)
    left = {key: factor for key, factor in terms.items() if factor}
    if not left:
        return 0
    if left.keys() == {()}:
        return left[()]
    return cast(int, Extent(left, dimensions))


def _sum(one: Mapping[_Monomial, int], two: Mapping[_Monomial, int]) -> _Terms:
    total = dict(one)
    for key, factor in two.items():
        total[key] = total.get(key, 0) + factor
    return total


def _divided(left: int, right: int, dimensions: Dimensions) -> tuple[int, int]:
    """Quotient and remainder: what divides evenly comes out as terms, the rest as one atom."""
    if dimensions._equal:
        left, right = (_number(_terms(size), dimensions) for size in (left, right))
        if not is_symbolic(left) and not is_symbolic(right):
            return divmod(left, right)
    if right == 0:
        raise ZeroDivisionError(f"{left!s} divided by zero")
    by = _terms(right)
    if len(by) == 1:
        ((key, factor),) = by.items()
        even: _Terms = {}
        rest: _Terms = {}
        for monomial, count in _terms(left).items():
            without = _without(monomial, key)
            if without is None:
                rest[monomial] = count
            else:
                # Towards zero, so that what is rounded up below stays a round number of terms.
                whole = abs(count) // abs(factor) * (1 if (count < 0) == (factor < 0) else -1)
                even[without] = even.get(without, 0) + whole
                rest[monomial] = count - whole * factor
        quotient, remainder = _number(even, dimensions), _number(rest, dimensions)
    else:
        exact = _divided_exactly(_terms(left), by)
        if exact is not None:
            return _number(exact, dimensions), 0
        quotient, remainder = 0, left
    if not is_symbolic(remainder) and not is_symbolic(right):
        return quotient + remainder // right, remainder % right
    low, high = _bounds(remainder)
    least, _ = _bounds(right)
    if low < 0 and high <= 0:
        # Rounding up, as in -(-a // b): division of what is not negative is alike everywhere.
        up = (-remainder + right - 1) // right
        return quotient - up, remainder + up * right
    if low >= 0 and high < least:
        return quotient, remainder
    # Where the sign is not known, it is asked for; what is negative is for one size only.
    if (low < 0 and remainder < 0) or (least <= 0 and right <= 0):
        return divmod(int(left), int(right))
    modulo = _Divided("%", remainder, right)
    inner = _only_quotient(remainder)
    if inner is not None:
        # (a / b) / c = a / (b * c)
        remainder, right = inner.left, inner.right * right
    division = _Divided("/", remainder, right)
    return (
        quotient + _number({(division,): 1}, dimensions),
        _number({(modulo,): 1}, dimensions),
    )


def _only_quotient(size: int) -> _Divided | None:
    """The division that a size is, if it is nothing else."""
    terms = _terms(size)
    if len(terms) == 1:
        ((key, factor),) = terms.items()
        if (
            factor == 1
            and len(key) == 1
            and isinstance(key[0], _Divided)
            and key[0].function == "/"
        ):
            return key[0]
    return None


def _divided_exactly(left: Mapping[_Monomial, int], by: Mapping[_Monomial, int]) -> _Terms | None:
    """The quotient of two polynomials if there is no remainder: long division by leading terms."""
    leading, factor = min(by.items(), key=_rank)
    quotient: _Terms = {}
    rest = dict(left)
    while rest:
        monomial, count = min(rest.items(), key=_rank)
        without = _without(monomial, leading)
        if without is None or count % factor or without in quotient:
            return None
        quotient[without] = count // factor
        for key, each in by.items():
            product = tuple(sorted((*key, *without), key=str))
            total = rest.get(product, 0) - each * quotient[without]
            rest[product] = total
            if not total:
                del rest[product]
    return quotient


def _depends(atom: _Atom, part: _Divided) -> bool:
    """Does the atom have this part in it?"""
    if isinstance(atom, str):
        return False
    return atom == part or any(
        _depends(each, part)
        for side in (atom.left, atom.right)
        for key in _terms(side)
        for each in key
    )


def _rank(term: tuple[_Monomial, int]) -> tuple[int, str]:
    """Higher degrees come first."""
    return -len(term[0]), str(term[0])


def _without(monomial: _Monomial, atoms: _Monomial) -> _Monomial | None:
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _bounds(size: int) -> tuple[int, int]:
    symbolic = _symbolic(size)
    if symbolic is None:
        return size, size
    dimensions = symbolic.dimensions
    low = high = 0
    for key, factor in symbolic.terms.items():
        least, most = 1, 1
        for atom in key:
            if isinstance(atom, str):
                smallest, largest = LEAST, dimensions.most.get(atom, _MOST)
            else:
                smallest, largest = atom.bounds()
            corners = [least * smallest, least * largest, most * smallest, most * largest]
            least, most = min(corners), max(corners)
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    least, most = dimensions.range_of(size)
    return max(low, least), min(high, most)


def _split(size: int) -> tuple[_Terms, int]:
    """The terms of a size without the constant one, and that."""
    terms = dict(_terms(size))
    return terms, terms.pop((), 0)


def _terms_key(terms: Mapping[_Monomial, int]) -> object:
    return frozenset(terms.items())


def _key(size: int) -> object:
    symbolic = _symbolic(size)
    return size if symbolic is None else frozenset(symbolic.terms.items())


def _ordered(terms: _Terms) -> Iterable[tuple[_Monomial, int]]:
    return sorted(terms.items(), key=_rank)


def _term(key: _Monomial, factor: int, text: Callable[[_Atom], str] = str) -> str:
    words = [text(atom) for atom in key]
    if factor != 1 or not words:
        words = [str(factor), *words] if factor != -1 or not words else ["-" + words[0], *words[1:]]
    return "*".join(words)


def _grouped(size: int) -> str:
    text = str(size)
    return text if text.isalnum() or text.isidentifier() else f"({text})"


def _c_atom(atom: _Atom) -> str:
    if isinstance(atom, str):
        return C_PREFIX + atom
    if atom.function in ("max", "min"):
        sign = ">" if atom.function == "max" else "<"
        return f"({atom.left} {sign} {atom.right} ? {atom.left} : {atom.right})"
    return f"({atom.left} {atom.function} {atom.right})"


def _parsed(node: ast.expr, dimensions: Dimensions) -> int:
    match node:
        case ast.Name(id=name):
            return dimensions[name]
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parsed(operand, dimensions)
        case ast.BinOp(left=left, op=operator, right=right):
            one, two = _parsed(left, dimensions), _parsed(right, dimensions)
            return _OPERATORS[type(operator)](one, two)
        case ast.Call(func=ast.Name(id=("max" | "min") as function), args=[left, right]):
            return _chosen(function, _parsed(left, dimensions), _parsed(right, dimensions))
    raise ValueError(f"no expression over dimensions: {ast.unparse(node)}")


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_TURNED = {Relation.LT: Relation.LE, Relation.LE: Relation.LT}
"""What holds between right and left when this does not between left and right."""


def _asking_line() -> str:
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('whence/')[2]}:{frame.f_lineno}"
