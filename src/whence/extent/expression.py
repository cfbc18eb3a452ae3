"""`Extent`: a size that is an expression over dimensions, and is used as an `int`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from whence.extent.facts import Relation
from whence.extent.polynomial import (
    Atom,
    Divided,
    Polynomial,
    divided_by_term,
    long_division,
    negated,
    only_quotient,
    product,
    text_of,
    total,
    value_of,
)

if TYPE_CHECKING:
    from whence.extent.dimensions import Dimensions

C_PREFIX = "dim_"
"""Before the name of a dimension, where it is a variable of C."""


class Extent:
    """A polynomial over the dimensions, their quotients and remainders. Never a constant: what
    turns out to be one is an `int`.
    """

    __slots__ = ("_hash", "dimensions", "terms")

    def __init__(self, terms: Polynomial, dimensions: Dimensions) -> None:
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
        return as_size(total(self.terms, polynomial(other)), self.dimensions)

    __radd__ = __add__

    def __neg__(self) -> int:
        return as_size(negated(self.terms), self.dimensions)

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
        return as_size(product(self.terms, polynomial(other)), self.dimensions)

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
            self.dimensions.add_guard(other, _CONVERSE[relation], this)
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

    # ---- text and copies ----

    def __str__(self) -> str:
        return text_of(self.terms)

    def __repr__(self) -> str:
        return f"<{self!s}>"

    def __format__(self, spec: str) -> str:
        return _c_text(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Extent, (self.terms, self.dimensions)

    def __copy__(self) -> Extent:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Extent:
        # Questions about a copy are questions about the same dimensions.
        return self


_CONVERSE = {Relation.LT: Relation.LE, Relation.LE: Relation.LT}
"""What holds between right and left when this does not between left and right."""


def symbolic(size: object) -> Extent | None:
    """The size as an expression, if it is one."""
    return size if type(size) is Extent else None


def is_symbolic(size: object) -> bool:
    """Is this size known only when the model is called?"""
    return type(size) is Extent


def estimate(size: int) -> int:
    """The size in the call that is compiled for: for costs, where any answer is right."""
    extent = symbolic(size)
    return size if extent is None else value_of(extent.terms, extent.dimensions.sizes)


def evaluate(size: int, sizes: Mapping[str, int]) -> int:
    """The size when the dimensions have these sizes."""
    extent = symbolic(size)
    return size if extent is None else value_of(extent.terms, sizes)


def decide(left: int, relation: Relation, right: int) -> bool | None:
    """Whether the relation holds, if the expressions, the bounds of the dimensions or what was
    asked before decide it; nothing is recorded.
    """
    if not is_symbolic(left) and not is_symbolic(right):
        return relation.holds(left, right)
    difference = symbolic(left - right)
    if difference is None:
        return relation.holds(left - right, 0)
    facts = difference.dimensions.facts
    low, high = facts.bounds(difference.terms)
    if relation is Relation.LT:
        return True if high < 0 else False if low >= 0 else None
    if relation is Relation.LE:
        return True if high <= 0 else False if low > 0 else None
    if low == high == 0:
        return relation is Relation.EQ
    if low > 0 or high < 0 or facts.is_unequal(difference.terms):
        return relation is Relation.NE
    return None


def chosen(function: str, left: int, right: int) -> int:
    """The larger or the smaller of two (`max`, `min`), which asks nothing."""
    if decide(left, Relation.LE, right):
        return right if function == "max" else left
    if decide(right, Relation.LE, left):
        return left if function == "max" else right
    extent = symbolic(left if is_symbolic(left) else right)
    assert extent is not None
    atom = Divided(function, polynomial(left), polynomial(right))
    return as_size({(atom,): 1}, extent.dimensions)


def polynomial(size: int) -> Polynomial:
    extent = symbolic(size)
    return {(): size} if extent is None else extent.terms


def as_size(terms: Polynomial, dimensions: Dimensions) -> int:
    """A polynomial as a size: a number if it is constant by what is known."""
    left = {key: factor for key, factor in dimensions.facts.simplified(terms).items() if factor}
    if not left:
        return 0
    if left.keys() == {()}:
        return left[()]
    return cast(int, Extent(left, dimensions))


def _divided(left: int, right: int, dimensions: Dimensions) -> tuple[int, int]:
    """Quotient and remainder: what divides evenly comes out as terms, the rest as one atom."""
    left, right = (as_size(polynomial(size), dimensions) for size in (left, right))
    if not is_symbolic(left) and not is_symbolic(right):
        return divmod(left, right)
    if right == 0:
        raise ZeroDivisionError(f"{left!s} divided by zero")
    by = polynomial(right)
    if len(by) == 1:
        ((key, factor),) = by.items()
        quotient, remainder = (
            as_size(part, dimensions) for part in divided_by_term(polynomial(left), key, factor)
        )
    else:
        whole, rest = (as_size(part, dimensions) for part in long_division(polynomial(left), by))
        if decide(0, Relation.LE, rest) and decide(rest, Relation.LT, right):
            return whole, rest
        if decide(rest, Relation.LT, 0) and decide(-right, Relation.LE, rest):
            # (3 * by - 1) / by = 2, and by - 1 is left.
            return whole - 1, rest + right
        quotient, remainder = 0, left
    if not is_symbolic(remainder) and not is_symbolic(right):
        return quotient + remainder // right, remainder % right
    low, high = dimensions.facts.bounds(polynomial(remainder))
    least, _ = dimensions.facts.bounds(polynomial(right))
    # Where the sign is not known, it is asked for; a divisor that is not positive is for one size.
    if low < 0 and (high <= 0 or remainder < 0):
        # Rounding up, as in -(-a // b): division of what is not negative is alike everywhere.
        up = (-remainder + right - 1) // right
        return quotient - up, remainder + up * right
    if low >= 0 and high < least:
        return quotient, remainder
    if least <= 0 and right <= 0:
        return divmod(int(left), int(right))
    modulo = Divided("%", polynomial(remainder), polynomial(right))
    inner = only_quotient(polynomial(remainder))
    if inner is None:
        division = Divided("/", polynomial(remainder), polynomial(right))
    else:
        # (a / b) / c = a / (b * c)
        division = Divided("/", inner.left, polynomial(as_size(inner.right, dimensions) * right))
    return (
        quotient + as_size({(division,): 1}, dimensions),
        as_size({(modulo,): 1}, dimensions),
    )


def _c_text(terms: Polynomial) -> str:
    """An expression of C, in parentheses, since it may stand in a product. A dimension may have the
    name of anything in a kernel, so it gets a prefix there.
    """
    text = text_of(terms, _c_atom)
    if len(terms) == 1:
        ((key, factor),) = terms.items()
        if not key or (len(key) == 1 and factor == 1):
            return text
    return f"({text})"


def _c_atom(atom: Atom) -> str:
    if isinstance(atom, str):
        return C_PREFIX + atom
    left, right = _c_text(atom.left), _c_text(atom.right)
    if atom.function in ("max", "min"):
        sign = ">" if atom.function == "max" else "<"
        return f"({left} {sign} {right} ? {left} : {right})"
    return f"({left} {atom.function} {right})"
