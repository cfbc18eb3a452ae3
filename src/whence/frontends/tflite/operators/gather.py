"""Reading and writing by index: gather, scatter, one-hot rows, embeddings."""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.joining import axis_of
from whence.frontends.tflite.operators.moving import move
from whence.graph.node import Ref
from whence.types import DType

_DEEPEST = 1 << 24
_MOST_STORED = 1 << 16


def _gather(call: OperatorCall) -> None:
    rank = call.rank(0)
    axis = axis_of(call, call.integer("axis"), rank)
    batch = call.integer("batch_dims")
    batch += call.rank(1) if batch < 0 else 0
    indices = call.needed(1)
    if batch == 0:
        move(call, lambda x: call.op("Gather", x, indices, axis=axis))
        return
    if not 0 <= batch <= min(axis, call.rank(1)):
        call.fail(f"it has {batch} batch dimensions before axis {axis}")
    move(call, lambda x: _batched(call, x, call.cast(indices, DType.I64), axis, batch))


def _batched(call: OperatorCall, x: Ref, indices: Ref, axis: int, batch: int) -> Ref:
    """Gather with indices of its own for each of the first `batch` dimensions' places.

    GatherND has them too, but reads the dimension right after them. So the axis goes there first,
    and afterwards the dimensions it jumped over go back before those of the indices.
    """
    rank, between = call.rank(0), axis - batch
    if between:
        x = call.op(
            "Transpose",
            x,
            perm=(*range(batch), axis, *(d for d in range(batch, rank) if d != axis)),
        )
    found = call.op("GatherND", x, call.op("Unsqueeze", indices, call.ints(-1)), batch_dims=batch)
    if not between:
        return found
    inner = call.rank(1) - batch
    total = rank - 1 + inner
    order = (
        *range(batch),
        *range(batch + inner, batch + inner + between),
        *range(batch, batch + inner),
        *range(batch + inner + between, total),
    )
    return call.op("Transpose", found, perm=order)


def _gather_nd(call: OperatorCall) -> None:
    indices = call.cast(call.needed(1), DType.I64)
    move(call, lambda x: call.op("GatherND", x, indices))


def _scatter_nd(call: OperatorCall) -> None:
    """Updates are added up in a tensor of zeros."""
    indices, shape = call.cast(call.needed(0), DType.I64), call.cast(call.needed(2), DType.I64)

    def added(updates: Ref) -> Ref:
        dtype = call.tensor_type_of(updates).dtype
        # Truth values are added up by "or", which the largest of numbers is.
        is_truth = dtype is DType.BOOL
        numbers, reduction = (DType.U8, "max") if is_truth else (dtype, "add")
        start = call.op("ConstantOfShape", shape, value=np.zeros(1, numbers.numpy))
        updates = call.cast(updates, numbers)
        made = call.op("ScatterND", start, indices, updates, reduction=reduction)
        return call.cast(made, dtype)

    move(call, added, (1,))


def _one_hot(call: OperatorCall) -> None:
    """Where an index equals the place along the new axis, the third input; elsewhere the fourth. An
    index out of range is nowhere.
    """
    rank = call.rank(0)
    axis = call.integer("axis", -1)
    axis = rank if axis == -1 else axis
    if not 0 <= axis <= rank:
        call.fail(f"axis {axis} is not one of {rank + 1}")
    indices = call.cast(call.needed(0), DType.I64)
    known = call.constant_codes(1)
    depth = None if known is None else int(known.reshape(-1)[0]) if known.size else -1
    if depth is not None and not 0 <= depth <= _DEEPEST:
        call.fail(f"its depth is {depth}")
    if depth is not None and depth <= _MOST_STORED:
        places = call.const(np.arange(depth, dtype=np.int64))
    else:
        limit = call.op("Reshape", call.cast(call.needed(1), DType.I64), call.ints())
        places = call.op("Range", call.scalar(0, DType.I64), limit, call.scalar(1, DType.I64))
    if axis < rank:
        places = call.op("Unsqueeze", places, call.ints(*range(1, rank - axis + 1)))
    hot = call.op("Equal", call.op("Unsqueeze", indices, call.ints(axis)), places)
    call.output_codes(0, call.op("Where", hot, call.needed(2), call.needed(3)))


def _embedding_lookup(call: OperatorCall) -> None:
    # The table may be quantised where the result is not: then the rows chosen are dequantised.
    move(call, lambda table: call.op("Gather", table, call.needed(0), axis=0), (1,))


MAPPINGS: Mappings = {
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "SCATTER_ND": _scatter_nd,
}
