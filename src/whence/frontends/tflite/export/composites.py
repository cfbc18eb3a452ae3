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
| RSQRT, FLOOR_DIV, NOT_EQUAL             | a function of one operator's result                                                  |
| SQUARED_DIFFERENCE                      | a difference times itself                                                            |

The operators inside must have no other readers; they are then written with the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from whence.frontends.tflite.operators.elementwise import SMALLEST_NORM
from whence.frontends.tflite.schema import Option
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.attributes import get_int, get_ints
from whence.types import DType, TensorType

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Composite:
    """One operator of the file for several nodes. Arrays in `inputs` are written as int32."""

    op: str
    inputs: Sequence[Ref | np.ndarray]
    inside: Sequence[Node]
    """The operators before the last one."""
    options: dict[str, Option] = field(default_factory=dict)


class _NoMatchError(Exception):
    """The operators are no such composite."""


def find_composites(graph: Graph) -> dict[int, Composite]:
    """By the last of its operators."""
    found: dict[int, Composite] = {}
    for node in graph:
        for match in _MATCHERS.get(node.op, ()):
            try:
                composite = match(graph, node)
            except _NoMatchError:
                continue
            if _is_closed(graph, node, composite):
                found[node.id] = composite
                break
    return found


def _is_closed(graph: Graph, root: Node, composite: Composite) -> bool:
    members = {root.id, *(node.id for node in composite.inside)}
    return all(
        reader.id in members for node in composite.inside for reader in graph.consumers(node)
    )


def _require(holds: bool) -> None:
    if not holds:
        raise _NoMatchError


def _known(value: _Found | None) -> _Found:
    if value is None:
        raise _NoMatchError
    return value


def _input(node: Node, index: int) -> Ref:
    return _known(node.input(index))


def _maker(graph: Graph, node: Node, index: int, *ops: str) -> Node:
    """What makes an input, which must be one of these operators."""
    maker = graph[_input(node, index).node]
    _require(maker.op in ops)
    return maker


def _type(graph: Graph, ref: Ref) -> TensorType:
    return _known(graph.tensor_type(ref))


def _rank(graph: Graph, ref: Ref) -> int:
    return len(_known(_type(graph, ref).shape))


def _shape(graph: Graph, ref: Ref, rank: int) -> tuple[int, ...]:
    shape = _known(_type(graph, ref).static_shape)
    _require(len(shape) == rank)
    return shape


def _value(graph: Graph, node: Node, index: int) -> np.ndarray:
    """An input that is constant."""
    return _known(graph.const_value(node.input(index)))


def _number(graph: Graph, node: Node, index: int) -> float:
    """An input that is one constant number."""
    value = _value(graph, node, index)
    _require(value.size == 1 and value.dtype != np.object_)
    return float(value.reshape(-1)[0])


def _floor_mod(graph: Graph, node: Node) -> Composite:
    # where(xor(r < 0, b < 0) and not r = 0, r + b, r) with r = mod(a, b)
    both, add = _maker(graph, node, 0, "And"), _maker(graph, node, 1, "Add")
    rest = _maker(graph, node, 2, "Mod")
    differ, unequal = _maker(graph, both, 0, "Xor"), _maker(graph, both, 1, "Not")
    signs = [_maker(graph, differ, index, "Less") for index in (0, 1)]
    equal = _maker(graph, unequal, 0, "Equal")
    dividend, divisor = _input(rest, 0), _input(rest, 1)
    _require(bool(get_int(rest.attrs, "fmod", 0)))
    _require(signs[0].inputs[0] == equal.inputs[0] == add.inputs[0] == rest.ref())
    _require(signs[1].inputs[0] == divisor == add.operand("B"))
    _require(all(_number(graph, each, 1) == 0 for each in (*signs, equal)))
    inside = (both, add, rest, differ, unequal, *signs, equal)
    return Composite("FLOOR_MOD", (dividend, divisor), inside)


def _pack(graph: Graph, node: Node) -> Composite:
    axis = get_int(node.attrs, "axis", 0)
    rows = [_maker(graph, node, index, "Unsqueeze") for index in range(len(node.inputs))]
    _require(len(rows) > 1 and axis >= 0)
    _require(all(_number(graph, row, 1) == axis for row in rows))
    return Composite(
        "PACK",
        [_input(row, 0) for row in rows],
        list({row.id: row for row in rows}.values()),
        {"values_count": len(rows), "axis": axis},
    )


_DEPTH = (0, 1, 3, 2, 4, 5)
_TO_BATCH = (2, 4, 0, 1, 3, 5)
_FROM_BATCH = (2, 3, 0, 4, 1, 5)


def _blocks(graph: Graph, node: Node) -> Composite:
    transpose = _maker(graph, node, 0, "Transpose")
    cut = _maker(graph, transpose, 0, "Reshape")
    source = _input(cut, 0)
    order = get_ints(transpose.attrs, "perm", ())
    before, middle = _shape(graph, source, 4), _shape(graph, cut.ref(), 6)
    after = _shape(graph, node.ref(), 4)
    inside = (transpose, cut)
    if order == _DEPTH:
        n, h, p, w, q, c = middle
        if p == q and before == (n, h * p, w * q, c) and after == (n, h, w, p * q * c):
            return Composite("SPACE_TO_DEPTH", (source,), inside, {"block_size": p})
        n, h, w, p, q, c = middle
        if p == q and before == (n, h, w, p * q * c) and after == (n, h * p, w * q, c):
            return Composite("DEPTH_TO_SPACE", (source,), inside, {"block_size": p})
    no_border = np.zeros((2, 2))
    if order == _TO_BATCH:
        n, h, p, w, q, c = middle
        if before == (n, h * p, w * q, c) and after == (p * q * n, h, w, c):
            return Composite("SPACE_TO_BATCH_ND", (source, np.array([p, q]), no_border), inside)
    if order == _FROM_BATCH:
        p, q, n, h, w, c = middle
        if before == (p * q * n, h, w, c) and after == (n, h * p, w * q, c):
            return Composite("BATCH_TO_SPACE_ND", (source, np.array([p, q]), no_border), inside)
    raise _NoMatchError


def _normalised(graph: Graph, node: Node) -> Composite:
    floor = _maker(graph, node, 1, "Max")
    length = _maker(graph, floor, 0, "ReduceL2")
    source = _input(node, 0)
    _require(len(floor.inputs) == 2 and length.inputs[0] == source)
    rank = _rank(graph, source)
    _require(rank > 0 and int(_number(graph, length, 1)) % rank == rank - 1)
    _require(bool(get_int(length.attrs, "keepdims", 1)))
    _require(bool(np.isclose(_number(graph, floor, 1), SMALLEST_NORM)))
    return Composite(
        "L2_NORMALIZATION", (source,), (floor, length), {"fused_activation_function": 0}
    )


def _one_hot(graph: Graph, node: Node) -> Composite:
    equal = _maker(graph, node, 0, "Equal")
    spread = _maker(graph, equal, 0, "Unsqueeze")
    indices, on, off = _input(spread, 0), _input(node, 1), _input(node, 2)
    places, axis = _value(graph, equal, 1), int(_number(graph, spread, 1))
    rank = _rank(graph, indices)
    _require(axis >= 0 and places.shape == (places.size,) + (1,) * (rank - axis))
    _require(np.array_equal(places.reshape(-1), np.arange(places.size)))
    _require(_shape(graph, on, 0) == _shape(graph, off, 0))
    inside = [equal, spread]
    cast = graph[indices.node]
    if cast.op == "Cast" and _type(graph, _input(cast, 0)).dtype is DType.I32:
        indices, inside = _input(cast, 0), [equal, spread, cast]
    return Composite(
        "ONE_HOT",
        (indices, np.array(places.size), on, off),
        inside,
        {"axis": -1 if axis == rank else axis},
    )


def _logical(graph: Graph, node: Node) -> Composite:
    reduce = _maker(graph, node, 0, "ReduceMax", "ReduceMin")
    cast = _maker(graph, reduce, 0, "Cast")
    given, axes = _input(cast, 0), _value(graph, reduce, 1)
    _require(_type(graph, given).dtype is _type(graph, node.ref()).dtype is DType.BOOL)
    _require(axes.size > 0)
    return Composite(
        "REDUCE_ANY" if reduce.op == "ReduceMax" else "REDUCE_ALL",
        (given, axes),
        (reduce, cast),
        {"keep_dims": bool(get_int(reduce.attrs, "keepdims", 1))},
    )


def _softmax(graph: Graph, node: Node) -> Composite:
    product = _maker(graph, node, 0, "Mul")
    beta, rank = _number(graph, product, 1), _rank(graph, node.ref())
    _require(beta > 0 and _shape(graph, _input(product, 1), 0) == ())
    _require(rank > 0 and get_int(node.attrs, "axis", -1) % rank == rank - 1)
    return Composite("SOFTMAX", (_input(product, 0),), (product,), {"beta": beta})


def _pair(graph: Graph, node: Node, before: str, op: str) -> Composite:
    source = _maker(graph, node, 0, before)
    _require(op == "NOT_EQUAL" or _type(graph, _input(source, 0)).dtype is DType.F32)
    return Composite(op, [_input(source, index) for index in range(len(source.inputs))], (source,))


def _squared_difference(graph: Graph, node: Node) -> Composite:
    _require(node.inputs[0] == node.inputs[1])
    return _pair(graph, node, "Sub", "SQUARED_DIFFERENCE")


_MATCHERS: Mapping[str, tuple[Callable[[Graph, Node], Composite], ...]] = {
    "Cast": (_logical,),
    "Concat": (_pack,),
    "Div": (_normalised,),
    "Floor": (partial(_pair, before="Div", op="FLOOR_DIV"),),
    "Mul": (_squared_difference,),
    "Not": (partial(_pair, before="Equal", op="NOT_EQUAL"),),
    "Reciprocal": (partial(_pair, before="Sqrt", op="RSQRT"),),
    "Reshape": (_blocks,),
    "Softmax": (_softmax,),
    "Where": (_floor_mod, _one_hot),
}
