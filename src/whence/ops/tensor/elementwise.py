"""Arithmetic, comparison, logic and bits, element by element with NumPy's broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Call, Infer, OpClass, OpDef, Pattern, TypeQuery, Value
from whence.ops.neural.erf import erf
from whence.ops.precision import narrow, optional_tensor, tensor, widen
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
) -> OpDef:
    """An operator of one input. `widened` functions are not NumPy's own and get narrow floats as
    float32.
    """

    def reference(call: Call) -> tuple[Value]:
        x = tensor(call, 0)
        return (narrow(np.asarray(function(widen(x))), x.dtype) if widened else function(x),)

    return OpDef(name, pattern, OpClass.ELEMENTWISE, infer, reference, flops)


def _binary(
    name: str,
    function: _Function,
    *,
    infer: Infer = broadcast,
    commutative: bool = False,
    flops: int = 1,
) -> OpDef:
    def reference(call: Call) -> tuple[Value]:
        return (function(tensor(call, 0), tensor(call, 1)),)

    return OpDef(name, Pattern.BROADCAST, OpClass.ELEMENTWISE, infer, reference, flops, commutative)


def _variadic(name: str, function: _Function) -> OpDef:
    def reference(call: Call) -> tuple[Value]:
        return (
            functools.reduce(function, (tensor(call, index) for index in range(len(call.inputs)))),
        )

    return OpDef(
        name,
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        reference,
        flops=_variadic_flops,
        commutative=True,
    )


def _variadic_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    count = outputs[0].elements if isinstance(outputs[0], TensorType) else None
    return None if count is None else count * max(len(query.types) - 1, 1)


OPS: tuple[OpDef, ...] = (
    OpDef("Identity", Pattern.ELEMWISE, OpClass.ELEMENTWISE, identity, _identity, flops=0),
    _unary("Abs", np.abs),
    _unary("Neg", np.negative),
    _unary("Sign", np.sign),
    _unary("Ceil", np.ceil),
    _unary("Floor", np.floor),
    _unary("Round", np.rint),
    _unary("Reciprocal", _reciprocal),
    _unary("Sqrt", np.sqrt),
    _unary("Exp", np.exp, flops=4),
    _unary("Log", np.log, flops=4),
    _unary("Sin", np.sin, flops=4),
    _unary("Cos", np.cos, flops=4),
    _unary("Tan", np.tan, flops=4),
    _unary("Asin", np.arcsin, flops=4),
    _unary("Acos", np.arccos, flops=4),
    _unary("Atan", np.arctan, flops=4),
    _unary("Sinh", np.sinh, flops=4),
    _unary("Cosh", np.cosh, flops=4),
    _unary("Asinh", np.arcsinh, flops=4),
    _unary("Acosh", np.arccosh, flops=4),
    _unary("Atanh", np.arctanh, flops=4),
    _unary("Erf", erf, flops=8, widened=True),
    _unary("Not", np.logical_not),
    _unary("BitwiseNot", np.invert),
    _unary("IsNaN", np.isnan, infer=predicate),
    OpDef("IsInf", Pattern.ELEMWISE, OpClass.ELEMENTWISE, predicate, _is_inf),
    OpDef(
        "Clip",
        Pattern.ELEMWISE,
        OpClass.ELEMENTWISE | OpClass.ACTIVATION,
        same_type,
        _clip,
        flops=2,
    ),
    _binary("Add", np.add, commutative=True),
    _binary("Sub", np.subtract),
    _binary("Mul", np.multiply, commutative=True),
    _binary("Div", divide),
    _binary("Pow", raise_to, infer=power, flops=8),
    OpDef("Mod", Pattern.BROADCAST, OpClass.ELEMENTWISE, broadcast, _modulo),
    _variadic("Sum", np.add),
    _variadic("Max", np.maximum),
    _variadic("Min", np.minimum),
    OpDef(
        "Mean",
        Pattern.BROADCAST,
        OpClass.ELEMENTWISE,
        broadcast,
        _mean,
        flops=_variadic_flops,
        commutative=True,
    ),
    _binary("Equal", np.equal, infer=compare, commutative=True),
    _binary("Greater", np.greater, infer=compare),
    _binary("GreaterOrEqual", np.greater_equal, infer=compare),
    _binary("Less", np.less, infer=compare),
    _binary("LessOrEqual", np.less_equal, infer=compare),
    _binary("And", np.logical_and, infer=compare, commutative=True),
    _binary("Or", np.logical_or, infer=compare, commutative=True),
    _binary("Xor", np.logical_xor, infer=compare, commutative=True),
    _binary("BitwiseAnd", np.bitwise_and, commutative=True),
    _binary("BitwiseOr", np.bitwise_or, commutative=True),
    _binary("BitwiseXor", np.bitwise_xor, commutative=True),
    OpDef("BitShift", Pattern.BROADCAST, OpClass.ELEMENTWISE, broadcast, _bit_shift),
    # NNVM counts the choice among the injective operators, so it ends a group that a convolution
    # leads.
    OpDef("Where", Pattern.INJECTIVE, OpClass.ELEMENTWISE, where, _where),
)
