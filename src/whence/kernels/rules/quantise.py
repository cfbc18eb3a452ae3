"""Quantisation: element rules between real numbers and small integers, and the scale that
DynamicQuantizeLinear finds for itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, choose
from whence.kernels.ir import Expr, Fn, Kernel, Literal
from whence.kernels.loops.row_nest import RowNest
from whence.kernels.rules.elementwise import add, div, like, maximum, minimum, mul, sub
from whence.ops.attributes import get_int
from whence.ops.quantised.quantise import code_of_nan, integer_range, rounds_away
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group

_INTEGERS = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.I32})


def _parameter(elements: Elements, node: Node, ref: Ref, index: Indices) -> Expr:
    """A scale or zero point at an index of the tensor: one for all, one for each place on an axis,
    or one for each block of it.
    """
    shape = elements.shape(ref)
    if math.prod(shape) == 1:
        return elements.only(ref)
    axis, block = get_int(node.attrs, "axis", 1), get_int(node.attrs, "block_size", 0)
    axis = 0 if len(index) == 1 else axis % len(index)
    if block > 0:
        return elements.value(ref, (*index[:axis], index[axis] // block, *index[axis + 1 :]))
    return elements.value(ref, (index[axis],))


def _rounded_away(real: Expr) -> Expr:
    """To the nearest whole number, halves away from zero."""
    size = apply(Fn.ABS, real)
    whole = apply(Fn.FLOOR, size)
    up = add(
        whole,
        choose(apply(Fn.LE, like(0.5, real), sub(size, whole)), like(1.0, real), like(0.0, real)),
    )
    return choose(apply(Fn.LT, real, like(0.0, real)), apply(Fn.NEG, up), up)


def quantised(real: Expr, zero_point: Expr | None, dtype: DType, *, away: bool = False) -> Expr:
    """A real number, already divided by the scale, as an integer: rounded half to even, or `away`,
    shifted, saturated. What a NaN becomes is said in `code_of_nan`.
    """
    low, high = integer_range(dtype)
    rounded = _rounded_away(real) if away else apply(Fn.ROUND, real)
    if zero_point is not None:
        rounded = add(rounded, cast(zero_point, real.dtype))
    clipped = minimum(maximum(rounded, like(float(low), real)), like(float(high), real))
    safe = choose(apply(Fn.ISNAN, clipped), like(code_of_nan(dtype, away), real), clipped)
    return cast(cast(safe, DType.I32), dtype)


def _quantise(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    x, scale, made = node.first_input, node.required("y_scale"), elements.dtype(node.ref())
    if made not in _INTEGERS or made is DType.I32 or node.attrs.get("precision"):
        raise UnsupportedError(f"QuantizeLinear '{node.name}' makes {made}")
    divisor = _parameter(elements, node, scale, index)
    ratio = div(cast(elements.value(x, index), divisor.dtype), divisor)
    zero_point = node.operand("y_zero_point")
    shift = None if zero_point is None else _parameter(elements, node, zero_point, index)
    return quantised(ratio, shift, made, away=rounds_away(node.attrs))


def _dequantise(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    x, scale = node.first_input, node.required("x_scale")
    zero_point = node.operand("x_zero_point")
    if elements.dtype(x) not in _INTEGERS:
        raise UnsupportedError(f"DequantizeLinear '{node.name}' reads {elements.dtype(x)}")
    working = elements.computed_type(node.ref())
    value = elements.value(x, index)
    if zero_point is not None:
        # In 64 bits, since float32 does not hold every int32.
        wide = DType.I64 if elements.dtype(x) is DType.I32 else DType.I32
        value = sub(cast(value, wide), cast(_parameter(elements, node, zero_point, index), wide))
    return mul(cast(value, working), cast(_parameter(elements, node, scale, index), working))


def lower_dynamic_quantise(group: Group, anchor: Node) -> Kernel:
    """One row that is the whole tensor: its range, then its elements."""
    source = anchor.first_input
    shape = group.shape(source)
    if group.dtype(source) is not DType.F32 or 0 in shape:
        raise UnsupportedError(f"DynamicQuantizeLinear '{anchor.name}' of {group.dtype(source)}")
    row = RowNest(group, anchor, shape, range(len(shape)))
    zero = Literal(0.0, DType.F32)
    low = row.hold("low", minimum(row.fold("least", Fn.MIN, row.x, start=0.0), zero))
    high = row.hold("high", maximum(row.fold("most", Fn.MAX, row.x, start=0.0), zero))
    spread = div(sub(high, low), Literal(255.0, DType.F32))
    scale = row.hold("scale", choose(apply(Fn.LT, low, high), spread, Literal(1.0, DType.F32)))
    negated = div(apply(Fn.NEG, low), scale)
    zero_point = row.hold("zero_point", quantised(negated, None, DType.U8))
    return row.finish(
        lambda index: quantised(div(row.x(index), scale), zero_point, DType.U8), (scale, zero_point)
    )


RULES: Mapping[str, Rule] = {"QuantizeLinear": _quantise, "DequantizeLinear": _dequantise}
