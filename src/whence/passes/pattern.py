"""Small questions that passes ask of the graph around a node while they match. Nothing here changes
the graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.graph.search import Ops, producer_of, unique_consumer
from whence.passes.operands import FLOATS
from whence.types import Dim, DType, Shape
from whence.types import same_dim as dims_agree

_TOLERANCE = {DType.F16: 2e-3, DType.BF16: 1e-2}
"""How far a constant may lie from the number it stands for, relative to it: exporters round √2 to
1.4142, narrow types do the rest.
"""


def scalar(graph: Graph, ref: Ref | None) -> float | None:
    """The number behind `ref` when it is a constant of one element, of whatever rank, else
    `None`.
    """
    value = graph.const_value(ref)
    if (
        not isinstance(value, np.ndarray)
        or value.size != 1
        or DType.of(value) in {DType.STRING, DType.BOOL}
        or value.dtype.kind == "c"
    ):
        return None
    return float(value.reshape(-1)[0])


def near(number: float | None, target: float, dtype: DType = DType.F32) -> bool:
    """Is `number` what an exporter would write for `target` in this type?"""
    return number is not None and math.isclose(
        number, target, rel_tol=_TOLERANCE.get(dtype, 1e-4), abs_tol=1e-9
    )


def same_dim(left: Dim, right: Dim) -> bool:
    """Are both dimensions certainly equal? Equal names are, and unknowns equal nothing."""
    return left is not None and dims_agree(left, right)


def shape_of(graph: Graph, ref: Ref | None) -> Shape | None:
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.shape


def static_shape_of(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    """The shape when every dimension is known, else `None`."""
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.static_shape


def rank_of(graph: Graph, ref: Ref | None) -> int | None:
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.rank


def dtype_of(graph: Graph, ref: Ref | None) -> DType:
    kind = graph.tensor_type(ref)
    return DType.UNDEFINED if kind is None else kind.dtype


def is_number_or_absent(graph: Graph, ref: Ref | None) -> bool:
    """Is an operand of one element, or left out?"""
    kind = graph.tensor_type(ref)
    return ref is None or (kind is not None and kind.elements == 1)


def is_open(dim: Dim) -> bool:
    return not isinstance(dim, int)


def same_but_one(left: Shape | None, right: Shape | None) -> bool:
    """Are two shapes with the same number of elements certainly equal? They are when all dimensions
    but one are, and none is 0.
    """
    if left is None or right is None or len(left) != len(right):
        return False
    differ = [(a, b) for a, b in zip(left, right, strict=True) if not same_dim(a, b)]
    if not differ:
        return True
    return (
        len(differ) == 1
        and 0 not in left
        and 0 not in right
        and any(is_open(dim) for dim in differ[0])
    )


def is_closed(matched: Collection[Node], root: Node) -> bool:
    """Is everything but `root` read by matched nodes only? Then nobody misses it when the match
    becomes one node.
    """
    inside = {node.id for node in matched}
    return all(
        node is root or (len(node._uses) <= len(inside) and inside.issuperset(node._uses))
        for node in matched
    )


def few_consumers(graph: Graph, node: Node, limit: int) -> list[Node] | None:
    """The nodes that read any output of `node`, or `None` when there are more than `limit` of them.
    Never looks at more.
    """
    return None if len(node._uses) > limit else graph.consumers(node)


def only_user(graph: Graph, node: Node, ops: Ops | None = None) -> Node | None:
    """The only node that reads any output of `node`, when its operator is among `ops` (any by
    default); it may read other values too.
    """
    return unique_consumer(graph, node, ops, check_inputs=False)


def operand_orders(node: Node) -> Iterator[tuple[Ref, Ref]]:
    """The operands of a commutative binary operator, as they stand and swapped."""
    if len(node.inputs) != 2:
        return
    left, right = node.inputs
    if left is not None and right is not None:
        yield left, right
        yield right, left


def with_scalar(graph: Graph, node: Node) -> tuple[Ref, float] | None:
    """What a commutative binary operator combines with a constant number, and the number."""
    for value, other in operand_orders(node):
        number = scalar(graph, other)
        if number is not None:
            return value, number
    return None


def float_cast(graph: Graph, ref: Ref) -> Node | None:
    """The Cast from one float type to another that makes `ref`."""
    node = producer_of(graph, ref, "Cast")
    if node is None or not {dtype_of(graph, node.inputs[0]), dtype_of(graph, ref)} <= FLOATS:
        return None
    return node


def without_casts(graph: Graph, ref: Ref) -> tuple[Ref, list[Node]]:
    """What `ref` was before casts from float to float, and those casts."""
    casts: list[Node] = []
    while (cast := float_cast(graph, ref)) is not None:
        casts.append(cast)
        ref = cast.first_input
    return ref, casts
