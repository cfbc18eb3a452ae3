"""Operators that work on each element by itself, with operands that spread over the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def _every(demand: Callable[[TypeQuery, int], None]) -> Check:
    """A rule that demands the same of all operands."""

    def rule(query: TypeQuery) -> None:
        for index in range(len(query.types)):
            demand(query, index)

    return rule


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

_truth = partial(demand_elements, allowed=(DType.BOOL,), what="truth values")
_BITS = _every(partial(demand_elements, allowed=_INTEGERS, what="integers"))

RULES: Mapping[str, Check] = {
    **dict.fromkeys(_PLAIN, by_types),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), _every(_truth)),
    "Where": partial(_truth, index=0),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"), _BITS),
    **dict.fromkeys(("Neg", "Sign", "Sub", "Div", "Mod"), _every(demand_numbers)),
    "BitCast": _bit_cast,
    "Gelu": partial(demand_reals, index=0),
}
