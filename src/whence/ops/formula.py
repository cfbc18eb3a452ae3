"""Formulas: what an elementwise operator computes, as an expression of its operands and its
parameters.

One formula is the whole arithmetic of an operator: the reference implementation evaluates it,
kernels write it, and it says what the operator costs. `Formula`s are combined like numbers:

    select(X < 0, X * parameter("alpha", 0.01), X)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whence.ops.neural.erf import erf


class Function(enum.Enum):
    """The functions that formulas apply. Kernels know each by the same name."""

    ADD = enum.auto()
    SUB = enum.auto()
    MUL = enum.auto()
    DIV = enum.auto()
    MAX = enum.auto()
    MIN = enum.auto()
    LT = enum.auto()
    LE = enum.auto()
    EQ = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    NOT = enum.auto()
    BIT_AND = enum.auto()
    BIT_OR = enum.auto()
    BIT_XOR = enum.auto()
    BIT_NOT = enum.auto()
    CHOOSE = enum.auto()
    ABS = enum.auto()
    NEG = enum.auto()
    SIGN = enum.auto()
    FLOOR = enum.auto()
    CEIL = enum.auto()
    ROUND = enum.auto()
    ISNAN = enum.auto()
    SQRT = enum.auto()
    EXP = enum.auto()
    EXPM1 = enum.auto()
    LOG = enum.auto()
    SIN = enum.auto()
    COS = enum.auto()
    TAN = enum.auto()
    ASIN = enum.auto()
    ACOS = enum.auto()
    ATAN = enum.auto()
    SINH = enum.auto()
    COSH = enum.auto()
    TANH = enum.auto()
    ASINH = enum.auto()
    ACOSH = enum.auto()
    ATANH = enum.auto()
    ERF = enum.auto()
    SIGMOID = enum.auto()
    """1 / (1 + exp(-x))"""
    SOFTPLUS = enum.auto()
    """log(1 + exp(x))"""


class Formula:
    """An expression. Numbers may stand where formulas do."""

    __slots__ = ()

    def __add__(self, other: Formula | float) -> Formula:
        return Application(Function.ADD, (self, as_formula(other)))

    def __radd__(self, other: float) -> Formula:
        return Application(Function.ADD, (Number(other), self))

    def __sub__(self, other: Formula | float) -> Formula:
        return Application(Function.SUB, (self, as_formula(other)))

    def __rsub__(self, other: float) -> Formula:
        return Application(Function.SUB, (Number(other), self))

    def __mul__(self, other: Formula | float) -> Formula:
        return Application(Function.MUL, (self, as_formula(other)))

    def __rmul__(self, other: float) -> Formula:
        return Application(Function.MUL, (Number(other), self))

    def __truediv__(self, other: Formula | float) -> Formula:
        return Application(Function.DIV, (self, as_formula(other)))

    def __rtruediv__(self, other: float) -> Formula:
        return Application(Function.DIV, (Number(other), self))

    def __lt__(self, other: Formula | float) -> Formula:
        return Application(Function.LT, (self, as_formula(other)))

    def __gt__(self, other: Formula | float) -> Formula:
        return Application(Function.LT, (as_formula(other), self))


@dataclass(frozen=True, slots=True)
class Operand(Formula):
    """An operand of the operator, by position."""

    index: int


@dataclass(frozen=True, slots=True)
class Parameter(Formula):
    """An attribute of the operator, and its value where the model gives none."""

    name: str
    default: float


@dataclass(frozen=True, slots=True)
class Number(Formula):
    value: float


@dataclass(frozen=True, slots=True)
class Application(Formula):
    function: Function
    arguments: tuple[Formula, ...]


X, Y = Operand(0), Operand(1)


def as_formula(value: Formula | float) -> Formula:
    return value if isinstance(value, Formula) else Number(value)


def apply(function: Function, *arguments: Formula | float) -> Formula:
    return Application(function, tuple(map(as_formula, arguments)))


def parameter(name: str, default: float) -> Formula:
    return Parameter(name, default)


def maximum(a: Formula | float, b: Formula | float) -> Formula:
    return apply(Function.MAX, a, b)


def minimum(a: Formula | float, b: Formula | float) -> Formula:
    return apply(Function.MIN, a, b)


def limited(x: Formula, low: Formula | float, high: Formula | float) -> Formula:
    return minimum(maximum(x, low), high)


def select(condition: Formula, then: Formula | float, otherwise: Formula | float) -> Formula:
    return apply(Function.CHOOSE, condition, then, otherwise)


def parameters(formula: Formula) -> dict[str, float]:
    """The attributes that a formula reads, with their defaults."""
    return {part.name: part.default for part in _parts(formula) if isinstance(part, Parameter)}


_OF_REALS = frozenset({
    Function.ROUND, Function.SQRT, Function.EXP, Function.EXPM1, Function.LOG, Function.SIGMOID,
    Function.SOFTPLUS, Function.SIN, Function.COS, Function.TAN, Function.ASIN, Function.ACOS,
    Function.ATAN, Function.SINH, Function.COSH, Function.TANH, Function.ASINH, Function.ACOSH,
    Function.ATANH,
})  # fmt: skip


def needs_reals(formula: Formula) -> bool:
    """Does it calculate with fractions, which whole numbers would cut off?"""
    return any(_makes_fractions(part) for part in _parts(formula))


def _makes_fractions(part: Formula) -> bool:
    if isinstance(part, Number):
        return part.value % 1 != 0
    if isinstance(part, Application):
        # A quotient of operands is what integers have too; one inside a formula is a step of it.
        within = not all(isinstance(argument, Operand) for argument in part.arguments)
        return part.function in _OF_REALS or (part.function is Function.DIV and within)
    return isinstance(part, Parameter)


def operand_count(formula: Formula) -> int:
    """How many operands a formula reads."""
    return max((1 + part.index for part in _parts(formula) if isinstance(part, Operand)), default=0)


def functions(formula: Formula) -> Iterator[Function]:
    """The functions that a formula applies, as often as it does."""
    return (part.function for part in _parts(formula) if isinstance(part, Application))


def operations(formula: Formula) -> int:
    """The arithmetic operations of a formula, functions counted by what they are made of."""
    return sum(_OPERATIONS.get(each, 1) for each in functions(formula))


def evaluate(
    formula: Formula, operands: Sequence[np.ndarray], given: Mapping[str, float]
) -> np.ndarray:
    """The value of a formula, in the type of its operands; `given` are parameters that do not have
    their defaults.
    """
    number = float if operands[0].dtype.kind == "f" else int

    def value(part: Formula) -> np.ndarray | float:
        if isinstance(part, Operand):
            return operands[part.index]
        if isinstance(part, Parameter):
            return number(given.get(part.name, part.default))
        if isinstance(part, Number):
            return number(part.value)
        assert isinstance(part, Application)
        return _NUMPY[part.function](*map(value, part.arguments))

    return np.asarray(value(formula))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow at either end, and relatively exact where it is tiny."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay)).astype(x.dtype, copy=False)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype, copy=False)


def _parts(formula: Formula) -> Iterator[Formula]:
    yield formula
    if isinstance(formula, Application):
        for argument in formula.arguments:
            yield from _parts(argument)


_OPERATIONS: Mapping[Function, int] = {
    Function.LT: 0,
    Function.EXP: 4,
    Function.EXPM1: 4,
    Function.LOG: 4,
    Function.TANH: 6,
    Function.SIGMOID: 6,
    Function.SOFTPLUS: 8,
    Function.ERF: 8,
    **dict.fromkeys((Function.SIN, Function.COS, Function.TAN, Function.ASIN, Function.ACOS), 4),
    **dict.fromkeys((Function.ATAN, Function.SINH, Function.COSH, Function.ASINH), 4),
    **dict.fromkeys((Function.ACOSH, Function.ATANH), 4),
}
_NUMPY: Mapping[Function, Callable[..., np.ndarray]] = {
    Function.ADD: np.add,
    Function.SUB: np.subtract,
    Function.MUL: np.multiply,
    Function.DIV: np.divide,
    Function.MAX: np.maximum,
    Function.MIN: np.minimum,
    Function.LT: np.less,
    Function.LE: np.less_equal,
    Function.EQ: np.equal,
    Function.AND: np.logical_and,
    Function.OR: np.logical_or,
    Function.XOR: np.logical_xor,
    Function.NOT: np.logical_not,
    Function.BIT_AND: np.bitwise_and,
    Function.BIT_OR: np.bitwise_or,
    Function.BIT_XOR: np.bitwise_xor,
    Function.BIT_NOT: np.invert,
    Function.CHOOSE: np.where,
    Function.ABS: np.abs,
    Function.NEG: np.negative,
    Function.SIGN: np.sign,
    Function.FLOOR: np.floor,
    Function.CEIL: np.ceil,
    Function.ROUND: np.rint,
    Function.ISNAN: np.isnan,
    Function.SQRT: np.sqrt,
    Function.EXP: np.exp,
    Function.EXPM1: np.expm1,
    Function.LOG: np.log,
    Function.SIN: np.sin,
    Function.COS: np.cos,
    Function.TAN: np.tan,
    Function.ASIN: np.arcsin,
    Function.ACOS: np.arccos,
    Function.ATAN: np.arctan,
    Function.SINH: np.sinh,
    Function.COSH: np.cosh,
    Function.TANH: np.tanh,
    Function.ASINH: np.arcsinh,
    Function.ACOSH: np.arccosh,
    Function.ATANH: np.arctanh,
    Function.ERF: erf,
    Function.SIGMOID: sigmoid,
    Function.SOFTPLUS: _softplus,
}
