"""Arithmetic, comparison, logic and bits, element by element with NumPy's broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import (
    Call,
    Facts,
    Infer,
    Neutral,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
)
from whence.ops.formula import Function, X, Y, apply
from whence.ops.neural.erf import erf
from whence.ops.operand import CONDITION, DATA, named, variadic
from whence.ops.operand import X as OPERAND
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
from whence.types import TensorType, ValueType

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
    """base ** exponent in the base's type. Whole numbers to a negative or broken power go through
    float64 and truncate.
    """
    if base.dtype.kind in "iu" and (exponent.dtype.kind not in "iu" or bool((exponent < 0).any())):
        return np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(base.dtype)
    return np.asarray(np.power(widen(base), widen(exponent))).astype(base.dtype, copy=False)


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


def clip(x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
    """x within [low, high]; when the bounds cross, the upper one wins. NaN stays NaN."""
    if low is not None:
        x = np.maximum(x, low.reshape(()))
    if high is not None:
        x = np.minimum(x, high.reshape(()))
    return np.asarray(x)


def _modulo(call: Call) -> tuple[Value]:
    function = np.fmod if get_int(call.attrs, "fmod", 0) else np.remainder
    return (function(tensor(call, 0), tensor(call, 1)),)


def _bit_shift(call: Call) -> tuple[Value]:
    direction = get_str(call.attrs, "direction", "")
    if direction not in {"LEFT", "RIGHT"}:
        raise ModelError(f"{call.op}: direction must be LEFT or RIGHT, found {direction!r}")
    return (shift_bits(tensor(call, 0), tensor(call, 1), direction == "LEFT"),)


def _clip(call: Call) -> tuple[Value]:
    return (clip(tensor(call, 0), optional_tensor(call, 1), optional_tensor(call, 2)),)


def _is_inf(call: Call) -> tuple[Value]:
    x = tensor(call, 0)
    found = np.zeros(x.shape, np.bool_)
    if get_int(call.attrs, "detect_positive", 1):
        found |= np.isinf(x) & (x > 0)
    if get_int(call.attrs, "detect_negative", 1):
        found |= np.isinf(x) & (x < 0)
    return (found,)


def _mean(call: Call) -> tuple[Value]:
    operands = [tensor(call, index) for index in range(len(call.inputs))]
    total = functools.reduce(np.add, (widen(operand) for operand in operands))
    return (narrow(np.asarray(total / np.asarray(len(operands), total.dtype)), operands[0].dtype),)


def _where(call: Call) -> tuple[Value]:
    return (np.where(tensor(call, 0), tensor(call, 1), tensor(call, 2)),)


def _identity(call: Call) -> tuple[Value]:
    return (call.inputs[0],)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(np.ones((), x.dtype), x))


def _unary(
    name: str,
    function: _Function,
    *,
    flops: int = 1,
    infer: Infer = same_type,
    pattern: Pattern = Pattern.ELEMWISE,
    widened: bool = False,
    **facts: Unpack[Facts],
) -> OpDef:
    """An operator of one input. `widened` functions are not NumPy's own and get narrow floats as
    float32.
    """

    def reference(call: Call) -> tuple[Value]:
        x = tensor(call, 0)
        return (narrow(np.asarray(function(widen(x))), x.dtype) if widened else function(x),)

    facts.setdefault("operands", OPERAND)
    return OpDef(name, pattern, OpClass.ELEMENTWISE, infer, reference, flops, **facts)


def _binary(
    name: str,
    function: _Function,
    *,
    infer: Infer = broadcast,
    commutative: bool = False,
    flops: int = 1,
    **facts: Unpack[Facts],
) -> OpDef:
    def reference(call: Call) -> tuple[Value]:
        return (function(tensor(call, 0), tensor(call, 1)),)

    facts.setdefault("operands", named("A", "B"))
    return OpDef(
        name,
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        infer,
        reference,
        flops,
        commutative,
        **facts,
    )


def _variadic(name: str, function: _Function, **facts: Unpack[Facts]) -> OpDef:
    def reference(call: Call) -> tuple[Value]:
        return (
            functools.reduce(function, (tensor(call, index) for index in range(len(call.inputs)))),
        )

    facts.setdefault("operands", variadic("data_0"))
    return OpDef(
        name,
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        reference,
        flops=_variadic_flops,
        commutative=True,
        **facts,
    )


def _variadic_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    count = outputs[0].elements if isinstance(outputs[0], TensorType) else None
    return None if count is None else count * max(len(query.types) - 1, 1)


def _check_clip(query: TypeQuery) -> None:
    demand_numbers(query, 0)
    for index in (1, 2):
        demand_one(query, index, "a bound")
        demand_same_elements(query, index, 0)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "Identity",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE,
        identity,
        _identity,
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
    _unary(
        "Abs",
        np.abs,
        formula=apply(Function.ABS, X),
        traits=Trait.EXACT | Trait.IDEMPOTENT | Trait.NOT_NEGATIVE,
    ),
    _unary(
        "Neg",
        np.negative,
        formula=apply(Function.NEG, X),
        traits=Trait.EXACT,
        involution="-(-x) = x",
    ),
    _unary(
        "Sign",
        np.sign,
        formula=apply(Function.SIGN, X),
        operands=named("input"),
        traits=Trait.EXACT | Trait.IDEMPOTENT,
    ),
    _unary("Ceil", np.ceil, formula=apply(Function.CEIL, X), traits=Trait.EXACT | Trait.IDEMPOTENT),
    _unary(
        "Floor", np.floor, formula=apply(Function.FLOOR, X), traits=Trait.EXACT | Trait.IDEMPOTENT
    ),
    _unary(
        "Round", np.rint, formula=apply(Function.ROUND, X), traits=Trait.EXACT | Trait.IDEMPOTENT
    ),
    _unary(
        "Reciprocal", _reciprocal, formula=1 / X, involution="1 / (1 / x) = x", costs_like="Div"
    ),
    _unary(
        "Sqrt",
        np.sqrt,
        formula=apply(Function.SQRT, X),
        traits=Trait.NOT_NEGATIVE,
        costs_like="Sqrt",
    ),
    _unary(
        "Exp",
        np.exp,
        formula=apply(Function.EXP, X),
        flops=4,
        operands=named("input"),
        traits=Trait.NOT_NEGATIVE | Trait.EXPONENTIAL,
        costs_like="Exp",
    ),
    _unary(
        "Log",
        np.log,
        formula=apply(Function.LOG, X),
        flops=4,
        operands=named("input"),
        costs_like="Log",
    ),
    _unary(
        "Sin",
        np.sin,
        formula=apply(Function.SIN, X),
        flops=4,
        operands=named("input"),
        costs_like="Sin",
    ),
    _unary(
        "Cos",
        np.cos,
        formula=apply(Function.COS, X),
        flops=4,
        operands=named("input"),
        costs_like="Sin",
    ),
    _unary(
        "Tan",
        np.tan,
        formula=apply(Function.TAN, X),
        flops=4,
        operands=named("input"),
        costs_like="Sin",
    ),
    _unary(
        "Asin",
        np.arcsin,
        formula=apply(Function.ASIN, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Acos",
        np.arccos,
        formula=apply(Function.ACOS, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Atan",
        np.arctan,
        formula=apply(Function.ATAN, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Sinh",
        np.sinh,
        formula=apply(Function.SINH, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Cosh",
        np.cosh,
        formula=apply(Function.COSH, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Asinh",
        np.arcsinh,
        formula=apply(Function.ASINH, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Acosh",
        np.arccosh,
        formula=apply(Function.ACOSH, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Atanh",
        np.arctanh,
        formula=apply(Function.ATANH, X),
        flops=4,
        operands=named("input"),
        costs_like="Atan",
    ),
    _unary(
        "Erf",
        erf,
        formula=apply(Function.ERF, X),
        flops=8,
        widened=True,
        operands=named("input"),
        costs_like="Erf",
    ),
    _unary("Not", np.logical_not, formula=apply(Function.NOT, X), involution="not not x = x"),
    _unary("BitwiseNot", np.invert, formula=apply(Function.BIT_NOT, X), involution="not not x = x"),
    _unary("IsNaN", np.isnan, formula=apply(Function.ISNAN, X), infer=predicate),
    OpDef("IsInf", Pattern.ELEMWISE, OpClass.ELEMENTWISE, predicate, _is_inf, operands=OPERAND),
    OpDef(
        "Clip",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE | OpClass.ACTIVATION,
        same_type,
        _clip,
        flops=2,
        check=_check_clip,
        operands=named("input", "min", "max"),
        traits=Trait.EXACT | Trait.BOUNDS,
    ),
    _binary(
        "Add",
        np.add,
        formula=apply(Function.ADD, X, Y),
        commutative=True,
        traits=Trait.ADDS,
        symbol="+",
        neutral=Neutral(0, "x + 0 = x"),
    ),
    _binary(
        "Sub",
        np.subtract,
        formula=apply(Function.SUB, X, Y),
        symbol="-",
        neutral=Neutral(0, "x - 0 = x"),
    ),
    _binary(
        "Mul",
        np.multiply,
        formula=apply(Function.MUL, X, Y),
        commutative=True,
        traits=Trait.SCALES,
        symbol="·",
        neutral=Neutral(1, "x * 1 = x"),
    ),
    _binary(
        "Div",
        divide,
        formula=apply(Function.DIV, X, Y),
        traits=Trait.SCALES,
        symbol="/",
        neutral=Neutral(1, "x / 1 = x"),
        costs_like="Div",
    ),
    _binary(
        "Pow",
        raise_to,
        infer=power,
        flops=8,
        operands=named("X", "Y"),
        neutral=Neutral(1, "x ^ 1 = x"),
        costs_like="Pow",
    ),
    OpDef(
        "Mod",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        _modulo,
        operands=named("A", "B"),
        costs_like="Mod",
    ),
    _variadic("Sum", np.add, formula=apply(Function.ADD, X, Y), symbol="+", traits=Trait.ADDS),
    _variadic(
        "Max",
        np.maximum,
        formula=apply(Function.MAX, X, Y),
        traits=Trait.SELECTS | Trait.COMPARES | Trait.EXACT,
    ),
    _variadic(
        "Min",
        np.minimum,
        formula=apply(Function.MIN, X, Y),
        traits=Trait.SELECTS | Trait.COMPARES | Trait.EXACT,
    ),
    OpDef(
        "Mean",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        _mean,
        flops=_variadic_flops,
        commutative=True,
        operands=variadic("data_0"),
    ),
    _binary("Equal", np.equal, formula=apply(Function.EQ, X, Y), infer=compare, commutative=True),
    _binary("Greater", np.greater, formula=Y < X, infer=compare),
    _binary("GreaterOrEqual", np.greater_equal, formula=apply(Function.LE, Y, X), infer=compare),
    _binary("Less", np.less, formula=apply(Function.LT, X, Y), infer=compare),
    _binary("LessOrEqual", np.less_equal, formula=apply(Function.LE, X, Y), infer=compare),
    _binary(
        "And",
        np.logical_and,
        formula=apply(Function.AND, X, Y),
        infer=compare,
        commutative=True,
        neutral=Neutral(True, "x and true = x"),
    ),
    _binary(
        "Or",
        np.logical_or,
        formula=apply(Function.OR, X, Y),
        infer=compare,
        commutative=True,
        neutral=Neutral(False, "x or false = x"),
    ),
    _binary(
        "Xor",
        np.logical_xor,
        formula=apply(Function.XOR, X, Y),
        infer=compare,
        commutative=True,
        neutral=Neutral(False, "x xor false = x"),
    ),
    _binary("BitwiseAnd", np.bitwise_and, formula=apply(Function.BIT_AND, X, Y), commutative=True),
    _binary("BitwiseOr", np.bitwise_or, formula=apply(Function.BIT_OR, X, Y), commutative=True),
    _binary("BitwiseXor", np.bitwise_xor, formula=apply(Function.BIT_XOR, X, Y), commutative=True),
    OpDef(
        "BitShift",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        _bit_shift,
        operands=named("X", "Y"),
    ),
    # NNVM counts the choice among the injective operators, so it ends a group that a convolution
    # leads.
    OpDef(
        "Where",
        Pattern.INJECTIVE,
        OpClass.ELEMENTWISE,
        where,
        _where,
        operands=named(condition=CONDITION, X=DATA, Y=DATA),
        traits=Trait.SELECTS | Trait.EXACT,
    ),
)
