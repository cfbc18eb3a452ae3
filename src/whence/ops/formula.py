"""Formulas: what an elementwise operator computes, as an expression of its operands and its
parameters.

One formula is the whole arithmetic of an operator: the reference implementation evaluates it,
kernels write it, and it says what the operator costs. `Formula`s are combined like numbers:

    select(X < 0, X * parameter("alpha", 0.01), X)

Functions are applied by name: `apply(Function.TANH, X)`. `max`, `min` and `if` of Python would ask
whether a formula is true; instead of them there are `maximum`, `minimum` and `select`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class _Evaluation(NamedTuple):
    """How NumPy computes a function, its cost, and whether integers must become floats for it."""

    numpy: Callable[..., np.ndarray]
    operations: int = 1
    of_reals: bool = False


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow at either end, and relatively exact where it is tiny."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay)).astype(x.dtype, copy=False)


def _softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))"""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype, copy=False)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, which NumPy does not have: in float64, rounded once."""
    found = map(math.erf, x.astype(np.float64).reshape(-1).tolist())
    return np.fromiter(found, np.float64, x.size).astype(x.dtype).reshape(x.shape)


class Function(enum.Enum):
    """The functions that formulas apply. Kernels know each by the same name."""

    ADD = _Evaluation(np.add)
    SUB = _Evaluation(np.subtract)
    MUL = _Evaluation(np.multiply)
    DIV = _Evaluation(np.divide)
    MAX = _Evaluation(np.maximum)
    MIN = _Evaluation(np.minimum)
    LT = _Evaluation(np.less, operations=0)
    LE = _Evaluation(np.less_equal)
    EQ = _Evaluation(np.equal)
    AND = _Evaluation(np.logical_and)
    OR = _Evaluation(np.logical_or)
    XOR = _Evaluation(np.logical_xor)
    NOT = _Evaluation(np.logical_not)
    BIT_AND = _Evaluation(np.bitwise_and)
    BIT_OR = _Evaluation(np.bitwise_or)
    BIT_XOR = _Evaluation(np.bitwise_xor)
    BIT_NOT = _Evaluation(np.invert)
    CHOOSE = _Evaluation(np.where)
    ABS = _Evaluation(np.abs)
    NEG = _Evaluation(np.negative)
    SIGN = _Evaluation(np.sign)
    FLOOR = _Evaluation(np.floor)
    CEIL = _Evaluation(np.ceil)
    ROUND = _Evaluation(np.rint, of_reals=True)
    ISNAN = _Evaluation(np.isnan)
    SQRT = _Evaluation(np.sqrt, of_reals=True)
    EXP = _Evaluation(np.exp, operations=4, of_reals=True)
    EXPM1 = _Evaluation(np.expm1, operations=4, of_reals=True)
    LOG = _Evaluation(np.log, operations=4, of_reals=True)
    SIN = _Evaluation(np.sin, operations=4, of_reals=True)
    COS = _Evaluation(np.cos, operations=4, of_reals=True)
    TAN = _Evaluation(np.tan, operations=4, of_reals=True)
    ASIN = _Evaluation(np.arcsin, operations=4, of_reals=True)
    ACOS = _Evaluation(np.arccos, operations=4, of_reals=True)
    ATAN = _Evaluation(np.arctan, operations=4, of_reals=True)
    SINH = _Evaluation(np.sinh, operations=4, of_reals=True)
    COSH = _Evaluation(np.cosh, operations=4, of_reals=True)
    TANH = _Evaluation(np.tanh, operations=6, of_reals=True)
    ASINH = _Evaluation(np.arcsinh, operations=4, of_reals=True)
    ACOSH = _Evaluation(np.arccosh, operations=4, of_reals=True)
    ATANH = _Evaluation(np.arctanh, operations=4, of_reals=True)
    ERF = _Evaluation(erf, operations=8)
    SIGMOID = _Evaluation(sigmoid, operations=6, of_reals=True)
    SOFTPLUS = _Evaluation(_softplus, operations=8, of_reals=True)


class Formula:
    """An expression. Numbers may stand where formulas do."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError(
            "a formula is neither true nor false: write maximum, minimum and select instead of"
            " max, min and if"
        )

    def __neg__(self) -> Formula:
        return Application(Function.NEG, (self,))

    def __abs__(self) -> Formula:
        return Application(Function.ABS, (self,))

    def __add__(self, other: Formula | float) -> Formula:
        return Application(Function.ADD, (self, as_formula(other)))

    def __radd__(self, other: float) -> Formula:
        return Application(Function.ADD, (FormulaNumber(other), self))

    def __sub__(self, other: Formula | float) -> Formula:
        return Application(Function.SUB, (self, as_formula(other)))

    def __rsub__(self, other: float) -> Formula:
        return Application(Function.SUB, (FormulaNumber(other), self))

    def __mul__(self, other: Formula | float) -> Formula:
        return Application(Function.MUL, (self, as_formula(other)))

    def __rmul__(self, other: float) -> Formula:
        return Application(Function.MUL, (FormulaNumber(other), self))

    def __truediv__(self, other: Formula | float) -> Formula:
        return Application(Function.DIV, (self, as_formula(other)))

    def __rtruediv__(self, other: float) -> Formula:
        return Application(Function.DIV, (FormulaNumber(other), self))

    def __lt__(self, other: Formula | float) -> Formula:
        return Application(Function.LT, (self, as_formula(other)))

    def __gt__(self, other: Formula | float) -> Formula:
        return Application(Function.LT, (as_formula(other), self))

    def __le__(self, other: Formula | float) -> Formula:
        return Application(Function.LE, (self, as_formula(other)))

    def __ge__(self, other: Formula | float) -> Formula:
        return Application(Function.LE, (as_formula(other), self))


@dataclass(frozen=True, slots=True)
class FormulaOperand(Formula):
    """An operand of the operator, by position."""

    index: int


@dataclass(frozen=True, slots=True)
class Parameter(Formula):
    """An attribute of the operator, and its value where the model gives none."""

    name: str
    default: float


@dataclass(frozen=True, slots=True)
class FormulaNumber(Formula):
    value: float


@dataclass(frozen=True, slots=True)
class Application(Formula):
    function: Function
    arguments: tuple[Formula, ...]


X, Y = FormulaOperand(0), FormulaOperand(1)


def as_formula(value: Formula | float) -> Formula:
    return value if isinstance(value, Formula) else FormulaNumber(value)


def apply(function: Function, *arguments: Formula | float) -> Application:
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


def needs_reals(formula: Formula) -> bool:
    """Does it calculate with fractions, which whole numbers would cut off?"""
    return any(_makes_fractions(part) for part in _parts(formula))


def _makes_fractions(part: Formula) -> bool:
    if isinstance(part, FormulaNumber):
        return part.value % 1 != 0
    if isinstance(part, Application):
        # A quotient of operands is what integers have too; one inside a formula is a step of it.
        within = not all(isinstance(argument, FormulaOperand) for argument in part.arguments)
        return part.function.value.of_reals or (part.function is Function.DIV and within)
    return isinstance(part, Parameter)


def operand_count(formula: Formula) -> int:
    """How many operands a formula reads."""
    return max(
        (1 + part.index for part in _parts(formula) if isinstance(part, FormulaOperand)), default=0
    )


def functions(formula: Formula) -> Iterator[Function]:
    """The functions that a formula applies, as often as it does."""
    return (part.function for part in _parts(formula) if isinstance(part, Application))


def operations(formula: Formula) -> int:
    """The arithmetic operations of a formula, functions counted by what they are made of."""
    return sum(each.value.operations for each in functions(formula))


def evaluate(
    formula: Formula, operands: Sequence[np.ndarray], given: Mapping[str, float]
) -> np.ndarray:
    """The value of a formula, in the type of its operands; `given` overrides the defaults."""
    return np.asarray(_value(formula, operands, given))


def _value(
    part: Formula, operands: Sequence[np.ndarray], given: Mapping[str, float]
) -> np.ndarray | float:
    if isinstance(part, FormulaOperand):
        return operands[part.index]
    if isinstance(part, Application):
        arguments = (_value(each, operands, given) for each in part.arguments)
        return part.function.value.numpy(*arguments)
    assert isinstance(part, Parameter | FormulaNumber)
    number = float if operands[0].dtype.kind == "f" else int
    return number(
        part.value if isinstance(part, FormulaNumber) else given.get(part.name, part.default)
    )


def _parts(formula: Formula) -> Iterator[Formula]:
    yield formula
    if isinstance(formula, Application):
        for argument in formula.arguments:
            yield from _parts(argument)
