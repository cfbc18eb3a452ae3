"""The mask of an attention: what scores are masked with, and how Attention takes it."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeGuard

import numpy as np

from whence.extent import is_symbolic
from whence.graph import Edit, Graph, Node, Ref
from whence.graph.maker import Maker
from whence.graph.search import producer_of
from whence.ops.definition import Attr
from whence.passes.operands import broadcasts_into, scalar_factor
from whence.passes.pattern import dtype_of, operand_orders, same_dim, scalar, shape_of
from whence.provenance import EdgeKind
from whence.types import Dim, DType, Shape

# Added to any score, this is as good as -∞ beside a score that is seen, and makes all scores equal
# where none is.
_HIDDEN = -1e30
# In place of a score, this is as good as -∞: exp makes exactly 0 of it beside a score above -9900.
_LOW = -1e4
_WIDE = frozenset({DType.F32, DType.F64})


class Mask(NamedTuple):
    """A float that is added to the scores, or a boolean that says which of them count."""

    ref: Ref
    inverted: bool
    """A boolean mask that is true where a key is hidden."""
    node: Node
    """The operator that applies it."""
    maker: Node | None
    """The Where that chooses between the two numbers of an additive mask, when there is one."""


def masked_scores(graph: Graph, node: Node) -> tuple[Ref, Mask] | None:
    """The matrix product whose result an Add or a Where masks, and the mask; `None` when it means
    something else.

    scores + M; where(C, scores, -∞); where(C, scores, low) with a constant C that leaves every
    query a key.
    """
    if node.op == "Add":
        for scores, mask in operand_orders(node):
            if _is_product(graph, scores):
                return scores, Mask(mask, False, node, producer_of(graph, mask, "Where"))
        return None
    seen = node.inputs[0]
    for index in (1, 2):
        shown = node.inputs[index]
        number = scalar(graph, node.inputs[3 - index])
        inverted = index == 2
        if seen is None or shown is None or number is None or not _is_product(graph, shown):
            continue
        if number == -math.inf or (number <= _LOW and _every_query_sees(graph, seen, inverted)):
            return shown, Mask(seen, inverted, node, None)
    return None


def _is_product(graph: Graph, ref: Ref) -> bool:
    """Is it a matrix product, or a multiple of one?"""
    node = graph.producer(ref)
    factor = scalar_factor(graph, node)
    return node.op == "MatMul" or (factor is not None and graph.producer(factor[0]).op == "MatMul")


def _every_query_sees(graph: Graph, ref: Ref, inverted: bool) -> bool:
    """Does a constant mask leave each query a key? Then it does not matter whether the others get
    -∞ or just very little.
    """
    value = graph.const_value(ref)
    return value is not None and value.ndim > 0 and bool((value != inverted).any(axis=-1).all())


def mask_fits(graph: Graph, mask: Mask, scores: Shape, dtype: DType) -> bool:
    """Does the mask certainly broadcast to the (batch, heads, queries, keys) of the scores and no
    further?
    """
    shape = shape_of(graph, mask.ref)
    if shape is None or len(shape) > 4 or dtype_of(graph, mask.ref) not in {DType.BOOL, dtype}:
        return False
    can_spread = graph.const_value(mask.ref) is not None and all(map(_is_number, scores[2:]))
    # Attention takes a mask with fewer keys as one that hides the rest: the last axis does not
    # broadcast.
    if not can_spread and (len(shape) < 2 or not same_dim(shape[-1], scores[-1])):
        return False
    return broadcasts_into(shape, scores)


def _is_number(dim: Dim) -> TypeGuard[int]:
    """Is it known now, and not only when the model is called?"""
    return isinstance(dim, int) and not is_symbolic(dim)


def mask_input(
    graph: Graph, edit: Edit, mask: Mask, q: Ref, scores: Shape, attrs: dict[str, Attr]
) -> Ref | None:
    """The mask as Attention takes it, with a row for each query. What a constant mask says may go
    into `attrs` instead.
    """
    value = graph.const_value(mask.ref)
    if value is not None:
        return _constant(graph, edit, mask, value, scores, attrs)
    ref = (
        edit.node("Not", [mask.ref], of=[mask.node], kind=EdgeKind.INSERT).ref()
        if mask.inverted
        else _above_lowest(graph, edit, mask)
    )
    return _with_rows(graph, edit, mask, ref, q, scores)


def _above_lowest(graph: Graph, edit: Edit, mask: Mask) -> Ref:
    """The mask with -10³⁰ for anything finite that is lower.

    It gives the same weights. But some runtimes take the lowest float for -∞ and give zeros where
    no key is seen, not the mean.
    """
    maker = mask.maker
    if maker is None or dtype_of(graph, mask.ref) not in _WIDE:
        return mask.ref
    numbers = [scalar(graph, ref) for ref in maker.inputs[1:]]
    low = [number is not None and -math.inf < number < _HIDDEN for number in numbers]
    if not any(low):
        return mask.ref
    hidden = np.array(_HIDDEN, dtype_of(graph, mask.ref).numpy)
    inputs = [
        edit.const(hidden) if lower else ref
        for ref, lower in zip(maker.inputs[1:], low, strict=True)
    ]
    return edit.node(
        "Where", [maker.inputs[0], *inputs], maker.attrs, maker.outputs, of=[maker]
    ).ref()


def _with_rows(graph: Graph, edit: Edit, mask: Mask, ref: Ref, q: Ref, scores: Shape) -> Ref:
    """The mask with a row for each query, as runtimes want it. Layers that share a mask come to
    share this, as duplicates.
    """
    shape, queries, keys = shape_of(graph, mask.ref), scores[2], scores[3]
    if shape is None or same_dim(shape[-2], queries):
        return ref
    one = edit.sizes([1])
    make = Maker(edit, [mask.node], EdgeKind.INSERT)
    if isinstance(queries, int):
        return make("Expand", ref, edit.sizes([queries, 1]))
    # As many queries as keys, or as many as there are.
    rows = (
        make("Shape", mask.ref, start=len(shape) - 1)
        if same_dim(queries, keys)
        else make("Shape", q, start=2, end=3)
    )
    return make("Expand", ref, make("Concat", rows, one, axis=0))


def _constant(
    graph: Graph, edit: Edit, mask: Mask, value: np.ndarray, scores: Shape, attrs: dict[str, Attr]
) -> Ref | None:
    seen = ~value if mask.inverted else value
    queries, keys = scores[2], scores[3]
    if _is_number(queries) and _is_number(keys):
        seen = np.broadcast_to(seen, (*value.shape[:-2], queries, keys))
        if bool(seen.all()) if seen.dtype == np.bool_ else not seen.any():
            return None
        if _is_causal(seen):
            attrs["is_causal"] = 1
            return None
    if seen.dtype in {kind.numpy for kind in _WIDE} and bool((seen < _HIDDEN).all(axis=-1).any()):
        seen = np.where(np.isfinite(seen), np.maximum(seen, seen.dtype.type(_HIDDEN)), seen)
    unchanged = seen.shape == value.shape and np.array_equal(
        seen, value, equal_nan=seen.dtype.kind == "f"
    )
    if unchanged:
        return mask.ref
    return edit.const(np.ascontiguousarray(seen), name=graph.producer(mask.ref).name)


def _is_causal(mask: np.ndarray) -> bool:
    """Does it hide the keys after each query, all of them and nothing else?"""
    queries, keys = mask.shape[-2:]
    causal = np.tri(queries, keys, dtype=np.bool_)
    seen, hidden = (mask, ~mask) if mask.dtype == np.bool_ else (mask == 0, mask <= _HIDDEN)
    return queries == keys and bool((seen == causal).all() and (hidden != causal).all())
