"""Building scalar expressions, with the obvious simplifications done on the way."""

from __future__ import annotations

import math
from collections.abc import Iterable

from whence.extent import Relation, decide, is_symbolic
from whence.kernels.index import Index
from whence.kernels.ir import Expr, Fn, Literal, Load, Op, Position
from whence.ops.quantised.quantise import integer_range
from whence.types import DType

_HALF = (DType.F16, DType.BF16)
_PLUS_1 = {Fn.ERF: Fn.ERF_PLUS_1, Fn.TANH: Fn.TANH_PLUS_1}
_COMPARISONS = (Fn.LT, Fn.LE, Fn.EQ, Fn.AND, Fn.OR, Fn.NOT, Fn.ISNAN, Fn.ISINF)


def compute_type(dtype: DType) -> DType:
    """The type arithmetic on `dtype` is done in: half-precision values are computed in single and
    rounded when stored.
    """
    return DType.F32 if dtype in _HALF else dtype


def number(value: float, dtype: DType) -> Literal:
    """A number in this type; one that is known at run time stays an expression."""
    if is_symbolic(value):
        return Literal(value, dtype)
    return Literal(float(value) if dtype.is_float else int(value), dtype)


def identity(fn: Fn, dtype: DType) -> Literal:
    """What a sum, a product, a maximum or a minimum starts from."""
    if fn in (Fn.ADD, Fn.MUL):
        return number(int(fn is Fn.MUL), dtype)
    if dtype.is_float:
        return Literal(-math.inf if fn is Fn.MAX else math.inf, dtype)
    low, high = (0, 1) if dtype is DType.BOOL else integer_range(dtype)
    return Literal(low if fn is Fn.MAX else high, dtype)


def apply(fn: Fn, *args: Expr, dtype: DType | None = None) -> Expr:
    """A scalar function of expressions. The result has the first argument's type, comparisons give
    bool.
    """
    kind = DType.BOOL if fn in _COMPARISONS else dtype or args[0].dtype
    if fn is Fn.ADD and kind is DType.F32:
        for one, other in (args, args[::-1]):
            # Of a number near 1 the sum takes only the first digits, so that fewer will do.
            is_one = isinstance(one, Literal) and one.value == 1
            if is_one and isinstance(other, Op) and other.fn in _PLUS_1:
                return Op(_PLUS_1[other.fn], other.args, kind)
    return Op(fn, args, kind)


def cast(value: Expr, dtype: DType) -> Expr:
    if value.dtype is dtype:
        return value
    if isinstance(value, Literal) and dtype is not DType.BOOL and value.dtype is not DType.STRING:
        return number(value.value, dtype)
    return Op(Fn.CAST, (value,), dtype)


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    if isinstance(condition, Literal):
        return then if condition.value else otherwise
    return Op(Fn.SELECT, (condition, then, otherwise), then.dtype)


def choose(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """`select` between values that may both be computed: neither side reads what the condition
    guards.
    """
    if isinstance(condition, Literal):
        return then if condition.value else otherwise
    return Op(Fn.CHOOSE, (condition, then, otherwise), then.dtype)


def load(buffer: str, index: Index, dtype: DType) -> Expr:
    """A value from memory, in the type arithmetic is done in."""
    return cast(Load(buffer, index, dtype), compute_type(dtype))


def position(index: Index, dtype: DType = DType.I64) -> Expr:
    if not index.terms:
        return Literal(index.const, dtype)
    return cast(Position(index), dtype)


def below(index: Index, limit: int) -> Expr:
    """`index < limit`, decided at compile time where the range allows."""
    low, high = index.bounds()
    if decide(high, Relation.LT, limit):
        return Literal(True, DType.BOOL)
    if decide(limit, Relation.LE, low):
        return Literal(False, DType.BOOL)
    return Op(Fn.LT, (Position(_leading(index, limit)), Literal(limit, DType.I64)), DType.BOOL)


def _leading(index: Index, limit: int) -> Index:
    """The index without those of its last digits that cannot decide whether it is below a limit:
    `16·i + j < 32` says nothing about `j < 16`.
    """
    rest = limit - index.const
    if is_symbolic(rest) or any(is_symbolic(factor) or factor < 0 for _, factor in index.terms):
        return index
    terms = sorted(index.terms, key=lambda term: term[1])
    for count in range(len(terms) - 1, 0, -1):
        step = math.gcd(rest, *(factor for _, factor in terms[count:]))
        low, high = Index(0, tuple(terms[:count])).bounds()
        if decide(0, Relation.LE, low) and decide(high, Relation.LT, step):
            leading = set(terms[count:])
            return Index(index.const, tuple(term for term in index.terms if term in leading))
    return index


def within(index: Index, low: int, high: int) -> Expr:
    """`low <= index < high`."""
    upper = below(index, high)
    least, most = index.bounds()
    if decide(low, Relation.LE, least):
        return upper
    if decide(most, Relation.LT, low):
        return Literal(False, DType.BOOL)
    lower = Op(Fn.LE, (Literal(low, DType.I64), Position(index)), DType.BOOL)
    return both(lower, upper)


def precedes(x: Expr, y: Expr) -> Expr:
    """`x < y` in an order of all numbers, in which a NaN is larger than every other."""
    is_less = apply(Fn.LT, x, y)
    if not x.dtype.is_float:
        return is_less
    only_behind = both(apply(Fn.ISNAN, y), apply(Fn.NOT, apply(Fn.ISNAN, x)))
    return apply(Fn.OR, is_less, only_behind)


def all_of(conditions: Iterable[Expr]) -> Expr:
    total: Expr = Literal(True, DType.BOOL)
    for condition in conditions:
        total = both(total, condition)
    return total


def both(left: Expr, right: Expr) -> Expr:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Literal):
            return other if one.value else one
    return Op(Fn.AND, (left, right), DType.BOOL)
