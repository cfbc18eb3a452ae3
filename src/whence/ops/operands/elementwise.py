"""Operators that work on each element by itself, with operands that spread over the others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    by_types,
    demand_elements,
    demand_numbers,
    demand_reals,
    dtype_of,
)
from whence.ops.types.type_rules import target_dtype
from whence.types import DType

_INTEGERS = tuple(dtype for dtype in DType if dtype.is_integer)


def _booleans(query: TypeQuery, count: int) -> None:
    for index in range(count):
        demand_elements(query, index, (DType.BOOL,), "truth values")


def _bits(query: TypeQuery) -> None:
    for index in range(len(query.types)):
        demand_elements(query, index, _INTEGERS, "integers")


def _numbers(query: TypeQuery, count: int) -> None:
    for index in range(count):
        demand_numbers(query, index)


def _bit_cast(query: TypeQuery) -> None:
    found = dtype_of(query, 0)
    wanted = target_dtype(query.op, get_int(query.attrs, "to", 0))
    both = (found, wanted)
    if DType.UNDEFINED not in both and (DType.STRING in both or found.bits != wanted.bits):
        raise ModelError(f"{found} and {wanted} do not have the same number of bits")


# Of one operand, or of several that spread over each other: the result's type depends on all. So it
# is with every operator that computes a formula.
_PLAIN = (
    "Cast", "CastLike", "IsInf", "Mean", "Pow", "RoundTo",
)  # fmt: skip

RULES: Mapping[str, Check] = {
    **dict.fromkeys(_PLAIN, by_types),
    **dict.fromkeys(("And", "Or", "Xor"), partial(_booleans, count=2)),
    **dict.fromkeys(("Not", "Where"), partial(_booleans, count=1)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"), _bits),
    **dict.fromkeys(("Neg", "Sign"), partial(_numbers, count=1)),
    **dict.fromkeys(("Sub", "Div", "Mod"), partial(_numbers, count=2)),
    "BitCast": _bit_cast,
    "Gelu": partial(demand_reals, index=0),
}
