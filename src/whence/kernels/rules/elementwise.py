"""Element rules of elementwise and broadcasting operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, choose, compute_type, number
from whence.kernels.ir import Expr, Fn, Literal
from whence.ops.attributes import get_float, get_int, get_str
from whence.ops.formula import (
    Application,
    Formula,
    FormulaNumber,
    FormulaOperand,
    Function,
    Parameter,
    operand_count,
    parameters,
)
from whence.ops.neural.activation import ACTIVATIONS, FORMULAS
from whence.ops.registry import REGISTRY
from whence.types import DType


def like(value: float, x: Expr) -> Literal:
    """A number in the type of `x`."""
    return number(value, x.dtype)


maximum, minimum = partial(apply, Fn.MAX), partial(apply, Fn.MIN)
add, sub = partial(apply, Fn.ADD), partial(apply, Fn.SUB)
mul, div = partial(apply, Fn.MUL), partial(apply, Fn.DIV)


def magnitude(x: Expr) -> Expr:
    """|x|. That of the most negative integer is itself: negation wraps around."""
    if x.dtype.is_float:
        return apply(Fn.ABS, x)
    return choose(apply(Fn.LT, x, like(0, x)), apply(Fn.NEG, x), x)


def clip(x: Expr, low: float, high: float) -> Expr:
    return minimum(maximum(x, like(low, x)), like(high, x))


def formula_value(formula: Formula, operands: Sequence[Expr], given: Mapping[str, float]) -> Expr:
    """A formula as an expression; `given` are parameters that do not have their defaults."""
    x = operands[0]
    if isinstance(formula, FormulaOperand):
        return operands[formula.index]
    if isinstance(formula, Parameter):
        return like(given.get(formula.name, formula.default), x)
    if isinstance(formula, FormulaNumber):
        return like(formula.value, x)
    assert isinstance(formula, Application)
    arguments = [formula_value(each, operands, given) for each in formula.arguments]
    if formula.function is Function.CHOOSE:
        return choose(*arguments)
    if formula.function is Function.ABS:
        return magnitude(*arguments)
    if formula.function is Function.MUL and isinstance(formula.arguments[0], FormulaOperand):
        factor = arguments[1]
        # x · 1 = x
        if isinstance(formula.arguments[1], Parameter) and factor == like(1.0, x):
            return arguments[0]
    return apply(Fn[formula.function.name], *arguments)


def activate(name: str, x: Expr, alpha: float = 0.0, beta: float = 0.0) -> Expr:
    """An activation by the name of its ONNX operator, with its parameters; the empty name is the
    identity.
    """
    return formula_value(FORMULAS[name], [x], {"alpha": alpha, "beta": beta}) if name else x


def activated(anchor: Node, total: Expr) -> Expr:
    """The activation that a supernode's attributes name."""
    name = get_str(anchor.attrs, "activation", "")
    if not name:
        return total
    known = ACTIVATIONS[name]
    return activate(
        name,
        total,
        get_float(anchor.attrs, "activation_alpha", known.alpha or 0.0),
        get_float(anchor.attrs, "activation_beta", known.beta or 0.0),
    )


def _operands(elements: Elements, node: Node, index: Indices) -> list[Expr]:
    """What broadcasting gives an operator. One operand has the shape of the result: it is read where
    the result is, which an anchor's sum insists on, also along axes of length 1.
    """
    refs = [ref for ref in node.inputs if ref is not None]
    if len(refs) == 1:
        return [elements.value(refs[0], index)]
    return [elements.broadcast(ref, index) for ref in refs]


def _formula(formula: Formula) -> Rule:
    """What an operator computes by a formula; one of any number of operands does it pair by
    pair.
    """
    defaults, is_unary = parameters(formula), operand_count(formula) == 1

    def rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
        total, *others = _operands(elements, node, index)
        given = {name: get_float(node.attrs, name, default) for name, default in defaults.items()}
        if is_unary:
            return formula_value(formula, [total], given)
        for other in others:
            total = formula_value(formula, [total, other], given)
        return total

    return rule


def _of_operands(make: Callable[..., Expr]) -> Rule:
    """What an operator makes of its node and the elements that broadcasting gives it."""

    def rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
        return make(node, *_operands(elements, node, index))

    return rule


def _gelu(node: Node, x: Expr) -> Expr:
    return activate("GeluTanh" if node.attrs.get("approximate") == "tanh" else "Gelu", x)


def _clip_rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    x = elements.value(source, index)
    low, high = node.operand("min"), node.operand("max")
    if low is not None:
        x = maximum(x, _bound(elements, node, low))
    return x if high is None else minimum(x, _bound(elements, node, high))


def _bound(elements: Elements, node: Node, ref: Ref) -> Expr:
    """The one number of an operand, which old exporters write as a list of one."""
    shape = elements.shape(ref)
    if math.prod(shape) != 1:
        raise UnsupportedError(f"{node.op} '{node.name}' has a bound of shape {list(shape)}")
    return elements.only(ref)


def _cast_rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    dtype = elements.dtype(node.ref())
    # Through the stored type and back: casting to half precision must round even when the next
    # operator computes in single.
    return cast(cast(elements.value(node.first_input, index), dtype), compute_type(dtype))


def _round(node: Node, x: Expr) -> Expr:
    return cast(cast(x, DType(get_int(node.attrs, "to", 0))), x.dtype)


def _pow(node: Node, base: Expr, exponent: Expr) -> Expr:
    if isinstance(exponent, Literal) and exponent.value in (1, 2, 3):
        return reduce(mul, [base] * int(exponent.value))
    if isinstance(exponent, Literal) and exponent.value == 0.5 and base.dtype.is_float:
        return apply(Fn.SQRT, base)
    return apply(Fn.POW, base, cast(exponent, base.dtype))


def _prelu(node: Node, x: Expr, slope: Expr) -> Expr:
    return choose(apply(Fn.LT, x, like(0.0, x)), mul(x, slope), x)


def _mean(node: Node, *values: Expr) -> Expr:
    total = reduce(add, values)
    return div(total, like(len(values), total))


def _mod(node: Node, a: Expr, b: Expr) -> Expr:
    return apply(Fn.REM if node.attrs.get("fmod") else Fn.MOD, a, b)


def _shift(node: Node, a: Expr, b: Expr) -> Expr:
    return apply(Fn.SHIFT_LEFT if node.attrs.get("direction") == "LEFT" else Fn.SHIFT_RIGHT, a, b)


def _isinf(node: Node, x: Expr) -> Expr:
    sides = {"detect_positive": (like(0.0, x), x), "detect_negative": (x, like(0.0, x))}
    wanted = [apply(Fn.LT, *side) for name, side in sides.items() if node.attrs.get(name, 1)]
    if len(wanted) == 2:
        return apply(Fn.ISINF, x)
    return apply(Fn.AND, apply(Fn.ISINF, x), wanted[0]) if wanted else Literal(False, DType.BOOL)


def _dropout_rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # Without training it is the identity, and its mask keeps everything.
    source, mode = node.first_input, node.operand("training_mode")
    training = [0] if mode is None else elements.const(mode)
    if training is None or training[0]:
        raise UnsupportedError(f"Dropout '{node.name}' may draw random numbers")
    return Literal(True, DType.BOOL) if output == 1 else elements.value(source, index)


def _batch_norm_rule(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # y = (x - mean) · scale / sqrt(var + epsilon) + bias, all per channel; training computes mean
    # and variance itself
    if node.attrs.get("training_mode") or len(node.outputs) > 1:
        raise UnsupportedError(f"BatchNormalization '{node.name}' is in training mode")
    x, scale, bias, mean, variance = (ref for ref in node.inputs if ref is not None)
    channel = (index[1],)
    epsilon = get_float(node.attrs, "epsilon", 1e-5)
    shifted = Literal(epsilon, elements.computed_type(node.ref()))
    deviation = apply(Fn.SQRT, add(elements.value(variance, channel), shifted))
    factor = div(elements.value(scale, channel), deviation)
    centred = sub(elements.value(x, index), elements.value(mean, channel))
    return add(mul(centred, factor), elements.value(bias, channel))


RULES: Mapping[str, Rule] = {
    **{
        name: _formula(known.formula)
        for name, known in REGISTRY.items()
        if known.formula is not None
    },
    "Mean": _of_operands(_mean),
    "Dropout": _dropout_rule,
    "Gelu": _of_operands(_gelu),
    "Clip": _clip_rule,
    "Cast": _cast_rule,
    "CastLike": _cast_rule,
    "RoundTo": _of_operands(_round),
    "Where": _of_operands(lambda _, *args: choose(*args)),
    "Choose": _of_operands(lambda _, *args: choose(*args)),
    "Mod": _of_operands(_mod),
    "Pow": _of_operands(_pow),
    "PRelu": _of_operands(_prelu),
    "BitShift": _of_operands(_shift),
    "IsInf": _of_operands(_isinf),
    "BatchNormalization": _batch_norm_rule,
}
