"""Several operators of the graph that are one of the file's: what reading takes apart, writing puts
together again.

| operator                                | what it looks like in the graph                                                      |
|-----------------------------------------|--------------------------------------------------------------------------------------|
| FLOOR_MOD                               | the remainder of a division, with the divisor added where their signs differ         |
| PACK                                    | a concatenation along axes that were put in for it                                   |
| DEPTH_TO_SPACE, SPACE_TO_DEPTH          | a reshape that cuts, a transpose, a reshape that joins                               |
| SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND    | the same with blocks in the batch                                                    |
| L2_NORMALIZATION                        | a division by the length, but by no less than a little                               |
| ONE_HOT                                 | a choice by equality with 0, 1, 2, ...                                               |
| REDUCE_ANY, REDUCE_ALL                  | the largest or smallest of truth values as numbers                                   |
| SOFTMAX with beta                       | softmax of a multiple                                                                |

The operators inside must have no other readers; they are then written with the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.frontends.tflite.schema import Option
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.attributes import get_int, get_ints
from whence.types import DType, TensorType

_SHORTEST = 1e-6


@dataclass(frozen=True, slots=True)
class Composite:
    """An operator of the file for several of the graph. Integers among `inputs` are constants of 32
    bits.
    """

    op: str
    inputs: Sequence[Ref | np.ndarray]
    inside: Sequence[Node]
    """The operators before the last one."""
    options: dict[str, Option] = field(default_factory=dict)


def find_composites(graph: Graph) -> dict[int, Composite]:
    """By the last of its operators."""
    found: dict[int, Composite] = {}
    for node in graph:
        match = _MATCHERS.get(node.op)
        composite = None if match is None else match(graph, node)
        if composite is not None and _is_closed(graph, node, composite):
            found[node.id] = composite
    return found


def _is_closed(graph: Graph, root: Node, composite: Composite) -> bool:
    members = {root.id, *(node.id for node in composite.inside)}
    return all(
        reader.id in members for node in composite.inside for reader in graph.consumers(node)
    )


def _maker(graph: Graph, ref: Ref | None, op: str) -> Node | None:
    node = None if ref is None else graph[ref.node]
    return node if node is not None and node.op == op else None


def _shape(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    kind = None if ref is None else graph.type_of(ref)
    return kind.static_shape if isinstance(kind, TensorType) else None


def _number(graph: Graph, ref: Ref | None) -> float | None:
    value = graph.const_value(ref)
    return (
        None
        if value is None or np.size(value) != 1 or value.dtype == np.object_
        else float(np.asarray(value).reshape(-1)[0])
    )


def _floor_mod(graph: Graph, node: Node) -> Composite | None:
    # where(xor(r < 0, b < 0) and not r = 0, r + b, r) with r = mod(a, b)
    both, add, rest = (
        _maker(graph, node.inputs[0], "And"),
        _maker(graph, node.inputs[1], "Add"),
        _maker(graph, node.inputs[2], "Mod"),
    )
    if both is None or add is None or rest is None or not get_int(rest.attrs, "fmod", 0):
        return None
    apart, unequal = _maker(graph, both.inputs[0], "Xor"), _maker(graph, both.inputs[1], "Not")
    signs = [] if apart is None else [_maker(graph, ref, "Less") for ref in apart.inputs]
    equal = None if unequal is None else _maker(graph, unequal.inputs[0], "Equal")
    divisor = rest.inputs[1]
    if (
        apart is None
        or unequal is None
        or equal is None
        or signs[0] is None
        or signs[1] is None
        or divisor is None
        or rest.inputs[0] is None
    ):
        return None
    fits = (
        signs[0].inputs[0] == equal.inputs[0] == add.inputs[0] == rest.ref()
        and signs[1].inputs[0] == divisor == add.inputs[1]
    )
    zeros = all(_number(graph, each.inputs[1]) == 0 for each in (signs[0], signs[1], equal))
    inside = (both, add, rest, apart, unequal, signs[0], signs[1], equal)
    return Composite("FLOOR_MOD", (rest.inputs[0], divisor), inside) if fits and zeros else None


def _pack(graph: Graph, node: Node) -> Composite | None:
    axis = get_int(node.attrs, "axis", 0)
    rows = [_maker(graph, ref, "Unsqueeze") for ref in node.inputs]
    if (
        len(rows) < 2
        or any(
            row is None or row.inputs[0] is None or _number(graph, row.inputs[1]) != axis
            for row in rows
        )
        or axis < 0
    ):
        return None
    inside = [row for row in rows if row is not None]
    inputs = [ref for row in inside if (ref := row.inputs[0]) is not None]
    return Composite(
        "PACK",
        inputs,
        list({row.id: row for row in inside}.values()),
        {"values_count": len(inputs), "axis": axis},
    )


_DEPTH = (0, 1, 3, 2, 4, 5)
_TO_BATCH = (2, 4, 0, 1, 3, 5)
_FROM_BATCH = (2, 3, 0, 4, 1, 5)


def _blocks(graph: Graph, node: Node) -> Composite | None:
    transpose = _maker(graph, node.inputs[0], "Transpose")
    cut = None if transpose is None else _maker(graph, transpose.inputs[0], "Reshape")
    if transpose is None or cut is None or cut.inputs[0] is None:
        return None
    source = cut.inputs[0]
    order = get_ints(transpose.attrs, "perm", ())
    before, middle, after = (
        _shape(graph, source),
        _shape(graph, cut.ref()),
        _shape(graph, node.ref()),
    )
    if (
        before is None
        or middle is None
        or after is None
        or len(before) != 4
        or len(middle) != 6
        or len(after) != 4
    ):
        return None
    if order == _DEPTH:
        n, h, p, w, q, c = middle
        if p == q and before == (n, h * p, w * q, c) and after == (n, h, w, p * q * c):
            return Composite("SPACE_TO_DEPTH", (source,), (transpose, cut), {"block_size": p})
        n, h, w, p, q, c = middle
        if p == q and before == (n, h, w, p * q * c) and after == (n, h * p, w * q, c):
            return Composite("DEPTH_TO_SPACE", (source,), (transpose, cut), {"block_size": p})
    if order == _TO_BATCH:
        n, h, p, w, q, c = middle
        if before == (n, h * p, w * q, c) and after == (p * q * n, h, w, c):
            return Composite(
                "SPACE_TO_BATCH_ND", (source, np.array([p, q]), np.zeros((2, 2))), (transpose, cut)
            )
    if order == _FROM_BATCH:
        p, q, n, h, w, c = middle
        if before == (p * q * n, h, w, c) and after == (n, h * p, w * q, c):
            return Composite(
                "BATCH_TO_SPACE_ND", (source, np.array([p, q]), np.zeros((2, 2))), (transpose, cut)
            )
    return None


def _normalised(graph: Graph, node: Node) -> Composite | None:
    floor = _maker(graph, node.inputs[1], "Max")
    length = None if floor is None else _maker(graph, floor.inputs[0], "ReduceL2")
    if (
        floor is None
        or length is None
        or length.inputs[0] != node.inputs[0]
        or node.inputs[0] is None
        or len(floor.inputs) != 2
    ):
        return None
    shape, axis = graph.type_of(node.inputs[0]), _number(graph, length.inputs[1])
    rank = len(shape.shape) if isinstance(shape, TensorType) and shape.shape is not None else 0
    least = _number(graph, floor.inputs[1])
    last = axis is not None and rank > 0 and int(axis) % rank == rank - 1
    if (
        not last
        or not get_int(length.attrs, "keepdims", 1)
        or least is None
        or not np.isclose(least, _SHORTEST)
    ):
        return None
    return Composite(
        "L2_NORMALIZATION", (node.inputs[0],), (floor, length), {"fused_activation_function": 0}
    )


def _one_hot(graph: Graph, node: Node) -> Composite | None:
    equal = _maker(graph, node.inputs[0], "Equal")
    spread = None if equal is None else _maker(graph, equal.inputs[0], "Unsqueeze")
    if (
        equal is None
        or spread is None
        or spread.inputs[0] is None
        or node.inputs[1] is None
        or node.inputs[2] is None
    ):
        return None
    places, axis = graph.const_value(equal.inputs[1]), _number(graph, spread.inputs[1])
    kind = graph.type_of(spread.inputs[0])
    if (
        places is None
        or axis is None
        or axis < 0
        or not isinstance(kind, TensorType)
        or kind.shape is None
        or _shape(graph, node.inputs[1]) != ()
    ):
        return None
    rank = len(kind.shape)
    wanted = (places.size,) + (1,) * (rank - int(axis))
    if (
        places.shape != wanted
        or not np.array_equal(places.reshape(-1), np.arange(places.size))
        or _shape(graph, node.inputs[2]) != ()
    ):
        return None
    indices, inside = spread.inputs[0], [equal, spread]
    cast = _maker(graph, indices, "Cast")
    if (
        cast is not None
        and cast.inputs[0] is not None
        and isinstance(inner := graph.type_of(cast.inputs[0]), TensorType)
        and inner.dtype is DType.I32
    ):
        indices, inside = cast.inputs[0], [equal, spread, cast]
    depth = np.array(places.size)
    return Composite(
        "ONE_HOT",
        (indices, depth, node.inputs[1], node.inputs[2]),
        inside,
        {"axis": -1 if axis == rank else int(axis)},
    )


def _logical(graph: Graph, node: Node) -> Composite | None:
    kind = node.type
    reduce = next(
        (
            found
            for op in ("ReduceMax", "ReduceMin")
            if (found := _maker(graph, node.inputs[0], op)) is not None
        ),
        None,
    )
    cast = None if reduce is None else _maker(graph, reduce.inputs[0], "Cast")
    if (
        reduce is None
        or cast is None
        or cast.inputs[0] is None
        or reduce.input(1) is None
        or not isinstance(kind, TensorType)
    ):
        return None
    given, axes = graph.type_of(cast.inputs[0]), graph.const_value(reduce.inputs[1])
    if (
        kind.dtype is not DType.BOOL
        or not isinstance(given, TensorType)
        or given.dtype is not DType.BOOL
        or axes is None
        or not axes.size
    ):
        return None
    op = "REDUCE_ANY" if reduce.op == "ReduceMax" else "REDUCE_ALL"
    return Composite(
        op,
        (cast.inputs[0], axes),
        (reduce, cast),
        {"keep_dims": bool(get_int(reduce.attrs, "keepdims", 1))},
    )


def _softmax(graph: Graph, node: Node) -> Composite | None:
    product = _maker(graph, node.inputs[0], "Mul")
    kind = node.type
    beta = None if product is None else _number(graph, product.inputs[1])
    if (
        product is None
        or beta is None
        or beta <= 0
        or product.inputs[0] is None
        or not isinstance(kind, TensorType)
        or kind.shape is None
    ):
        return None
    if (
        get_int(node.attrs, "axis", -1) % len(kind.shape) != len(kind.shape) - 1
        or _shape(graph, product.inputs[1]) != ()
    ):
        return None
    return Composite("SOFTMAX", (product.inputs[0],), (product,), {"beta": beta})


def _where(graph: Graph, node: Node) -> Composite | None:
    return _floor_mod(graph, node) or _one_hot(graph, node)


_MATCHERS: dict[str, Callable[[Graph, Node], Composite | None]] = {
    "Cast": _logical,
    "Concat": _pack,
    "Div": _normalised,
    "Reshape": _blocks,
    "Softmax": _softmax,
    "Where": _where,
}
