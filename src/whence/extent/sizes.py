"""Questions for code that knows that sizes may be expressions: none of them becomes a guard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from whence.extent.dimensions import Dimensions
from whence.extent.expression import chosen, decide, estimate, is_symbolic, polynomial, symbolic
from whence.extent.facts import Relation
from whence.extent.polynomial import names_in


def described(size: object) -> str:
    """A size for a message: what it is in the call that is compiled for, and in the model's
    words.
    """
    return f"{estimate(cast(int, size))} ({size!s})" if is_symbolic(size) else str(size)


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
    return chosen("max", left, right)


def smaller(left: int, right: int) -> int:
    """The smaller of two, which asks nothing."""
    return chosen("min", left, right)


def names(size: int) -> set[str]:
    """The dimensions that a size depends on."""
    return names_in(polynomial(size))


def dimensions_of(sizes: Iterable[object]) -> Dimensions | None:
    """The dimensions that some of the sizes are expressions over; `None` if all are numbers."""
    found = (extent for size in sizes if (extent := symbolic(size)) is not None)
    return next((extent.dimensions for extent in found), None)
