"""Operands that must fit each other beyond what the output's type depends on: a bias as long as
there are channels, an index inside its axis.

Kernels read as much of an operand as the operator says there is, so a file whose operands do not
fit is refused when its operator is built. A dimension that is not known yet is not judged; it is
looked at again when a program is made, where all is known that kernels rely on. So are indices, and
only then: branches that are never taken may hold what could never run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import TypeQuery, Value
from whence.types import Dim, Shape, TensorType


def check_operands(query: TypeQuery) -> None:
    """Raise `ModelError` when operands of the operator certainly do not fit each other."""
    rule = _RULES.get(query.op)
    if rule is not None:
        rule(query)


def check_indices(query: TypeQuery) -> None:
    """Raise `ModelError` when a constant index of the operator is outside its axis."""
    if query.op in {"Gather", "GatherElements", "ScatterElements"}:
        x, axis = _shape(query, 0), get_int(query.attrs, "axis", 0)
        if x is not None and -len(x) <= axis < len(x):
            _inside(query, query.values[1], x[axis])
    elif query.op in {"GatherND", "ScatterND"}:
        x, value, batch = _shape(query, 0), query.values[1], get_int(query.attrs, "batch_dims", 0)
        if x is not None and isinstance(value, np.ndarray) and value.ndim:
            for place in range(min(value.shape[-1], len(x) - batch)):
                _inside(query, value[..., place], x[batch + place])


def _shape(query: TypeQuery, index: int) -> Shape | None:
    kind = query.types[index] if index < len(query.types) else None
    return kind.shape if isinstance(kind, TensorType) else None


def _differ(found: Dim, wanted: Dim) -> bool:
    return isinstance(found, int) and isinstance(wanted, int) and found != wanted


def _demand(query: TypeQuery, index: int, wanted: Sequence[Dim], what: str) -> None:
    """Input `index`, if there is one of known rank, has this shape where both are known."""
    found = _shape(query, index)
    if found is not None and (len(found) != len(wanted) or any(map(_differ, found, wanted))):
        raise ModelError(
            f"{query.op}: {what} is {query.types[index]}, and should be"
            f" [{','.join('?' if dim is None else str(dim) for dim in wanted)}]"
        )


def _demand_broadcast(query: TypeQuery, index: int, target: Shape | None, what: str) -> None:
    """Input `index` spreads over `target` without making it larger."""
    found = _shape(query, index)
    if found is None or target is None:
        return
    fits = len(found) <= len(target) and all(
        dim == 1 or not _differ(dim, wanted)
        for dim, wanted in zip(found[::-1], target[::-1], strict=False)
    )
    if not fits:
        raise ModelError(
            f"{query.op}: {what} is {query.types[index]}, which does not spread over"
            f" [{','.join(map(str, target))}]"
        )


def _divided(query: TypeQuery, size: Dim, parts: int, what: str) -> None:
    if parts < 1 or (isinstance(size, int) and size % parts):
        raise ModelError(f"{query.op}: {size} {what} cannot be divided by {parts}")


# ---- convolutions and products ----


def _conv(query: TypeQuery) -> None:
    x, w, groups = _shape(query, 0), _shape(query, 1), get_int(query.attrs, "group", 1)
    if w is None or len(w) < 3:
        return
    _divided(query, w[0], groups, "channels")
    _kernel(query, x, w)
    _demand(query, 2, (w[0],), "the bias")


def _conv_transpose(query: TypeQuery) -> None:
    x, w, groups = _shape(query, 0), _shape(query, 1), get_int(query.attrs, "group", 1)
    if w is None or len(w) < 3:
        return
    _divided(query, w[0], groups, "channels")
    _kernel(query, x, w)
    if x is not None and len(x) > 1 and _differ(x[1], w[0]):
        raise ModelError(
            f"{query.op}: weights {query.types[1]} do not fit an input {query.types[0]}"
        )
    _demand(query, 2, (w[1] * groups if isinstance(w[1], int) else None,), "the bias")


def _kernel(query: TypeQuery, x: Shape | None, w: Shape) -> None:
    if x is not None and len(x) != len(w):
        raise ModelError(
            f"{query.op}: weights {query.types[1]} do not have as many axes as the input"
            f" {query.types[0]}"
        )
    given = get_ints(query.attrs, "kernel_shape", ())
    if given and (len(given) != len(w) - 2 or any(map(_differ, w[2:], given))):
        raise ModelError(
            f"{query.op}: kernel_shape {list(given)} is not that of the weights {query.types[1]}"
        )


def _gemm(query: TypeQuery) -> None:
    a, b = _shape(query, 0), _shape(query, 1)
    if a is not None and b is not None and len(a) == len(b) == 2:
        rows, columns = (
            a[1 if get_int(query.attrs, "transA", 0) else 0],
            b[0 if get_int(query.attrs, "transB", 0) else 1],
        )
        _demand_broadcast(query, 2, (rows, columns), "the addend")


# ---- normalisation ----


def _per_channel(*indices: int) -> Callable[[TypeQuery], None]:
    def rule(query: TypeQuery) -> None:
        x = _shape(query, 0)
        if x is not None and len(x) > 1:
            for index in indices:
                _demand(query, index, (x[1],), f"input {index}")

    return rule


def _spread_over_first(*indices: int) -> Callable[[TypeQuery], None]:
    def rule(query: TypeQuery) -> None:
        for index in indices:
            _demand_broadcast(query, index, _shape(query, 0), f"input {index}")

    return rule


# ---- recurrent networks and attention ----


def _recurrent(gates: int) -> Callable[[TypeQuery], None]:
    def rule(query: TypeQuery) -> None:
        x, w = _shape(query, 0), _shape(query, 1)
        directions = 2 if get_str(query.attrs, "direction", "forward") == "bidirectional" else 1
        hidden: Dim = get_int(query.attrs, "hidden_size", 0) or None
        if hidden is None and w is not None and len(w) == 3 and isinstance(w[1], int):
            hidden = w[1] // gates
        if not isinstance(hidden, int) or x is None or len(x) != 3:
            return
        by_batch = bool(get_int(query.attrs, "layout", 0))
        batch = x[0 if by_batch else 1]
        state = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
        _demand(query, 1, (directions, gates * hidden, x[2]), "W")
        _demand(query, 2, (directions, gates * hidden, hidden), "R")
        _demand(query, 3, (directions, 2 * gates * hidden), "B")
        _demand(query, 4, (batch,), "sequence_lens")
        _demand(query, 5, state, "initial_h")
        if gates == 4:
            _demand(query, 6, state, "initial_c")
            _demand(query, 7, (directions, 3 * hidden), "P")

    return rule


def _attention(query: TypeQuery) -> None:
    q, k, v = (_shape(query, index) for index in range(3))
    if (
        q is None
        or k is None
        or v is None
        or not len(q) == len(k) == len(v)
        or len(q) not in {3, 4}
    ):
        return
    pairs = [("batches", q[0], k[0]), ("batches", q[0], v[0]), ("keys and values", k[-2], v[-2])]
    if len(q) == 4:
        pairs += [
            ("heads of keys and values", k[1], v[1]),
            ("sizes of queries and keys", q[3], k[3]),
        ]
        if isinstance(q[1], int) and isinstance(k[1], int):
            _divided(query, q[1], k[1], "heads of queries")
    past_k, past_v = _shape(query, 4), _shape(query, 5)
    if past_k is not None and past_v is not None and len(past_k) == len(past_v) == 4:
        pairs += [
            ("batches", q[0], past_k[0]),
            ("batches", q[0], past_v[0]),
            ("heads", past_k[1], past_v[1]),
            ("past", past_k[2], past_v[2]),
        ]
        if len(q) == 4:
            pairs += [
                ("heads", k[1], past_k[1]),
                ("sizes of keys", k[3], past_k[3]),
                ("sizes of values", v[3], past_v[3]),
            ]
    for what, left, right in pairs:
        if _differ(left, right):
            raise ModelError(
                f"{query.op}: {what} differ in"
                f" {', '.join(str(kind) for kind in query.types if kind is not None)}"
            )
    _demand(query, 6, (q[0],), "nonpad_kv_seqlen")


# ---- moving ----


def _inside(query: TypeQuery, value: Value | None, size: Dim) -> None:
    """Constant indices into an axis of `size`, which may count from its end."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in "iu"
        or not value.size
        or not isinstance(size, int)
    ):
        return
    low, high = int(value.min()), int(value.max())
    if low < -size or high >= size:
        raise ModelError(
            f"{query.op}: index {low if low < -size else high} is outside an axis of {size}"
        )


def _along_axis(query: TypeQuery) -> None:
    x, axis = _shape(query, 0), get_int(query.attrs, "axis", 0)
    if x is None or not -len(x) <= axis < len(x):
        return
    indices = _shape(query, 1)
    if indices is None:
        return
    others = [place for place in range(len(x)) if place != axis % len(x)]
    longer = len(indices) == len(x) and any(_exceeds(indices[place], x[place]) for place in others)
    if len(indices) != len(x) or longer:
        raise ModelError(f"{query.op}: indices {query.types[1]} do not fit {query.types[0]}")
    if query.op == "ScatterElements":
        _demand(query, 2, indices, "the updates")


def _exceeds(found: Dim, limit: Dim) -> bool:
    return isinstance(found, int) and isinstance(limit, int) and found > limit


def _by_tuples(query: TypeQuery) -> None:
    x, indices, batch = _shape(query, 0), _shape(query, 1), get_int(query.attrs, "batch_dims", 0)
    if x is None or indices is None or not indices or not isinstance(indices[-1], int):
        return
    depth = indices[-1]
    if (
        batch < 0
        or batch + depth > len(x)
        or batch >= len(indices)
        or any(map(_differ, x[:batch], indices[:batch]))
    ):
        raise ModelError(f"{query.op}: indices {query.types[1]} do not fit {query.types[0]}")
    if query.op == "ScatterND":
        _demand(query, 2, (*indices[:-1], *x[depth:]), "the updates")


def _depth_to_space(query: TypeQuery) -> None:
    x, block = _shape(query, 0), get_int(query.attrs, "blocksize", 1)
    if x is not None and len(x) == 4:
        _divided(query, x[1], block * block, "channels")


def _space_to_depth(query: TypeQuery) -> None:
    x, block = _shape(query, 0), get_int(query.attrs, "blocksize", 1)
    for size in x[2:] if x is not None else ():
        _divided(query, size, block, "rows or columns")


def _clip(query: TypeQuery) -> None:
    for index in (1, 2):
        shape = _shape(query, index)
        if shape is not None and any(isinstance(dim, int) and dim != 1 for dim in shape):
            raise ModelError(
                f"{query.op}: a bound is {query.types[index]}, and should be one number"
            )


_RULES: Mapping[str, Callable[[TypeQuery], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "BatchNormalization": _per_channel(1, 2, 3, 4),
    "InstanceNormalization": _per_channel(1, 2),
    "GroupNormalization": _per_channel(1, 2),
    "LayerNormalization": _spread_over_first(1, 2),
    "RMSNormalization": _spread_over_first(1),
    "PRelu": _spread_over_first(1),
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Attention": _attention,
    "GatherElements": _along_axis,
    "ScatterElements": _along_axis,
    "GatherND": _by_tuples,
    "ScatterND": _by_tuples,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Clip": _clip,
}
