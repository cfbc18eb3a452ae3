"""Element rules of operators that make values out of nothing but a description: ranges, fills,
shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, below, cast, choose, number, position, select
from whence.kernels.index import Index, of
from whence.kernels.ir import Expr, Fn, Literal, LookupTable
from whence.kernels.rules.elementwise import add, mul
from whence.ops.attributes import get_int
from whence.types import DType


def _range(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # start + i · delta
    start, delta = elements.only(node.first_input), elements.only(node.required("delta"))
    return add(start, mul(position(index[0], start.dtype), delta))


def _constant_of_shape(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    value = node.attrs.get("value")
    if value is None:
        return Literal(0.0, DType.F32)
    if not isinstance(value, np.ndarray) or DType.of(value) is DType.STRING:
        raise UnsupportedError(f"ConstantOfShape '{node.name}' does not repeat a number")
    repeated = Literal(value.reshape(-1)[0].item(), DType.of(value))
    return cast(repeated, elements.computed_type(node.ref()))


def _eye_like(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    dtype = elements.computed_type(node.ref())
    one, zero = (number(value, dtype) for value in (1, 0))
    diagonal = Literal(get_int(node.attrs, "k", 0), DType.I64)
    return select(apply(Fn.EQ, position(index[1] - index[0]), diagonal), one, zero)


def _shape(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    attrs: Any = node.attrs
    shape = elements.shape(source)
    chosen = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    return _one_of(chosen, index[0], DType.I64)


def _size(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    return Literal(math.prod(elements.shape(source)), DType.I64)


def _dimension_value(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    values = elements.const(node.ref())
    assert values is not None
    return _one_of(values, index[0] if index else of(0), elements.computed_type(node.ref()))


def _one_of(values: Sequence[int], at: Index, dtype: DType) -> Expr:
    """One of a few numbers or sizes."""
    if not at.terms:
        # Outside where another operand of a concatenation is chosen: any will do.
        return Literal(values[min(max(at.const, 0), len(values) - 1)], dtype)
    if not any(map(is_symbolic, values)):
        return cast(LookupTable(np.array(values, np.int64).tobytes(), at, DType.I64), dtype)
    *front, last = values
    found: Expr = Literal(last, dtype)
    for place, value in reversed(list(enumerate(front))):
        found = choose(below(at, place + 1), Literal(value, dtype), found)
    return found


RULES: Mapping[str, Rule] = {
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Shape": _shape,
    "Size": _size,
    "DimensionValue": _dimension_value,
}
