"""Element rules of integer arithmetic: scaling by fixed-point numbers, and tables of codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, choose
from whence.kernels.index import LoadedIndex, of
from whence.kernels.ir import Expr, Fn, Literal
from whence.kernels.rules.elementwise import add, mul, sub
from whence.ops.attributes import get_str
from whence.ops.quantised.quantise import integer_range
from whence.types import DType

_SMALLEST = -(2**31)


def _parameter(elements: Elements, ref: Ref, index: Indices) -> Expr:
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
    factor, by = _parameter(elements, multiplier, index), _parameter(elements, shift, index)
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
    narrow = apply(Fn.SHIFT_RIGHT, add(factor, Literal(1 << 15, DType.I64)), Literal(16, DType.I64))
    narrow = choose(
        apply(Fn.LT, factor, Literal(0x7FFF0000, DType.I64)), narrow, Literal(0x7FFF, DType.I64)
    )
    total = sub(Literal(15, DType.I64), by)
    half = apply(Fn.SHIFT_LEFT, Literal(1, DType.I64), sub(total, Literal(1, DType.I64)))
    return cast(apply(Fn.SHIFT_RIGHT, add(mul(value, narrow), half), total), DType.I32)


def _look_up(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    x, table = node.first_input, node.required("table")
    low, high = integer_range(elements.dtype(x))
    place = sub(cast(elements.value(x, index), DType.I64), Literal(low, DType.I64))
    return elements.value(table, (of(LoadedIndex(place, high - low + 1)),))


RULES: Mapping[str, Rule] = {"FixedPointScale": _fixed_point_scale, "LookUp": _look_up}
