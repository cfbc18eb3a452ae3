"""Scalar expressions as vectors along one of their variables.

A load that moves by one with the variable is a vector load, what does not depend on it is the same
in all lanes, and a function becomes the function of each lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.kernels.index import Index, Looked, Quotient, Remainder, Var
from whence.kernels.ir import Expr, Fn, Literal, Load, Name, Op, Splat, operands, walk
from whence.types import DType

_ARITHMETIC = (Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV, Fn.MAX, Fn.MIN, Fn.NEG)
_COMPARISONS = (Fn.LT, Fn.LE, Fn.EQ)


def vectorised(expr: Expr, lane: Var, lanes: int, names: Mapping[str, Expr]) -> Expr | None:
    """The values of a float32 expression for `lanes` values of `lane`, the first of which is the
    variable's own; `None` when it is not made of functions that have a vector form, of values side
    by side and of values that are the same for all. `names` has what its names stand for.
    """
    if not all(_is_simple(part, lane, names) for part in walk(expr)):
        return None
    done: dict[Expr, Expr] = {}
    stack = [expr]
    while stack:
        part = stack[-1]
        missing = [operand for operand in operands(part) if operand not in done]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        done[part] = _wide(part, lane, lanes, names, done)
    return done[expr]


def _wide(
    part: Expr, lane: Var, lanes: int, names: Mapping[str, Expr], done: Mapping[Expr, Expr]
) -> Expr:
    match part:
        case Name(name, _, _):
            return names[name]
        case Load(buffer, index, dtype, _) if moves_with(index, lane):
            return Load(buffer, index, dtype, lanes)
        case Op(fn, args, dtype, _):
            return Op(fn, tuple(done[arg] for arg in args), dtype, lanes)
    return Splat(part, lanes)


def _is_simple(part: Expr, lane: Var, names: Mapping[str, Expr]) -> bool:
    match part:
        case Literal(_, dtype):
            return dtype is DType.F32
        case Name(name, dtype, _):
            return dtype is DType.F32 and name in names
        case Load(_, index, dtype, _):
            return dtype is DType.F32 and moves_with(index, lane) is not None
        case Op(fn, args, _, _) if fn in _COMPARISONS:
            return all(arg.dtype is DType.F32 for arg in args)
        case Op(Fn.CAST, (value,), dtype, _):
            # Rounding to half precision: there and back.
            return {dtype, value.dtype} == {DType.F32, DType.F16}
        case Op(Fn.SELECT | Fn.CHOOSE, (Op(chosen, _, _, _), _, _), dtype, _):
            return dtype is DType.F32 and chosen in _COMPARISONS
        case Op(fn, _, dtype, _):
            return dtype is DType.F32 and (fn in _ARITHMETIC or fn is Fn.SIGMOID)
    return False


def moves_with(index: Index, lane: Var) -> bool | None:
    """True when the index moves by one with the variable, False when it does not move, `None` when
    it does anything else.
    """
    if _reads_data(index):
        return None
    if not index.depends_on(lane):
        return False
    others = [term for term in index.terms if term[0] != lane]
    inside = any(Index(0, (term,)).depends_on(lane) for term in others)
    return True if index.coefficient(lane) == 1 and not inside else None


def _reads_data(index: Index) -> bool:
    return any(
        isinstance(atom, Looked)
        or (isinstance(atom, Quotient | Remainder) and _reads_data(atom.of))
        for atom, _ in index.terms
    )
