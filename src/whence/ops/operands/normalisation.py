"""Normalisations, softmax and its kin, and reductions: operators along axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    along,
    axis_in,
    by_types,
    demand,
    demand_broadcast,
    demand_numbers,
    demand_one,
    demand_rank,
    divided,
    exceeds,
    shape_of,
)
from whence.ops.types.type_rules import const_ints


def _per_channel(*indices: int, fewest: int = 2) -> Check:
    def rule(query: TypeQuery) -> None:
        x = shape_of(query, 0)
        demand_rank(query, 0, fewest)
        if x is not None:
            for index in indices:
                # A list is a batch of single numbers.
                demand(query, index, (x[1] if len(x) > 1 else 1,), f"input {index}")

    return rule


def _group_normalisation(query: TypeQuery) -> None:
    _per_channel(1, 2)(query)
    x = shape_of(query, 0)
    if x is not None:
        divided(x[1], get_int(query.attrs, "num_groups", 0), "channels")


def _row_normalisation(*indices: int) -> Check:
    def rule(query: TypeQuery) -> None:
        x = shape_of(query, 0)
        axis_in(get_int(query.attrs, "axis", -1), x)
        for index in indices:
            demand_broadcast(query, index, x, f"input {index}")

    return rule


def _local_response(query: TypeQuery) -> None:
    demand_rank(query, 0, 2)
    size = get_int(query.attrs, "size", 0)
    if size < 1:
        raise ModelError(f"size is {size}, and should be at least 1")


def _mean_variance_normalisation(query: TypeQuery) -> None:
    """Its axes are those of a batch of images unless the attribute says others."""
    for axis in get_ints(query.attrs, "axes", (0, 2, 3)):
        axis_in(axis, shape_of(query, 0), name="axes")


def _place_of_extreme(query: TypeQuery) -> None:
    x, axis = shape_of(query, 0), get_int(query.attrs, "axis", 0)
    along(0)(query)
    # Where another axis is empty too, nothing is asked for.
    if x and x[axis] == 0 and x.count(0) == 1:
        raise ModelError(f"axis {axis} of {query.types[0]} has no elements to compare")


def _top_k(query: TypeQuery) -> None:
    along(-1, demand_numbers)(query)
    demand_one(query, 1, "k")
    x, k = shape_of(query, 0), const_ints(query, 1)
    if x is None or not k:
        return
    size = x[get_int(query.attrs, "axis", -1)]
    if k[0] < 0 or exceeds(k[0], size):
        raise ModelError(f"k is {k[0]}, and the axis has {size} elements")


_SUMS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Mapping[str, Check] = {
    "BatchNormalization": _per_channel(1, 2, 3, 4, fewest=1),
    "InstanceNormalization": _per_channel(1, 2),
    "GroupNormalization": _group_normalisation,
    "LayerNormalization": _row_normalisation(1, 2),
    "RMSNormalization": _row_normalisation(1),
    "MeanVarianceNormalization": _mean_variance_normalisation,
    "LRN": _local_response,
    "Hardmax": along(-1, demand_numbers),
    **dict.fromkeys(("ArgMax", "ArgMin"), _place_of_extreme),
    # The axes that are reduced decide the shape of the result.
    **dict.fromkeys(("ReduceMax", "ReduceMin"), by_types),
    **dict.fromkeys(_SUMS, partial(demand_numbers, index=0)),
    "TopK": _top_k,
}
