"""Operators that work on each element by itself, with operands that spread over the others; those
between real numbers and codes among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.attribute_choices import CODES
from whence.ops.operands.checks import (
    axis_in,
    by_types,
    count_of,
    demand,
    demand_elements,
    demand_numbers,
    demand_reals,
    demand_same_elements,
    dtype_of,
    shape_of,
)
from whence.ops.types.type_rules import target_dtype
from whence.types import Dim, DType, Shape

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


def _linear(query: TypeQuery) -> None:
    """Scales and zero points: one for all, one per index of the axis, or one per block of it."""
    x, block = shape_of(query, 0), get_int(query.attrs, "block_size", 0)
    if block < 0:
        raise ModelError(f"block_size is {block}")
    demand_reals(query, 1)
    if query.op == "DequantizeLinear":
        demand_same_elements(query, 2, 0)
    else:
        demand_elements(query, 2, CODES, "codes")
        chosen, zeros = get_int(query.attrs, "output_dtype", 0), dtype_of(query, 2)
        if chosen and zeros not in (chosen, DType.UNDEFINED):
            raise ModelError(
                f"output_dtype is {DType(chosen)}, and the zero point is {query.types[2]}"
            )
    for index, what in ((1, "the scale"), (2, "the zero point")):
        found = shape_of(query, index)
        if x is not None and found is not None and count_of(found) != 1:
            demand(query, index, _parameters(query, x, block), what)


def _parameters(query: TypeQuery, x: Shape, block: int) -> tuple[Dim, ...]:
    axis = 0 if len(x) == 1 else get_int(query.attrs, "axis", 1)
    axis_in(axis, x)
    if not block:
        return (x[axis],)
    size = x[axis]
    blocks = -(-size // block) if isinstance(size, int) else None
    axis %= len(x)
    return (*x[:axis], blocks, *x[axis + 1 :])


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
    "QuantizeLinear": _linear,
    "DequantizeLinear": _linear,
    "DynamicQuantizeLinear": partial(
        demand_elements, index=0, allowed=(DType.F32,), what="single precision"
    ),
    # Their inference looks at every operand.
    "FixedPointScale": by_types,
    "LookUp": by_types,
}
