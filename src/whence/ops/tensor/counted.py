"""Values of which a run uses the first rows, as many as the data say. Whence's own.

A kernel cannot make a value whose size it finds out itself, for memory is planned before the run.
It makes as many rows as there can be, and a count. Rows behind those that count repeat the last of
them, or are zero where none counts; so what is computed row by row has that property as well, and
writing them to where the last was written changes nothing (`passes/lower/bound_run_time_sizes.py`).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Attrs, Call, OpDef, TypeQuery, Value
from whence.ops.operand import PARAMETER, UNARY, named
from whence.ops.operands.checks import by_types, demand_elements, demand_one
from whence.ops.precision import number, tensor
from whence.ops.tensor.selection import distinct
from whence.ops.types.type_rules import const_ints, tensor_type
from whence.types import DType, TensorType, ValueType

PLACES = "Places"
DISTINCT = "Distinct"
PREFIX = "Prefix"
ROWS = "Rows"

FIRST_ROWS, SIZES = "first_rows", "sizes"
"""Attributes of a Continuation: the places among what it takes of values whose first rows are
meant, by as many counts that come before them, and of numbers that stand for a value of that size.
"""


def entry_of(attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both of these, in that order."""
    return get_ints(attrs, FIRST_ROWS), get_ints(attrs, SIZES)


def _places(call: Call) -> tuple[Value, Value]:
    x = tensor(call, 0)
    found = np.argwhere(x).astype(np.int64)
    rest = np.zeros((x.size - len(found), x.ndim), np.int64)
    if len(found):
        rest[:] = found[-1]
    return np.concatenate([found, rest]), np.array([len(found)], np.int64)


def _places_type(query: TypeQuery) -> tuple[ValueType, ...]:
    shape = tensor_type(query, 0).static_shape
    rows = None if shape is None else (math.prod(shape), len(shape))
    return TensorType(DType.I64, rows), TensorType(DType.I64, (1,))


def _check_places(query: TypeQuery) -> None:
    if query.types and not tensor_type(query, 0).rank:
        raise ModelError("a scalar has no axes, and so no places")


def _distinct(call: Call) -> tuple[Value, ...]:
    x, is_sorted = tensor(call, 0).reshape(-1), get_int(call.attrs, "sorted", 1)
    values, first, inverse, counts = distinct(x, axis=None, is_sorted=bool(is_sorted))
    count = len(values)
    rows = [
        np.concatenate([each, np.repeat(each[-1:], x.size - count, 0)])
        for each in (values, first, counts)
    ]
    return rows[0], rows[1], inverse, rows[2], np.array([count], np.int64)


def _distinct_type(query: TypeQuery) -> tuple[ValueType, ...]:
    x = tensor_type(query, 0)
    shape = None if x.static_shape is None else (math.prod(x.static_shape),)
    numbers = TensorType(DType.I64, shape)
    return TensorType(x.dtype, shape), numbers, numbers, numbers, TensorType(DType.I64, (1,))


def empty_rows(count: int) -> np.ndarray:
    """A value that has this size, and nothing else."""
    if count < 0:
        raise ModelError(f"{count} is not a size")
    return np.empty(count, np.uint8)


def _rows_type(query: TypeQuery) -> TensorType:
    count = const_ints(query, 0)
    return TensorType(DType.U8, (count[0] if count else None,))


def _prefix(call: Call) -> Value:
    data, count = tensor(call, 0), int(number(call, 1))
    if not 0 <= count <= len(data):
        raise ModelError(f"the first {count} of {len(data)} rows")
    return data[:count]


def _prefix_type(query: TypeQuery) -> TensorType:
    data, count = tensor_type(query, 0), const_ints(query, 1)
    if data.shape is None:
        return data
    return TensorType(data.dtype, (count[0] if count else None, *data.shape[1:]))


def _check_count(query: TypeQuery, index: int) -> None:
    demand_one(query, index, "the count")
    demand_elements(query, index, (DType.I64,), "int64")


OPS: tuple[OpDef, ...] = (
    # Where elements are not zero: a row of coordinates for each, in order; and how many there are.
    OpDef(PLACES, infer=_places_type, reference=_places, check=_check_places, operands=UNARY),
    # The different elements, where each stood first, which of them each element is, how often each
    # is there; and how many there are. In order, or with `sorted=0` as they come.
    OpDef(DISTINCT, infer=_distinct_type, reference=_distinct, check=by_types, operands=UNARY),
    # The first rows.
    OpDef(
        PREFIX,
        infer=_prefix_type,
        reference=_prefix,
        flops=0,
        check=partial(_check_count, index=1),
        operands=named("data", count=PARAMETER),
    ),
    # A value of so many rows that nobody reads: the size of a dimension that the data say.
    OpDef(
        ROWS,
        infer=_rows_type,
        reference=lambda call: empty_rows(int(number(call, 0))),
        flops=0,
        check=partial(_check_count, index=0),
        operands=named(count=PARAMETER),
    ),
)
