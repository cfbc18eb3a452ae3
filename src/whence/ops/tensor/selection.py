"""Operators that choose among elements: top-k, non-zero places, unique values, one-hot rows, boxes
that do not overlap; and between two values.
"""

from __future__ import annotations

import math

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value
from whence.ops.operand import CONDITION, DATA, INDEX, PARAMETER, UNARY, named
from whence.ops.operands.checks import demand_elements, demand_one
from whence.ops.precision import number, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import axis_of, const_ints, tensor_type
from whence.types import UNKNOWN, Dim, DType, TensorType, ValueType


def top_k(x: np.ndarray, k: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The k largest (or smallest) elements along `axis` in order, and where they stood. Of equals
    the earlier comes first.
    """
    # Widened: NumPy does not know the order of bfloat16's NaN.
    keys = widen(x)
    if largest:
        # A stable ascending sort of the reversed axis, read backwards, is a stable descending sort.
        flipped = np.argsort(np.flip(keys, axis), axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(flipped, axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    indices = np.take(order, range(k), axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int64)


def _top_k(call: Call) -> tuple[Value, Value]:
    x, k = tensor(call, 0), int(number(call, 1))
    axis = axis_of(call, x.ndim, -1)
    if not 0 <= k <= x.shape[axis]:
        raise ModelError(f"k is {k}, but axis {axis} has {x.shape[axis]} elements")
    return top_k(x, k, axis, bool(get_int(call.attrs, "largest", 1)))


def _top_k_type(query: TypeQuery) -> tuple[ValueType, ...]:
    data, k = tensor_type(query, 0), const_ints(query, 1)
    if data.shape is None:
        return TensorType(data.dtype), TensorType(DType.I64)
    axis = axis_of(query, len(data.shape), -1)
    count: Dim = k[0] if k else None
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return TensorType(data.dtype, shape), TensorType(DType.I64, shape)


def _non_zero(call: Call) -> Value:
    x = tensor(call, 0)
    if x.dtype == np.object_:
        x = x != ""
    # A scalar has no axes, so its places have no coordinates.
    return np.array(np.nonzero(x), np.int64) if x.ndim else np.zeros((0, int(bool(x))), np.int64)


def distinct(
    x: np.ndarray, axis: int | None, *, is_sorted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The different elements, or parts along an axis, in order or as they come; where each stood
    first, which of them each is, and how often each is there.
    """
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values, first, inverse, counts = (
            np.take(values, order, axis or 0),
            first[order],
            rank[inverse],
            counts[order],
        )
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _unique(call: Call) -> tuple[Value, Value, Value, Value]:
    x = tensor(call, 0)
    axis = axis_of(call, x.ndim) if "axis" in call.attrs else None
    if x.dtype == np.object_:
        # NumPy orders rows only of its own text type; ONNX orders text by its bytes, as Python
        # does.
        x = x.astype(np.str_)
    return distinct(x, axis, is_sorted=bool(get_int(call.attrs, "sorted", 1)))


def _unique_type(query: TypeQuery) -> tuple[ValueType, ...]:
    x = tensor_type(query, 0)
    some = TensorType(DType.I64, (None,))
    if "axis" not in query.attrs:
        # Of each element it is known which it is, so that there are as many numbers.
        each = None if x.static_shape is None else math.prod(x.static_shape)
        return TensorType(x.dtype, (None,)), some, TensorType(DType.I64, (each,)), some
    if x.shape is None:
        return TensorType(x.dtype), some, some, some
    axis = axis_of(query, len(x.shape))
    parts = TensorType(x.dtype, (*x.shape[:axis], None, *x.shape[axis + 1 :]))
    return parts, some, TensorType(DType.I64, (x.shape[axis],)), some


def _one_hot(call: Call) -> Value:
    indices = tensor(call, 0)
    depth = int(number(call, 1))
    values = tensor(call, 2).reshape(-1)
    if depth < 0:
        raise ModelError(f"the depth is {depth}")
    axis = axis_of(call, indices.ndim + 1, -1)
    indices = np.expand_dims(indices.astype(np.int64), axis)
    classes = np.arange(depth).reshape([-1 if at == axis else 1 for at in range(indices.ndim)])
    hot = (indices == classes) | (indices + depth == classes)
    return np.where(hot, values[1], values[0]).astype(values.dtype, copy=False)


def overlap(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of a box with others, all as (y0, x0, y1, x1) in any order of
    corners. A box without area overlaps nothing.
    """
    low, high = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    first, last = np.minimum(one[:2], one[2:]), np.maximum(one[:2], one[2:])
    areas, area = np.prod(high - low, axis=1), np.prod(last - first)
    common = np.prod(np.maximum(np.minimum(high, last) - np.maximum(low, first), 0), axis=1)
    solid = (areas > 0) & (area > 0)
    return np.asarray(
        np.where(solid, common / np.where(solid, areas + area - common, 1), 0), np.float32
    )


def suppress(boxes: np.ndarray, order: np.ndarray, limit: int, threshold: float) -> list[int]:
    """The boxes kept, of those in `order`, best first: a box goes when its overlap with a better
    one exceeds `threshold`.
    """
    chosen: list[int] = []
    while order.size and len(chosen) < limit:
        best, order = int(order[0]), order[1:]
        chosen.append(best)
        order = order[~(overlap(boxes[best], boxes[order]) > threshold)]
    return chosen


def _non_max_suppression(call: Call) -> Value:
    boxes, scores = tensor(call, 0), tensor(call, 1)
    most, threshold = int(number(call, 2, 0)), np.float32(number(call, 3, 0))
    floor = optional_tensor(call, 4)
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        corners = boxes[batch]
        if get_int(call.attrs, "center_point_box", 0):
            centre, half = corners[:, :2], corners[:, 2:] / 2
            corners = np.concatenate((centre - half, centre + half), axis=1)
        for label in range(scores.shape[1]):
            points = scores[batch, label]
            order = np.argsort(-points, kind="stable")
            if floor is not None:
                order = order[points[order] > floor.reshape(-1)[0]]
            chosen.extend(
                (batch, label, box) for box in suppress(corners, order, most, float(threshold))
            )
    return np.array(chosen, np.int64).reshape(-1, 3)


def _choose(call: Call) -> Value:
    # The side that is not taken need not be there at all.
    return call.inputs[1 if number(call, 0) else 2]


def _check_choose(query: TypeQuery) -> None:
    demand_one(query, 0, "the condition")
    demand_elements(query, 0, (DType.BOOL,), "truth values")
    if len(query.types) > 2 and query.types[1] != query.types[2]:
        raise ModelError(f"{query.types[1]} and {query.types[2]} are not of one type")


OPS: tuple[OpDef, ...] = (
    OpDef(
        "TopK",
        classes=OpClass.REDUCE,
        infer=_top_k_type,
        reference=_top_k,
        operands=named("X", K=PARAMETER),
        traits=Trait.EXACT,
    ),
    OpDef("NonZero", reference=_non_zero, operands=UNARY),
    OpDef("Unique", infer=_unique_type, reference=_unique, operands=UNARY),
    OpDef(
        "OneHot",
        Pattern.INJECTIVE,
        reference=_one_hot,
        operands=named(indices=INDEX, depth=PARAMETER, values=DATA),
        traits=Trait.REPEATS | Trait.GROWS,
    ),
    OpDef(
        "NonMaxSuppression",
        reference=_non_max_suppression,
        operands=named(
            "boxes",
            "scores",
            max_output_boxes_per_class=PARAMETER,
            iou_threshold=PARAMETER,
            score_threshold=PARAMETER,
        ),
    ),
    # Whence's own: one of two values of one type, by a condition of one element. Opaque, so that
    # each value is computed by kernels of its own, which a run can skip.
    OpDef(
        "Choose",
        infer=lambda query: query.types[1] or UNKNOWN,
        reference=_choose,
        flops=0,
        check=_check_choose,
        operands=named(condition=CONDITION, X=DATA, Y=DATA),
    ),
)
