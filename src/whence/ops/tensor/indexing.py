"""Reading and writing elements at computed places: the gather and scatter families."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import (
    Call,
    IndexedAxes,
    Indexing,
    OpClass,
    OpDef,
    Pattern,
    Value,
)
from whence.ops.operand import CONDITION, DATA, INDEX, named
from whence.ops.precision import optional_tensor, tensor
from whence.ops.traits import Trait
from whence.ops.types.type_rules import axis_of, gather, same_type, tensor_type
from whence.types import TensorType

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _gather(call: Call) -> Value:
    x, indices = tensor(call, 0), tensor(call, 1)
    axis = axis_of(call, x.ndim)
    return np.take(x, indices, axis)


def along(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """The index that pairs `indices`, used on `axis`, with their own position on other axes."""
    places = np.ogrid[tuple(slice(size) for size in indices.shape)]
    return tuple(indices if at == axis else place for at, place in enumerate(places))


def _gather_elements(call: Call) -> Value:
    x, indices = tensor(call, 0), tensor(call, 1)
    if x.ndim != indices.ndim:
        raise ModelError(f"indices of rank {indices.ndim} do not fit data of rank {x.ndim}")
    return x[along(indices, axis_of(call, x.ndim))]


def _gather_nd(call: Call) -> Value:
    x, indices, batch = tensor(call, 0), tensor(call, 1), get_int(call.attrs, "batch_dims", 0)
    depth = indices.shape[-1] if indices.ndim else 0
    if (
        not 0 <= batch <= min(x.ndim, indices.ndim - 1)
        or depth > x.ndim - batch
        or x.shape[:batch] != indices.shape[:batch]
    ):
        raise ModelError(
            f"indices of shape {list(indices.shape)} with batch_dims {batch} do not fit"
            f" data of {list(x.shape)}"
        )
    # One leading axis for all batches, so that a batch is one more coordinate.
    batches, count = math.prod(x.shape[:batch]), math.prod(indices.shape[batch:-1])
    data = x.reshape(batches, *x.shape[batch:])
    points = indices.reshape(batches, count, depth)
    # A tuple without coordinates is the whole of its batch.
    which = np.broadcast_to(np.arange(batches)[:, np.newaxis], (batches, count))
    coordinates = (which, *np.moveaxis(points, -1, 0))
    # As one argument: of none, numpy makes no shape without axes.
    return data[coordinates].reshape((*indices.shape[:-1], *x.shape[batch + depth :]))


def scatter(
    x: np.ndarray, where: tuple[Any, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    """A copy of `x` with `updates` written, or combined by `reduction`, at `where`. Repeated places
    combine all their updates.
    """
    result = np.array(x)
    if reduction == "none":
        result[where] = updates
        return result
    _UFUNCS[reduction].at(result, where, updates)
    return result


def _scatter_elements(call: Call) -> Value:
    x, indices, updates = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    if not x.ndim == indices.ndim == updates.ndim or indices.shape != updates.shape:
        raise ModelError(
            f"indices {list(indices.shape)} and updates {list(updates.shape)} do not fit"
            f" data {list(x.shape)}"
        )
    axis = axis_of(call, x.ndim)
    return scatter(x, along(indices, axis), updates, get_str(call.attrs, "reduction", "none"))


def _scatter_nd(call: Call) -> Value:
    x, indices, updates = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    if not indices.ndim or indices.shape[-1] > x.ndim:
        raise ModelError(f"indices of shape {list(indices.shape)} do not fit data {list(x.shape)}")
    return scatter(
        x, tuple(np.moveaxis(indices, -1, 0)), updates, get_str(call.attrs, "reduction", "none")
    )


def _tensor_scatter(call: Call) -> Value:
    past, update, starts = tensor(call, 0), tensor(call, 1), optional_tensor(call, 2)
    axis = axis_of(call, past.ndim, -2)
    length = past.shape[axis]
    if axis == 0:
        raise ModelError("axis is 0, which is that of the batch")
    starts = np.zeros(past.shape[0], np.int64) if starts is None else starts
    places = starts[:, np.newaxis] + np.arange(update.shape[axis])
    if get_str(call.attrs, "mode", "linear") == "circular":
        places = places % length
    elif places.size and not 0 <= places.min() <= places.max() < length:
        raise ModelError(f"the update does not fit the cache of length {length}")
    result = np.array(past)
    # With the sequence axis second, each batch writes whole rows at its own places.
    np.moveaxis(result, axis, 1)[np.arange(past.shape[0])[:, np.newaxis], places] = np.moveaxis(
        update, axis, 1
    )
    return result


def _compress(call: Call) -> Value:
    x, condition = tensor(call, 0), tensor(call, 1).reshape(-1)
    if "axis" not in call.attrs:
        return np.compress(condition, x.reshape(-1))
    return np.compress(condition, x, axis_of(call, x.ndim))


_GATHERS = (
    Trait.SELECTS
    | Trait.MOVES
    | Trait.GATHERS
    | Trait.READS_PART
    | Trait.REPEATS
    | Trait.CHECKS_INDICES
)

_gathering = partial(
    OpDef,
    pattern=Pattern.INJECTIVE,
    classes=OpClass.MOVEMENT,
    flops=0,
    operands=named("data", indices=INDEX),
    traits=_GATHERS,
)
_scattering = partial(
    OpDef,
    classes=OpClass.MOVEMENT,
    infer=same_type,
    flops=0,
    operands=named("data", indices=INDEX, updates=DATA),
    traits=Trait.SCATTERS | Trait.CHECKS_INDICES,
)
OPS: tuple[OpDef, ...] = (
    _gathering(
        "Gather",
        infer=gather,
        reference=_gather,
        indexing=Indexing("data", "indices", IndexedAxes.ATTRIBUTE),
    ),
    _gathering(
        "GatherElements",
        infer=lambda query: TensorType(tensor_type(query, 0).dtype, tensor_type(query, 1).shape),
        reference=_gather_elements,
        indexing=Indexing("data", "indices", IndexedAxes.ATTRIBUTE),
    ),
    _gathering(
        "GatherND", reference=_gather_nd, indexing=Indexing("data", "indices", IndexedAxes.TUPLE)
    ),
    _scattering(
        "ScatterElements",
        reference=_scatter_elements,
        indexing=Indexing("data", "indices", IndexedAxes.ATTRIBUTE),
    ),
    _scattering(
        "ScatterND", reference=_scatter_nd, indexing=Indexing("data", "indices", IndexedAxes.TUPLE)
    ),
    OpDef(
        "TensorScatter",
        classes=OpClass.MOVEMENT,
        infer=same_type,
        reference=_tensor_scatter,
        flops=0,
        operands=named("past_cache", "update", write_indices=INDEX),
    ),
    OpDef(
        "Compress",
        classes=OpClass.MOVEMENT,
        reference=_compress,
        flops=0,
        operands=named("input", condition=CONDITION),
    ),
)
