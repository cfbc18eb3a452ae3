"""The work of one application of an operator, from its types alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.ops.definition import Cost, TypeQuery, count
from whence.ops.formula import Function, functions
from whence.ops.registry import REGISTRY, lookup
from whence.ops.traits import Trait
from whence.types import TensorType, ValueType

_MEASURED: Mapping[Function, str] = {
    Function.DIV: "Div",
    Function.SQRT: "Sqrt",
    Function.EXP: "Exp",
    Function.EXPM1: "Exp",
    Function.LOG: "Log",
    Function.TANH: "Tanh",
    Function.SIGMOID: "Sigmoid",
    Function.SOFTPLUS: "Softplus",
    Function.ERF: "Erf",
    **dict.fromkeys((Function.SIN, Function.COS, Function.TAN), "Sin"),
    **dict.fromkeys((Function.ASIN, Function.ACOS, Function.ATAN), "Atan"),
    **dict.fromkeys((Function.SINH, Function.COSH, Function.ASINH), "Atan"),
    **dict.fromkeys((Function.ACOSH, Function.ATANH), "Atan"),
}
"""Functions that take more than an instruction or two: by the operator that is measured for each.
"""


def cost(query: TypeQuery, outputs: Sequence[ValueType]) -> Cost | None:
    """Operations, and bytes read plus written; `None` when a needed dimension is unknown."""
    moved = _bytes(query, outputs)
    done = None if moved is None else _flops(query, outputs)
    return None if done is None or moved is None else Cost(done, moved)


def measured_functions(op: str) -> tuple[str, ...]:
    """The operators, of those whose time per element is measured, that take the time of `op`: the
    one its definition names, or one for each function in its formula. Empty for an operator that
    takes an instruction or two.
    """
    known = REGISTRY.get(op)
    if known is None or known.costs_like:
        return () if known is None else (known.costs_like,)
    if known.formula is None:
        return ()
    return tuple(_MEASURED[each] for each in functions(known.formula) if each in _MEASURED)


def _flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    flops = lookup(query.op).flops
    if callable(flops):
        return flops(query, outputs)
    if flops == 0 or not outputs:
        return 0
    return flops * count(outputs[0])


def _bytes(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    written, known = _total(outputs), lookup(query.op)
    if written is None:
        return None
    first, others = query.types[:1], query.types[1:]
    read: int | None
    if known.is_(Trait.SHAPE_ONLY):
        read = 0
    elif known.is_(Trait.READS_PART):
        read = written
    else:
        read = _total(first)
    rest = _total(others)
    return None if read is None or rest is None else written + read + rest


def _total(types: Sequence[ValueType | None]) -> int | None:
    total = 0
    for kind in types:
        if kind is None:
            continue
        size = kind.nbytes if isinstance(kind, TensorType) else None
        if size is None:
            return None
        total += size
    return total
