"""Elementwise operators that a file has no operator for, step by step as their formulas say them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from whence.frontends.tflite.export.call import ExportCall, Exporter
from whence.ops.formula import (
    Application,
    Formula,
    FormulaNumber,
    FormulaOperand,
    Function,
    Parameter,
    apply,
    maximum,
    minimum,
    operand_count,
)
from whence.ops.registry import REGISTRY
from whence.types import DType, TensorType

_TRUTHS = {Function.LT: "LESS", Function.LE: "LESS_EQUAL", Function.EQ: "EQUAL"}
_STEPS: Mapping[Function, str] = {
    **_TRUTHS,
    Function.ABS: "ABS",
    Function.ADD: "ADD",
    Function.CHOOSE: "SELECT_V2",
    Function.COS: "COS",
    Function.DIV: "DIV",
    Function.EXP: "EXP",
    # Of what is not positive; see `_expm1`.
    Function.EXPM1: "ELU",
    Function.LOG: "LOG",
    Function.MAX: "MAXIMUM",
    Function.MIN: "MINIMUM",
    Function.MUL: "MUL",
    Function.NEG: "NEG",
    Function.SIGMOID: "LOGISTIC",
    Function.SIN: "SIN",
    Function.SUB: "SUB",
    Function.TANH: "TANH",
}
_IN_OTHERS: Mapping[Function, Callable[[Formula], Application]] = {
    # log(1 + exp(x)), which overflows nowhere
    Function.SOFTPLUS: lambda x: apply(
        Function.ADD, maximum(x, 0), apply(Function.LOG, 1 + apply(Function.EXP, -abs(x)))
    ),
    Function.TAN: lambda x: apply(Function.DIV, apply(Function.SIN, x), apply(Function.COS, x)),
}


def _expm1(x: Formula) -> Application:
    """exp(x) - 1, in which ELU has what is not positive."""
    zero = FormulaNumber(0)
    if isinstance(x, Application) and x.function is Function.MIN and zero in x.arguments:
        return apply(Function.EXPM1, x)
    above = apply(Function.EXP, maximum(x, zero)) - 1
    return apply(Function.ADD, apply(Function.EXPM1, minimum(x, zero)), above)


def formula_exporter(op: str) -> Exporter | None:
    """What writes an operator on one operand that has a formula."""
    definition = REGISTRY.get(op)
    formula = None if definition is None else definition.formula
    if not isinstance(formula, Application) or operand_count(formula) != 1:
        return None
    return partial(_write, formula=formula)


def _write(call: ExportCall, formula: Application) -> None:
    """Write what computes a formula of the operand and the attributes."""
    kind = call.output_type()
    truth = TensorType(DType.BOOL, kind.shape)
    made: dict[Formula, int] = {}

    def operator(part: Application) -> tuple[str, list[int]]:
        if part.function in _IN_OTHERS:
            return operator(_IN_OTHERS[part.function](*part.arguments))
        if part.function is Function.EXPM1:
            part = _expm1(*part.arguments)
        if part.function not in _STEPS:
            call.unsupported(f"there is no {part.function.name} in that format")
        return _STEPS[part.function], [tensor(each) for each in part.arguments]

    def number(part: Formula) -> float | None:
        if isinstance(part, Parameter):
            return call.number(part.name, part.default)
        return part.value if isinstance(part, FormulaNumber) else None

    def without_ones(part: Formula) -> Formula:
        """1 · x = x / 1 = x: attributes that scale are 1 in most models."""
        while isinstance(part, Application) and part.function in (Function.MUL, Function.DIV):
            left, right = part.arguments
            if number(right) == 1:
                part = left
            elif number(left) == 1 and part.function is Function.MUL:
                part = right
            else:
                break
        return part

    def tensor(part: Formula) -> int:
        part, value = without_ones(part), number(part)
        if isinstance(part, Application):
            if part not in made:
                result = truth if part.function in _TRUTHS else kind
                made[part] = call.step(*operator(part), result)
            return made[part]
        if isinstance(part, FormulaOperand):
            return call.input(part.index)
        assert value is not None
        return call.scalar(value, kind)

    call.emit(*operator(formula))
