"""Operators that work on each element by itself, with operands that spread over the others."""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import ModelError
from whence.ops.definition import TypeQuery
from whence.ops.operands.checks import (
    Check,
    by_types,
    demand_broadcast,
    demand_elements,
    demand_numbers,
    demand_one,
    demand_same_elements,
    shape_of,
)
from whence.types import DType

_INTEGERS = tuple(dtype for dtype in DType if dtype.is_integer)


def _truths(count: int) -> Check:
    def rule(query: TypeQuery) -> None:
        for index in range(count):
            demand_elements(query, index, (DType.BOOL,), "truth values")

    return rule


def _bits(query: TypeQuery) -> None:
    for index in range(len(query.types)):
        demand_elements(query, index, _INTEGERS, "integers")


def _signed(query: TypeQuery) -> None:
    demand_numbers(query, 0)


def _clip(query: TypeQuery) -> None:
    demand_numbers(query, 0)
    for index in (1, 2):
        demand_one(query, index, "a bound")
        demand_same_elements(query, index, 0)


def _slopes(query: TypeQuery) -> None:
    demand_broadcast(query, 1, shape_of(query, 0), "input 1")
    demand_same_elements(query, 1, 0)


def _dropout(query: TypeQuery) -> None:
    demand_one(query, 1, "the ratio")
    demand_one(query, 2, "training_mode")


def _choose(query: TypeQuery) -> None:
    demand_one(query, 0, "the condition")
    _truths(1)(query)
    if len(query.types) > 2 and query.types[1] != query.types[2]:
        raise ModelError(f"{query.op}: {query.types[1]} and {query.types[2]} are not of one type")


# Of one operand, or of several that spread over each other: the result's type depends on all. So it
# is with every operator that computes a formula.
_PLAIN = (
    "Cast", "CastLike", "Gelu", "IsInf", "Mean", "Mod", "Pow", "RoundTo",
)  # fmt: skip

RULES: Mapping[str, Check] = {
    **dict.fromkeys(_PLAIN, by_types),
    **dict.fromkeys(("And", "Or", "Xor"), _truths(2)),
    **dict.fromkeys(("Not", "Where"), _truths(1)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"), _bits),
    "Neg": _signed,
    "Clip": _clip,
    "PRelu": _slopes,
    "Dropout": _dropout,
    "Choose": _choose,
}
