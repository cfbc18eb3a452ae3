"""Constants as Hexagon NN's prepare makes them: scalars that are shared, and constants of any
shape.

Zero and the two infinities are pinned: once made they are remembered for good. Other values are
kept on a best-effort basis, the least recently used leaving first. The key is the element type and
the bit pattern: -0.0 is not 0.0, and a NaN equals itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.types import DType, TensorType

_ROOM = 32
_Key = tuple[DType, bytes]


class ConstCache:
    """The scalar constants of one graph, by value, while it is prepared."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._pinned: dict[_Key, int] = {}
        self._recent: OrderedDict[_Key, int] = OrderedDict()

    def get(self, value: np.ndarray) -> int | None:
        key = scalar_key(value)
        if key in self._pinned:
            return self._pinned[key]
        if key in self._recent:
            self._recent.move_to_end(key)
            return self._recent[key]
        return None

    def put(self, value: np.ndarray, node_id: int) -> None:
        key = scalar_key(value)
        if _is_pinned(value):
            self._pinned[key] = node_id
            return
        self._recent[key] = node_id
        self._recent.move_to_end(key)
        if len(self._recent) > _ROOM:
            self._recent.popitem(last=False)

    def purge(self, node_id: int) -> None:
        """Forget a constant: it is about to change or to leave the graph."""
        for entries in (self._pinned, self._recent):
            for key in [key for key, known in entries.items() if known == node_id]:
                del entries[key]

    def node(self, value: np.ndarray) -> int:
        """The id of the constant, which is made when it is not remembered."""
        known = self.get(value)
        # The id may be gone, or stand for another node or another value by now.
        node = None if known is None else self.graph.get(known)
        if (
            node is None
            or node.value is None
            or node.value.shape != ()
            or scalar_key(node.value) != scalar_key(value)
        ):
            node = prepend_const(self.graph, self.graph.new_id(), value)
            self.put(value, node.id)
        return node.id


def scalar_key(value: np.ndarray) -> _Key:
    """What two scalars must share to be the same constant."""
    dtype = DType.of(value)
    # The bytes of an object array are addresses.
    return dtype, repr(value.item()).encode() if dtype is DType.STRING else value.tobytes()


def _is_pinned(value: np.ndarray) -> bool:
    dtype = DType.of(value)
    if dtype.is_integer:
        return bool(value == 0)
    return dtype.is_float and (bool(value == 0 and not np.signbit(value)) or bool(np.isinf(value)))


def create_const_op(consts: ConstCache, value: Any, dtype: DType) -> int:
    """The id of a scalar constant. Equal scalars share a node: always for 0 and the infinities,
    when remembered for others.
    """
    return consts.node(np.asarray(value, dtype=dtype.numpy).reshape(()))


create_const_float_op = partial(create_const_op, dtype=DType.F32)
create_const_int32_op = partial(create_const_op, dtype=DType.I32)
get_zero_node = partial(create_const_float_op, value=0.0)
get_ninf_node = partial(create_const_float_op, value=-math.inf)
get_inf_node = partial(create_const_float_op, value=math.inf)


def purge_const_cache(consts: ConstCache, node_id: int) -> None:
    """Forget a constant whose data is changed in place."""
    consts.purge(node_id)


def prepend_const(graph: Graph, node_id: int, value: np.ndarray, *, name: str = "") -> Node:
    """A constant with this id and value at the front, where any node may refer to it."""
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
