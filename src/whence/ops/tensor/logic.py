"""Comparison, logic and bits, element by element with NumPy's broadcasting."""

from __future__ import annotations

import numpy as np

from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Call, Neutral, OpClass, OpDef, Pattern, Value
from whence.ops.formula import Function, X, Y, apply
from whence.ops.operand import CONDITION, DATA, UNARY, named
from whence.ops.precision import tensor
from whence.ops.tensor.elementwise import elementwise
from whence.ops.traits import Trait
from whence.ops.types.type_rules import broadcast, compare, predicate, where


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


OPS: tuple[OpDef, ...] = (
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
