"""Small questions that passes ask of the graph around a node while they match. Nothing here changes
the graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.graph.search import Ops, unique_consumer
from whence.passes.operands import FLOATS, tensor_of
from whence.types import Dim, DType, Shape
from whence.types import same_dim as dims_agree

_MAX_LIST = 64

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


def integers(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    """The elements behind `ref` when it is a short constant list of integers, else `None`."""
    value = graph.const_value(ref)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.size > _MAX_LIST:
        return None
    return tuple(int(item) for item in value.reshape(-1))


def near(number: float | None, target: float, dtype: DType = DType.F32) -> bool:
    """Is `number` what an exporter would write for `target` in this type?"""
    return number is not None and math.isclose(
        number, target, rel_tol=_TOLERANCE.get(dtype, 1e-4), abs_tol=1e-9
    )


def same_dim(left: Dim, right: Dim) -> bool:
    """Are both dimensions certainly equal? Equal names are, and unknowns equal nothing."""
    return left is not None and dims_agree(left, right)


def shape_of(graph: Graph, ref: Ref | None) -> Shape | None:
    kind = tensor_of(graph, ref)
    return None if kind is None else kind.shape


def dtype_of(graph: Graph, ref: Ref | None) -> DType:
    kind = tensor_of(graph, ref)
    return DType.UNDEFINED if kind is None else kind.dtype


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


def only_user(graph: Graph, node: Node, ops: Ops) -> Node | None:
    """The only node that reads any output of `node`, when its operator is among `ops`; it may read
    other values too.
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


def float_cast_source(graph: Graph, ref: Ref) -> tuple[Node, Ref] | None:
    """The Cast from one float type to another that makes `ref`, and what it casts."""
    node = graph.producer(ref)
    source = node.input(0)
    if (
        node.op != "Cast"
        or source is None
        or dtype_of(graph, source) not in FLOATS
        or dtype_of(graph, ref) not in FLOATS
    ):
        return None
    return node, source


def without_casts(graph: Graph, ref: Ref) -> tuple[Ref, list[Node]]:
    """What `ref` was before casts from float to float, and those casts."""
    casts: list[Node] = []
    found = float_cast_source(graph, ref)
    while found is not None:
        casts.append(found[0])
        ref = found[1]
        found = float_cast_source(graph, ref)
    return ref, casts


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The axes a Reduce operator works over, counted from the front and sorted; `None` when they or
    the rank are not known.
    """
    shape = shape_of(graph, node.input(0))
    if shape is None:
        return None
    rank = len(shape)
    given = node.operand("axes")
    axes = integers(graph, given)
    if given is None or axes == ():
        return None if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    found = None if axes is None else axes_from_front(axes, rank)
    return None if found is None else tuple(sorted(found))


def axes_from_front(axes: Iterable[int], rank: int) -> tuple[int, ...] | None:
    """Axes that may be counted from the end, counted from the front; `None` when one of them does
    not exist: the model is wrong then, which is for the check of types to say.
    """
    found = tuple(axes)
    if any(not -rank <= axis < rank for axis in found):
        return None
    return tuple(axis % rank for axis in found)
