"""Making constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.graph.const_cache import scalar_key
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.types import DType, TensorType


def scalar_const(graph: Graph, value: Any, dtype: DType) -> int:
    """The id of a scalar constant. Equal scalars share a node: always for 0 and the infinities,
    when remembered for others.
    """
    array = np.asarray(value, dtype=dtype.numpy).reshape(())
    known = graph.consts.get(array)
    if known is not None:
        # The id may be gone, or stand for another node or another value by now.
        node = graph.get(known)
        if (
            node is not None
            and node.value is not None
            and node.value.shape == ()
            and scalar_key(node.value) == scalar_key(array)
        ):
            return known
    node = prepend_const(graph, graph.new_id(), array)
    graph.consts.put(array, node.id)
    return node.id


def float_const(graph: Graph, value: float) -> int:
    return scalar_const(graph, value, DType.F32)


def int32_const(graph: Graph, value: int) -> int:
    return scalar_const(graph, value, DType.I32)


def zero_const(graph: Graph) -> int:
    return float_const(graph, 0.0)


def minus_infinity_const(graph: Graph) -> int:
    return float_const(graph, float("-inf"))


def infinity_const(graph: Graph) -> int:
    return float_const(graph, float("inf"))


def prepend_const(graph: Graph, node_id: int, value: np.ndarray, *, name: str = "") -> Node:
    """A constant with this id and value at the front of the list, where any node may refer to
    it.
    """
    return graph.prepend(
        Node(node_id, "Const", (), (TensorType.of(value),), value=value, name=name)
    )


def prepend_shape_only_const(
    graph: Graph, node_id: int, dtype: DType, shape: Sequence[int], *, name: str = ""
) -> Node:
    """A constant that has a type and no data. Operators that ask only for its shape may read it."""
    return graph.prepend(Node(node_id, "Const", (), (TensorType(dtype, tuple(shape)),), name=name))


def prepend_uninitialised_const(
    graph: Graph, node_id: int, dtype: DType, shape: Sequence[int], *, name: str = ""
) -> Node:
    """A constant whose `value` the caller fills in afterwards."""
    return prepend_const(graph, node_id, np.empty(tuple(shape), dtype.numpy), name=name)


def purge_const_cache(graph: Graph, node_id: int) -> None:
    """To be called when the data of a constant is changed in place, so that nobody takes it for
    what it was.
    """
    graph.consts.purge(node_id)
