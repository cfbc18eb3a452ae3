"""Element rules of operators that make values out of nothing but a description: ranges, fills,
shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, compute_type, literal, position, select
from whence.kernels.index import of
from whence.kernels.ir import Expr, Fn, Literal, Table
from whence.kernels.rules.elementwise import add, mul
from whence.types import DType, TensorType


def _only(elements: Elements, ref: Ref | None) -> Expr:
    """The one element of a value, whatever its rank."""
    assert ref is not None
    return elements.value(ref, tuple(of(0) for _ in elements.shape(ref)))


def _out(node: Node) -> DType:
    kind = node.outputs[0]
    assert isinstance(kind, TensorType)
    return compute_type(kind.dtype)


def _range(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # start + i · delta
    start, delta = _only(elements, node.inputs[0]), _only(elements, node.inputs[2])
    return add(start, mul(position(index[0], start.dtype), delta))


def _constant_of_shape(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    value = node.attrs.get("value")
    if value is None:
        return literal(0.0, DType.F32)
    if not isinstance(value, np.ndarray) or DType.of(value) is DType.STRING:
        raise UnsupportedError(f"ConstantOfShape '{node.name}' does not repeat a number")
    return cast(
        Literal(value.reshape(-1)[0].item(), DType.of(value)), compute_type(DType.of(value))
    )


def _eye_like(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    attrs: Any = node.attrs
    dtype = _out(node)
    one, zero = (literal(float(number) if dtype.is_float else number, dtype) for number in (1, 0))
    return select(
        apply(Fn.EQ, position(index[1] - index[0]), literal(int(attrs.get("k", 0)), DType.I64)),
        one,
        zero,
    )


def _shape(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.inputs[0]
    assert source is not None
    attrs: Any = node.attrs
    shape = elements.shape(source)
    chosen = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    if not index[0].terms:
        return literal(chosen[index[0].const], DType.I64)
    return Table(np.array(chosen, np.int64).tobytes(), index[0], DType.I64)


def _size(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.inputs[0]
    assert source is not None
    return literal(int(np.prod(elements.shape(source), dtype=np.int64)), DType.I64)


RULES: Mapping[str, Rule] = {
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Shape": _shape,
    "Size": _size,
}
