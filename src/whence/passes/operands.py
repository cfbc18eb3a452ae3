"""Reading operands: which side of a binary operator is constant, what shape a value has, whether
broadcasting leaves a shape alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from whence.graph import Graph, Node, Ref
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.types import DType, Shape, TensorType, ValueType
from whence.types import same_dim as dims_agree
from whence.types import same_shape as shapes_agree

FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
"""The types that arithmetic may be regrouped in. Integers wrap around, and smaller floats are
storage formats.
"""
_FUSED = operators(Trait.FUSED)
CONVOLUTIONS = (operators(Trait.CONVOLUTION) | operators(Trait.TRANSPOSED_CONVOLUTION)) - _FUSED
PRODUCTS = operators(Trait.PRODUCT) - _FUSED
"""Convolutions and products of matrices that do nothing else, in whatever order of axes."""
BROADCASTING = frozenset(
    name for name, known in REGISTRY.items() if known.by_element and not known.is_(Trait.SAME_SHAPE)
)
"""The operators that work element by element, on operands of any shapes that go together."""


def float_info(dtype: np.dtype[Any]) -> ml_dtypes.finfo:
    """The precision and the range of a float type."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


class WithConst(NamedTuple):
    """A binary operator with one constant operand."""

    value: Ref
    """The operand that is not constant."""
    const: np.ndarray
    const_first: bool


def is_float(graph: Graph, ref: Ref | None) -> bool:
    kind = graph.tensor_type(ref)
    return kind is not None and kind.dtype in FLOATS


def is_addition(node: Node) -> bool:
    """Is it the sum of exactly two values?"""
    return node.op == "Add" or (node.op == "Sum" and len(node.inputs) == 2)


def with_const(graph: Graph, node: Node) -> WithConst | None:
    """The operands of a binary operator of which exactly one is constant, else `None`."""
    if len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if left is None or right is None:
        return None
    first, second = graph.const_value(left), graph.const_value(right)
    if (first is None) == (second is None):
        return None
    if first is not None:
        return WithConst(right, first, True)
    return WithConst(left, np.asarray(second), False)


def other_operand(node: Node, value: Ref) -> Ref | None:
    """What a binary operator combines with `value`; `None` when that is `value` itself or `value`
    is not an operand.
    """
    if len(node.inputs) != 2 or node.inputs.count(value) != 1:
        return None
    return node.inputs[1 - node.inputs.index(value)]


def scalar_factor(graph: Graph, node: Node) -> tuple[Ref, float] | None:
    """`x` and `s` when the node is s · x or x / (1/s) with one finite constant number that leaves
    the shape of `x` as it is.
    """
    operands = with_const(graph, node) if node.op in operators(Trait.SCALES) else None
    kind = None if operands is None else graph.tensor_type(operands.value)
    if operands is None or kind is None or kind.dtype not in FLOATS or operands.const.size != 1:
        return None
    if (
        kind.rank is None
        or operands.const.ndim > kind.rank
        or (node.op == "Div" and operands.const_first)
    ):
        return None
    number = float(operands.const.reshape(()))
    if node.op == "Div":
        number = 1 / number if number else np.inf
    return (operands.value, number) if is_exact_attribute(number, kind.dtype) else None


def is_exact_attribute(number: float, dtype: DType) -> bool:
    """May a factor of a tensor of `dtype` be held in an attribute? Attributes are float32 in a
    file, where a float64 would lose digits.
    """
    with np.errstate(over="ignore"):
        stored = float(np.float32(number))
    return bool(np.isfinite(stored)) and (dtype is not DType.F64 or stored == number)


def same_shape(left: ValueType | None, right: ValueType | None) -> bool:
    """Are both shapes certainly equal? A dimension that both call by one name is."""
    return (
        isinstance(left, TensorType)
        and isinstance(right, TensorType)
        and left.shape is not None
        and shapes_agree(left.shape, right.shape)
        and None not in left.shape
    )


def broadcasts_into(shape: Shape | None, target: Shape | None) -> bool:
    """Does a value of `shape` certainly broadcast against one of `target` without changing the
    latter's shape?
    """
    if shape == ():
        return True
    if shape is None or target is None or len(shape) > len(target):
        return False
    return all(
        dims_agree(dim, 1) or (dim is not None and dims_agree(dim, wanted))
        for dim, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
