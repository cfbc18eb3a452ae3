"""Scaled dot-product attention in one kernel: the scores of a few queries exist only while they are
needed.

y[b, h, m] = Σ_n softmax_n(score(Σ_d Q[b, h, m, d] · K[b, h, n, d])) · V[b, h, n]

K is packed once for each head, transposed so that a step of the product reads neighbouring keys; V
is read as it lies. Q, K and V may be any strided views of the group's inputs: transposes, reshapes,
slices and repeated heads in the group cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from whence.errors import UnsupportedError
from whence.extent import estimate, is_symbolic, same_shape, surely_equal
from whence.graph import Node, Ref
from whence.kernels.attention_program import (
    ACCUMULATOR,
    BATCH,
    COLUMN,
    HEAD,
    KEY,
    ROW,
    SCORE,
    Attention,
)
from whence.kernels.cost import chunk_size
from whence.kernels.elements import Elements, Indices
from whence.kernels.expressions import apply, below, both, cast, position, select
from whence.kernels.group import Group
from whence.kernels.index import Index, LoadedIndex, Var, of, strided, unravel
from whence.kernels.ir import Expr, Fn, Kernel, Literal, Load, Store
from whence.kernels.product.gemm_program import Matrix
from whence.kernels.rules.elementwise import add, div, mul, sub
from whence.kernels.tile import Tile
from whence.ops.attributes import get_float, get_int
from whence.types import DType

# What a work item costs besides its rows, in tiles of rows: packing the keys.
_ITEM_TILES = 0.5


def lower_attention(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is an Attention of single-precision values, with or without
    the views around it.
    """
    shapes = _Shapes.of(group, anchor)
    if (
        len(anchor.outputs) > 1
        or anchor.operand("past_key") is not None
        or anchor.operand("past_value") is not None
    ):
        raise UnsupportedError(f"Attention '{anchor.name}' keeps past keys or shows its scores")
    if any(group.dtype(ref) is not DType.F32 for ref in anchor.inputs[:3] if ref is not None):
        raise UnsupportedError(f"Attention '{anchor.name}' is not in single precision")
    mask = anchor.operand("attn_mask")
    if mask is not None and 0 in group.shape(mask):
        raise UnsupportedError(f"Attention '{anchor.name}' has an empty mask")
    if 0 in (shapes.batch, shapes.heads, shapes.queries, shapes.keys, shapes.size, shapes.width):
        raise UnsupportedError(f"Attention '{anchor.name}' has an empty operand")
    # A single query of each head: the heads that share their keys are the rows.
    stacked = shapes.queries == 1 and shapes.shared > 1
    heads, rows = (shapes.kv_heads, shapes.shared) if stacked else (shapes.heads, shapes.queries)
    batch = Var(BATCH, shapes.batch)
    head = Var(HEAD, heads)
    row = Var(ROW, rows)
    key = Var(KEY, shapes.keys)
    query_head = of(head) * shapes.shared + of(row) if stacked else of(head)
    kv_head = of(head) if stacked else of(head) // shapes.shared
    query = of(0) if stacked else of(row)

    elements = group.elements()
    depth, column = Var("d", shapes.size), Var(COLUMN, shapes.width)
    q = _view(elements, anchor, 0, (of(batch), query_head, query, of(depth)), row, depth)
    k = _view(elements, anchor, 1, (of(batch), kv_head, of(key), of(depth)), key, depth)
    v = _view(elements, anchor, 2, (of(batch), kv_head, of(key), of(column)), key, column)
    length = _length(elements, anchor, of(batch))
    place = (of(batch), query_head, query, of(key))
    score, scale, reach = _score(elements, anchor, shapes, place, length)
    output = _result(group, anchor, shapes, (of(batch), query_head, query, of(column)))

    if not is_symbolic(rows):
        tile = _fitted(tile, rows)
    tiles = -(-estimate(rows) // tile.rows)
    block_tiles = chunk_size(
        tiles, estimate(shapes.batch * heads), tile.threads, overhead=_ITEM_TILES
    )
    micro = Attention(
        shapes.batch, heads, rows, shapes.keys, shapes.size, shapes.width, q, k, v, score, scale,
        None if stacked else reach, tile, block_tiles, output, length, shapes.queries,
    )  # fmt: skip
    tasks = shapes.batch * heads * micro.blocks
    return group.kernel(tasks, micro, scratch_bytes=4 * sum(micro.scratch))


def _fitted(tile: Tile, rows: int) -> Tile:
    """The tile with the height that covers `rows` with the least work: a last tile that overlaps
    the one before is computed in full.
    """
    if rows <= tile.rows:
        return tile.fitted(rows)
    height = min(
        range(tile.rows // 2, tile.rows + 1), key=lambda height: -(-rows // height) * (height + 1)
    )
    return replace(tile, rows=height)


@dataclass(frozen=True, slots=True)
class _Shapes:
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    width: int

    @property
    def shared(self) -> int:
        """Query heads that share one head of keys and values."""
        return self.heads // self.kv_heads

    @classmethod
    def of(cls, group: Group, anchor: Node) -> _Shapes:
        q, k, v = (group.shape(ref) for ref in anchor.inputs[:3] if ref is not None)
        if len(q) == 4:
            found = cls(q[0], q[1], k[1], q[2], k[2], q[3], v[3])
        else:
            heads, kv_heads = (
                get_int(anchor.attrs, f"{whose}_num_heads", 0) for whose in ("q", "kv")
            )
            if heads <= 0 or kv_heads <= 0:
                raise UnsupportedError(
                    f"Attention '{anchor.name}' does not say how many heads it has"
                )
            found = cls(q[0], heads, kv_heads, q[1], k[1], q[2] // heads, v[2] // kv_heads)
        if found.heads % max(found.kv_heads, 1):
            raise UnsupportedError(
                f"Attention '{anchor.name}': {found.heads} query heads cannot share"
                f" {found.kv_heads} key heads"
            )
        return found


def _packed(index: Indices, size: int, rank: int) -> Indices:
    """(batch, head, row, column) as an index of a value whose heads may lie side by side in its
    last dimension.
    """
    if rank == 4:
        return index
    batch, head, row, column = index
    return batch, row, head * size + column


def _view(
    elements: Elements, anchor: Node, slot: int, index: Indices, row: Var, column: Var
) -> Matrix:
    ref = anchor.inputs[slot]
    assert ref is not None
    value = elements.value(ref, _packed(index, column.extent, len(elements.shape(ref))))
    if not isinstance(value, Load):
        raise UnsupportedError(
            f"Attention '{anchor.name}': input {slot} is not a view of a stored value"
        )
    by_row, by_column = (value.index.coefficient(var) for var in (row, column))
    base = value.index - of(row) * by_row - of(column) * by_column
    if any(base.depends_on(var) for var in (row, column) if var.extent > 1):
        raise UnsupportedError(f"Attention '{anchor.name}': input {slot} is not a strided view")
    return Matrix(value.buffer, base, by_row, by_column)


def _length(elements: Elements, anchor: Node, batch: Index) -> Expr | None:
    """How many keys there are, if that is given."""
    lengths = anchor.operand("nonpad_kv_seqlen")
    return None if lengths is None else cast(elements.value(lengths, (batch,)), DType.I64)


def _score(
    elements: Elements, anchor: Node, shapes: _Shapes, index: Indices, length: Expr | None
) -> tuple[Expr, Literal, int | None]:
    """What softmax sees of a product up to a factor, the factor, and how far past its own number a
    query sees at most.
    """
    attrs, (_, _, query, key) = anchor.attrs, index
    score: Expr = SCORE
    scale = Literal(get_float(attrs, "scale", 1 / math.sqrt(shapes.size)), DType.F32)
    one = Literal(1.0, DType.F32)
    if not _is_plain(anchor):
        score, scale = mul(score, scale) if scale != one else score, one
    if (softcap := get_float(attrs, "softcap", 0.0)) > 0:
        cap = Literal(softcap, DType.F32)
        score = mul(apply(Fn.TANH, div(score, cap)), cap)
    seen, reach = _visible(anchor, shapes, query, key, length)
    mask = anchor.operand("attn_mask")
    if mask is not None:
        extent = elements.shape(mask)[-1]
        at = key
        is_short = not surely_equal(extent, shapes.keys) and extent < shapes.keys
        if is_short:
            # What lies behind the mask's end is never used, and not read either.
            last = Literal(extent - 1, DType.I64)
            at = of(LoadedIndex(apply(Fn.MIN, position(key), last), extent))
        value = elements.broadcast(mask, (*index[:-1], at))
        # The last dimension does not broadcast: keys that the mask does not reach are hidden.
        covered = below(key, extent) if is_short else Literal(True, DType.BOOL)
        if value.dtype is DType.BOOL:
            seen = both(both(seen, covered), value)
        else:
            seen = both(seen, covered)
            score = add(score, cast(value, DType.F32))
    precision = DType(get_int(attrs, "softmax_precision", 0))
    if precision in (DType.F16, DType.BF16):
        score = cast(cast(score, precision), DType.F32)
    return select(seen, score, Literal(-math.inf, DType.F32)), scale, reach


def _is_plain(anchor: Node) -> bool:
    """Is the score a positive multiple of the product where it is not hidden by position alone?"""
    attrs = anchor.attrs
    return (
        anchor.operand("attn_mask") is None
        and get_int(attrs, "softmax_precision", 0) == 0
        and get_float(attrs, "softcap", 0.0) <= 0
        and get_float(attrs, "scale", 1.0) > 0
    )


def _visible(
    anchor: Node, shapes: _Shapes, query: Index, key: Index, length: Expr | None
) -> tuple[Expr, int | None]:
    """Whether a query sees a key that is there, as far as positions and lengths tell."""
    causal = bool(get_int(anchor.attrs, "is_causal", 0))
    left, right = (get_int(anchor.attrs, f"{side}_window_size", -1) for side in ("left", "right"))
    seen: Expr = Literal(True, DType.BOOL)
    distance = position(key - query)
    if length is not None:
        # The queries are the last of the valid keys.
        distance = add(sub(distance, length), Literal(shapes.queries, DType.I64))
    farthest = 0 if causal and right < 0 else min(right, 0) if causal else right
    # A single query behind the valid keys sees all of them.
    is_last = length is not None and surely_equal(shapes.queries, 1)
    if (causal or right >= 0) and not (is_last and farthest >= 0):
        seen = both(seen, apply(Fn.LE, distance, Literal(farthest, DType.I64)))
    if left >= 0:
        seen = both(seen, apply(Fn.LE, Literal(-left, DType.I64), distance))
    return seen, farthest if causal or right >= 0 else None


def _result(group: Group, anchor: Node, shapes: _Shapes, index: Indices) -> Store:
    """Where an element of the result is stored, and what: through the moving and elementwise
    operators fused after the anchor.
    """
    if len(group.outputs) != 1:
        raise UnsupportedError(f"group '{group.name}' exposes more than one value")
    (result,) = group.outputs
    out_shape = group.shape(anchor.ref())
    own = _packed(index, shapes.width, len(out_shape))
    flat = strided(own, _strides_in(group, anchor.ref(), result, out_shape))

    def given(place: Indices) -> Expr:
        if place != own:
            raise UnsupportedError(f"group '{group.name}' moves elements after '{anchor.name}'")
        return ACCUMULATOR

    tail = group.elements({anchor.ref(): given})
    return Store("out0", flat, tail.value(result, unravel(flat, group.shape(result))))


def _strides_in(group: Group, start: Ref, result: Ref, shape: tuple[int, ...]) -> list[int]:
    """How far a step along each dimension of `start` goes in the memory of `result`, which follows
    from it through transposes and reshapes.
    """
    order = list(range(len(shape)))
    users = {ref: node for node in group.members for ref in node.inputs if ref is not None}
    dense = True
    while start != result:
        node = users.get(start)
        if node is None:
            break
        if node.op == "Transpose":
            perm: Any = node.attrs.get("perm") or tuple(reversed(range(len(order))))
            if not dense:
                raise UnsupportedError(f"group '{group.name}' transposes after it reshapes")
            order = [order[int(axis)] for axis in perm]
        elif not same_shape(group.shape(node.ref()), group.shape(start)):
            dense = False
        start = node.ref()
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return strides
