"""Reading and writing by index: gather, scatter, one-hot rows, embeddings, slices put into another
tensor, and elements combined by segment.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.joining import axis_of
from whence.graph.node import Ref
from whence.ops.quantised.quantise import integer_range
from whence.types import DType

_DEEPEST = 1 << 24
_MOST_STORED = 1 << 16
_MOST_ROWS = 1 << 24
_MOST_PLACES = 1 << 23
_LARGEST = float(np.finfo(np.float32).max)


def _gather(call: OperatorCall) -> None:
    rank = call.rank(0)
    axis = axis_of(call, call.integer("axis"), rank)
    batch = call.integer("batch_dims")
    batch += call.rank(1) if batch < 0 else 0
    indices = call.needed(1)
    if batch == 0:
        call.move(lambda x: call.op("Gather", x, indices, axis=axis))
        return
    if not 0 <= batch <= min(axis, call.rank(1)):
        call.fail(f"it has {batch} batch dimensions before axis {axis}")
    call.move(lambda x: _batched(call, x, call.cast(indices, DType.I64), axis, batch))


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
    call.move(lambda x: call.op("GatherND", x, indices))


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

    call.move(added, (1,))


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
    call.move(lambda table: call.op("Gather", table, call.needed(0), axis=0), (1,))


def _dynamic_update_slice(call: OperatorCall) -> None:
    """The first input with the second put into it at the place that the third says, moved inwards
    where it would stick out.
    """
    whole, part = call.shape(0), call.shape(1)
    if len(whole) != len(part) or any(
        small > large for small, large in zip(part, whole, strict=True)
    ):
        call.fail(f"a slice of shape {list(part)} does not fit into {list(whole)}")
    # Only axes up to the last that the slice does not fill need an index; the rest moves in one
    # piece.
    axes = max(
        (
            axis + 1
            for axis, (small, large) in enumerate(zip(part, whole, strict=True))
            if small != large
        ),
        default=0,
    )
    if np.prod(part[:axes], dtype=object) * axes > _MOST_PLACES:
        call.unsupported(f"a slice of shape {list(part)} in {list(whole)}")

    def written(target: Ref, update: Ref) -> Ref:
        if axes == 0:
            return update
        limits = np.subtract(whole, part)[:axes].astype(np.int64)
        start = call.op(
            "Slice", call.cast(call.needed(2), DType.I64), call.ints(0), call.ints(axes)
        )
        start = call.op("Min", call.op("Max", start, call.ints(*[0] * axes)), call.const(limits))
        places = np.stack(
            np.meshgrid(*(np.arange(size) for size in part[:axes]), indexing="ij"), axis=-1
        ).astype(np.int64)
        return call.op("ScatterND", target, call.op("Add", call.const(places), start), update)

    call.move(written, (0, 1))


def _segment_sum(call: OperatorCall) -> None:
    """Rows that bear the same number are added. The numbers ascend, so the last says how many sums
    there are.
    """
    data, numbers = call.real(0), call.cast(call.needed(1), DType.I64)
    kind, known = call.tensor_type_of(data), call.constant_codes(1)
    shape = kind.static_shape
    if not shape:
        call.unsupported(f"the shape of its input, {kind}, is not known")
    if known is not None and known.size:
        if np.any(known < 0) or np.any(np.diff(known.reshape(-1).astype(np.int64)) < 0):
            call.fail("the numbers of its segments do not ascend")
        rows = int(known.reshape(-1)[-1]) + 1
        if rows > _MOST_ROWS:
            call.fail(f"its segments are numbered up to {rows - 1}")
        wanted = call.ints(rows, *shape[1:])
    else:
        last = call.op("Slice", numbers, call.ints(-1), call.ints(np.iinfo(np.int64).max))
        wanted = call.op(
            "Concat", call.op("Add", last, call.ints(1)), call.ints(*shape[1:]), axis=0
        )
    call.output(0, _combined(call, wanted, numbers, data, 0, "add"))


def _combined(
    call: OperatorCall, shape: Ref, numbers: Ref, data: Ref, start: float, reduction: str
) -> Ref:
    empty = call.op(
        "ConstantOfShape", shape, value=np.array([start], call.tensor_type_of(data).dtype.numpy)
    )
    return call.op(
        "ScatterND", empty, call.op("Unsqueeze", numbers, call.ints(-1)), data, reduction=reduction
    )


def _unsorted(call: OperatorCall, reduction: str) -> None:
    """Elements combined by segment, in any order; an empty segment has the neutral element."""
    data, rank = call.real(0), call.rank(1)
    kind, shape = call.tensor_type_of(data), call.shape(0)
    count = call.numbers(2, "number of segments")
    if len(count) != 1 or not 0 <= count[0] <= _MOST_ROWS:
        call.fail(f"it has {list(count)} segments")
    if not (kind.dtype.is_integer or kind.dtype is DType.F32):
        call.unsupported(f"segments of {kind.dtype}")
    low, high = integer_range(kind.dtype) if kind.dtype.is_integer else (-_LARGEST, _LARGEST)
    start = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
    made = _combined(
        call,
        call.ints(count[0], *shape[rank:]),
        call.cast(call.needed(1), DType.I64),
        data,
        start,
        reduction,
    )
    call.output(0, made)


def _sparse_to_dense(call: OperatorCall) -> None:
    """A tensor of one value, with others at some places."""
    rank, indices = call.rank(0), call.cast(call.needed(0), DType.I64)
    if rank < 2:
        # Places along one axis, or the only one.
        indices = call.op("Reshape", indices, call.ints(-1, 1))
    values, count = call.needed(2), call.shape(0)[0] if rank else 1
    if call.rank(2) == 0:
        values = call.op("Expand", values, call.ints(count))
    empty = call.op("Expand", call.needed(3), call.cast(call.needed(1), DType.I64))
    call.output_codes(0, call.op("ScatterND", empty, indices, values))


MAPPINGS: Mappings = {
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "SCATTER_ND": _scatter_nd,
    "SEGMENT_SUM": _segment_sum,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "UNSORTED_SEGMENT_MAX": partial(_unsorted, reduction="max"),
    "UNSORTED_SEGMENT_MIN": partial(_unsorted, reduction="min"),
    "UNSORTED_SEGMENT_PROD": partial(_unsorted, reduction="mul"),
    "UNSORTED_SEGMENT_SUM": partial(_unsorted, reduction="add"),
}
