"""Element rules of quantised values: between real numbers and small integers, of numbers packed
into bytes, and of integers scaled by fixed-point numbers; and the scale that DynamicQuantizeLinear
finds for itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, choose, position
from whence.kernels.index import Index, LoadedIndex, of
from whence.kernels.ir import Expr, Fn, Kernel, Literal
from whence.kernels.loops.row_nest import RowNest
from whence.kernels.rules.elementwise import add, clip, div, like, maximum, minimum, mul, sub
from whence.kernels.rules.movement import looked_up
from whence.ops.attributes import get_int, get_str
from whence.ops.quantised.blockwise import GATHER
from whence.ops.quantised.quantise import code_of_nan, integer_range, rounds_away
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group

_SMALLEST = -(2**31)
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
    clipped = clip(rounded, low, high)
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
    low = row.hold("low", minimum(row.fold("least", Fn.MIN, 0.0, row.x), zero))
    high = row.hold("high", maximum(row.fold("most", Fn.MAX, 0.0, row.x), zero))
    spread = div(sub(high, low), Literal(255.0, DType.F32))
    scale = row.hold("scale", choose(apply(Fn.LT, low, high), spread, Literal(1.0, DType.F32)))
    negated = div(apply(Fn.NEG, low), scale)
    zero_point = row.hold("zero_point", quantised(negated, None, DType.U8))
    return row.finish(
        lambda index: quantised(div(row.x(index), scale), zero_point, DType.U8), (scale, zero_point)
    )


# ---- several numbers in a byte ----


def _gather(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, indices, scales = (node.required(name) for name in ("data", "indices", "scales"))
    bits, block = get_int(node.attrs, "bits", 4), get_int(node.attrs, "block_size", 128)
    rank = len(elements.shape(indices))
    row = looked_up(elements, indices, index[:rank], elements.shape(data)[0])
    inner, column = index[rank:-1], index[-1]
    of_block = column // block
    zeros = node.operand("zero_points")
    zero = (
        Literal(1 << (bits - 1), DType.I32)
        if zeros is None
        else _code(elements, zeros, (row, *inner), of_block, bits)
    )
    centred = sub(_code(elements, data, (row, *inner), column, bits), zero)
    scale = elements.value(scales, (row, *inner, of_block))
    return mul(cast(centred, DType.F32), cast(scale, DType.F32))


def _code(elements: Elements, ref: Ref, row: Indices, place: Index, bits: int) -> Expr:
    """Number `place` of a row of packed ones."""
    each = 8 // bits
    byte = cast(elements.value(ref, (*row, place // each)), DType.I32)
    if each == 1:
        return byte
    shift = position((place % each) * bits, DType.I32)
    return apply(
        Fn.BIT_AND, apply(Fn.SHIFT_RIGHT, byte, shift), Literal((1 << bits) - 1, DType.I32)
    )


# ---- fixed point ----


def _channel_parameter(elements: Elements, ref: Ref, index: Indices) -> Expr:
    """One number for all elements, or one for each place on the last axis."""
    shape = elements.shape(ref)
    return elements.value(ref, (index[-1],)) if shape and shape[0] > 1 else elements.only(ref)


def _constant(elements: Elements, node: Node, ref: Ref) -> np.ndarray:
    value = elements.graph.const_value(ref)
    if value is None:
        raise UnsupportedError(f"{node.op} '{node.name}' has factors that are not constant")
    return np.asarray(value)


def _fixed_point_scale(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    x, multiplier, shift = (ref for ref in node.inputs if ref is not None)
    value = elements.value(x, index)
    factor, by = (
        _channel_parameter(elements, multiplier, index),
        _channel_parameter(elements, shift, index),
    )
    shifts = _constant(elements, node, shift)
    if np.any(_constant(elements, node, multiplier) == _SMALLEST):
        raise UnsupportedError(
            f"FixedPointScale '{node.name}' may multiply the smallest number by itself"
        )
    if value.dtype is DType.I64:
        return _wide(value, factor, by)
    if get_str(node.attrs, "rounding", "double") == "single":
        return apply(Fn.SCALE_ONCE, value, factor, sub(Literal(31, DType.I32), by))
    zero = Literal(0, DType.I32)
    if np.any(shifts > 0):
        value = apply(Fn.SHIFT_LEFT, value, apply(Fn.MAX, by, zero))
    high = apply(Fn.HIGH_MUL, value, factor)
    if not np.any(shifts < 0):
        return high
    # A factor other than the smallest number leaves the product short of the largest one.
    right = apply(Fn.NEG, by)
    if np.all(shifts < 0):
        return apply(Fn.ROUND_SHIFT, high, right)
    one = Literal(1, DType.I32)
    return choose(
        apply(Fn.LT, right, one), high, apply(Fn.ROUND_SHIFT, high, apply(Fn.MAX, right, one))
    )


def _wide(value: Expr, factor: Expr, by: Expr) -> Expr:
    """A sum of 64 bits: the factor rounded to 16 bits, the product rounded once."""
    factor, by = cast(factor, DType.I64), cast(by, DType.I64)
    narrow = apply(Fn.SHIFT_RIGHT, add(factor, like(1 << 15, factor)), like(16, factor))
    narrow = choose(apply(Fn.LT, factor, like(0x7FFF0000, factor)), narrow, like(0x7FFF, factor))
    total = sub(like(15, by), by)
    half = apply(Fn.SHIFT_LEFT, like(1, by), sub(total, like(1, by)))
    return cast(apply(Fn.SHIFT_RIGHT, add(mul(value, narrow), half), total), DType.I32)


def _look_up(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    x, table = node.first_input, node.required("table")
    low, high = integer_range(elements.dtype(x))
    place = sub(cast(elements.value(x, index), DType.I64), Literal(low, DType.I64))
    return elements.value(table, (of(LoadedIndex(place, high - low + 1)),))


RULES: Mapping[str, Rule] = {
    "QuantizeLinear": _quantise,
    "DequantizeLinear": _dequantise,
    GATHER: _gather,
    "FixedPointScale": _fixed_point_scale,
    "LookUp": _look_up,
}
