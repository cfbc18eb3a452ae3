"""Arithmetic, comparison, logic and bits, element by element with NumPy's broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from whence.ops.attributes import get_int, get_str
from whence.ops.definition import (
    Call,
    Facts,
    Flops,
    Infer,
    Neutral,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
    count,
)
from whence.ops.formula import (
    Formula,
    Function,
    X,
    Y,
    apply,
    erf,
    evaluate,
    maximum,
    minimum,
    operand_count,
    operations,
)
from whence.ops.operand import CONDITION, DATA, UNARY, named, variadic
from whence.ops.operands.checks import demand_numbers, demand_one, demand_same_elements
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import (
    broadcast,
    compare,
    identity,
    power,
    predicate,
    same_type,
    where,
)
from whence.types import ValueType

_Function: TypeAlias = Callable[..., Any]


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; whole numbers truncate towards zero, as in C."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    quotient = np.asarray(np.floor_divide(a, b))
    if a.dtype.kind == "i":
        # Rounding down goes one too far when the signs differ and something is left over.
        quotient = quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)))
    return quotient.astype(a.dtype, copy=False)


def raise_to(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """base ** exponent in the base's type. Integers to a negative or fractional power go through
    float64 and truncate.
    """
    if base.dtype.kind in "iu" and (exponent.dtype.kind not in "iu" or bool((exponent < 0).any())):
        return np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(base.dtype)
    return np.asarray(np.power(widen(base), widen(exponent))).astype(base.dtype, copy=False)


def clip(x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
    """x within [low, high]; when the bounds cross, the upper one wins. NaN stays NaN."""
    if low is not None:
        x = np.maximum(x, low.reshape(()))
    if high is not None:
        x = np.minimum(x, high.reshape(()))
    return np.asarray(x)


def _modulo(call: Call) -> Value:
    function = np.fmod if get_int(call.attrs, "fmod", 0) else np.remainder
    return function(tensor(call, 0), tensor(call, 1))


def _clip(call: Call) -> Value:
    return clip(tensor(call, 0), optional_tensor(call, 1), optional_tensor(call, 2))


def _mean(call: Call) -> Value:
    operands = [tensor(call, index) for index in range(len(call.inputs))]
    total = functools.reduce(np.add, (widen(operand) for operand in operands))
    return narrow(np.asarray(total / np.asarray(len(operands), total.dtype)), operands[0].dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return narrow(erf(widen(x)), x.dtype)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(np.ones((), x.dtype), x))


def elementwise(
    name: str,
    formula: Formula,
    function: _Function | None = None,
    /,
    *,
    infer: Infer | None = None,
    flops: Flops | int | None = None,
    **facts: Unpack[Facts],
) -> OpDef:
    """An operator of one operand, or of two or more that are broadcast and combined one after the
    other. Its reference evaluates the formula, or `function` where NumPy has more to heed than the
    formula says.
    """
    is_unary = operand_count(formula) == 1
    compute = function or (lambda *given: evaluate(formula, given, {}))

    def reference(call: Call) -> Value:
        if is_unary:
            return compute(tensor(call, 0))
        return functools.reduce(compute, (tensor(call, at) for at in range(len(call.inputs))))

    facts.setdefault("operands", UNARY if is_unary else named("A", "B"))
    facts["formula"] = formula
    return OpDef(
        name,
        Pattern.ELEMWISE if is_unary else Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer or (same_type if is_unary else broadcast),
        reference,
        max(operations(formula), 1) if flops is None else flops,
        **facts,
    )


def _variadic(name: str, formula: Formula, /, **facts: Unpack[Facts]) -> OpDef:
    facts["operands"], facts["commutative"] = variadic("data_0"), True
    return elementwise(name, formula, flops=_variadic_flops, **facts)


def _variadic_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    return count(outputs[0]) * max(len(query.types) - 1, 1)


def _check_clip(query: TypeQuery) -> None:
    demand_numbers(query, 0)
    for index in (1, 2):
        demand_one(query, index, "a bound")
        demand_same_elements(query, index, 0)


def shift_bits(x: np.ndarray, amount: np.ndarray, left: bool) -> np.ndarray:
    """Shift within the type. An amount below 0 or past the last bit leaves only the fill: the sign
    bit to the right, 0 to the left.
    """
    bits = x.dtype.itemsize * 8
    beyond = amount >= bits if amount.dtype.kind == "u" else (amount < 0) | (amount >= bits)
    amount = np.where(beyond, 0, amount).astype(x.dtype)
    fill = (
        np.zeros((), x.dtype)
        if left or x.dtype.kind == "u"
        else np.where(x < 0, -1, 0).astype(x.dtype)
    )
    return np.where(
        beyond, fill, np.left_shift(x, amount) if left else np.right_shift(x, amount)
    ).astype(x.dtype, copy=False)


def _bit_shift(call: Call) -> Value:
    left = get_str(call.attrs, "direction", "") == "LEFT"
    return shift_bits(tensor(call, 0), tensor(call, 1), left)


def _is_inf(call: Call) -> Value:
    x = tensor(call, 0)
    found = np.zeros(x.shape, np.bool_)
    if get_int(call.attrs, "detect_positive", 1):
        found |= np.isinf(x) & (x > 0)
    if get_int(call.attrs, "detect_negative", 1):
        found |= np.isinf(x) & (x < 0)
    return found


def _logical(name: str, function: Function, neutral: Neutral) -> OpDef:
    formula = apply(function, X, Y)
    return elementwise(name, formula, infer=compare, commutative=True, neutral=neutral)


_OF_INPUT = (
    *("Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
    *("Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
)
"""Operators that are called like the function they apply."""
_ROUNDS = Trait.EXACT | Trait.IDEMPOTENT
_EXTREME = Trait.SELECTS | Trait.COMPARES | Trait.EXACT

OPS: tuple[OpDef, ...] = (
    OpDef(
        "Identity",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE,
        infer=identity,
        reference=lambda call: call.inputs[0],
        flops=0,
        formula=X,
        operands=named("input"),
        traits=Trait.VIEW
        | Trait.STRIDED
        | Trait.PERMUTES
        | Trait.SELECTS
        | Trait.MOVES
        | Trait.EXACT,
    ),
    elementwise(
        "Abs",
        apply(Function.ABS, X),
        traits=Trait.EXACT | Trait.IDEMPOTENT | Trait.NOT_NEGATIVE,
    ),
    elementwise("Neg", apply(Function.NEG, X), traits=Trait.EXACT, involution="-(-x) = x"),
    elementwise("Sign", apply(Function.SIGN, X), operands=named("input"), traits=_ROUNDS),
    elementwise("Ceil", apply(Function.CEIL, X), traits=_ROUNDS),
    elementwise("Floor", apply(Function.FLOOR, X), traits=_ROUNDS),
    elementwise("Round", apply(Function.ROUND, X), traits=_ROUNDS),
    elementwise("Reciprocal", 1 / X, _reciprocal, involution="1 / (1 / x) = x"),
    elementwise("Sqrt", apply(Function.SQRT, X), traits=Trait.NOT_NEGATIVE),
    elementwise(
        "Exp",
        apply(Function.EXP, X),
        operands=named("input"),
        traits=Trait.NOT_NEGATIVE | Trait.EXPONENTIAL,
    ),
    *(
        elementwise(name, apply(Function[name.upper()], X), operands=named("input"))
        for name in _OF_INPUT
    ),
    elementwise("Erf", apply(Function.ERF, X), _erf, operands=named("input")),
    OpDef(
        "Clip",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE | OpClass.ACTIVATION,
        infer=same_type,
        reference=_clip,
        flops=2,
        check=_check_clip,
        operands=named("input", "min", "max"),
        traits=Trait.EXACT,
    ),
    elementwise(
        "Add",
        X + Y,
        commutative=True,
        traits=Trait.ADDS,
        symbol="+",
        neutral=Neutral(0, "x + 0 = x"),
    ),
    elementwise("Sub", X - Y, symbol="-", neutral=Neutral(0, "x - 0 = x")),
    elementwise(
        "Mul",
        X * Y,
        commutative=True,
        traits=Trait.SCALES,
        symbol="·",
        neutral=Neutral(1, "x * 1 = x"),
    ),
    elementwise(
        "Div", X / Y, divide, traits=Trait.SCALES, symbol="/", neutral=Neutral(1, "x / 1 = x")
    ),
    OpDef(
        "Pow",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer=power,
        reference=lambda call: raise_to(tensor(call, 0), tensor(call, 1)),
        flops=8,
        operands=named("X", "Y"),
        neutral=Neutral(1, "x ^ 1 = x"),
        costs_like="Pow",
    ),
    OpDef(
        "Mod",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer=broadcast,
        reference=_modulo,
        operands=named("A", "B"),
        costs_like="Mod",
    ),
    _variadic("Sum", X + Y, symbol="+", traits=Trait.ADDS),
    _variadic("Max", maximum(X, Y), traits=_EXTREME),
    _variadic("Min", minimum(X, Y), traits=_EXTREME),
    OpDef(
        "Mean",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer=broadcast,
        reference=_mean,
        flops=_variadic_flops,
        commutative=True,
        operands=variadic("data_0"),
    ),
    elementwise("Not", apply(Function.NOT, X), involution="not not x = x"),
    elementwise("BitwiseNot", apply(Function.BIT_NOT, X), involution="not not x = x"),
    elementwise("IsNaN", apply(Function.ISNAN, X), infer=predicate),
    OpDef(
        "IsInf",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE,
        infer=predicate,
        reference=_is_inf,
        operands=UNARY,
    ),
    elementwise("Equal", apply(Function.EQ, X, Y), infer=compare, commutative=True),
    elementwise("Greater", Y < X, infer=compare),
    elementwise("GreaterOrEqual", apply(Function.LE, Y, X), infer=compare),
    elementwise("Less", X < Y, infer=compare),
    elementwise("LessOrEqual", apply(Function.LE, X, Y), infer=compare),
    _logical("And", Function.AND, Neutral(True, "x and true = x")),
    _logical("Or", Function.OR, Neutral(False, "x or false = x")),
    _logical("Xor", Function.XOR, Neutral(False, "x xor false = x")),
    elementwise("BitwiseAnd", apply(Function.BIT_AND, X, Y), commutative=True),
    elementwise("BitwiseOr", apply(Function.BIT_OR, X, Y), commutative=True),
    elementwise("BitwiseXor", apply(Function.BIT_XOR, X, Y), commutative=True),
    OpDef(
        "BitShift",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer=broadcast,
        reference=_bit_shift,
        operands=named("X", "Y"),
    ),
    # NNVM counts the choice among the injective operators, so it ends a group that a convolution
    # leads.
    OpDef(
        "Where",
        Pattern.INJECTIVE,
        OpClass.ELEMENTWISE,
        infer=where,
        reference=lambda call: np.where(tensor(call, 0), tensor(call, 1), tensor(call, 2)),
        operands=named(condition=CONDITION, X=DATA, Y=DATA),
        traits=Trait.SELECTS | Trait.EXACT,
    ),
)
