"""Choosing among boxes as edge models do it: a list of fixed length, what is not filled is zero,
and a count.

`PaddedNonMaxSuppression` is TFLite's operator of versions 4 and 5 (`NonMaxSuppression` is ONNX's,
whose list has the length it needs). `DetectionPostProcess` is the last operator of SSD detectors:
it decodes boxes against anchors and suppresses.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Call, OpDef, TypeQuery, Value
from whence.ops.operand import named, with_optional
from whence.ops.operands.checks import demand, exceeds, shape_of
from whence.ops.precision import number, tensor
from whence.ops.tensor.selection import overlap, suppress
from whence.ops.types.type_rules import const_ints
from whence.types import Dim, DType, TensorType, ValueType

_CODE = 4
"""Numbers of a box: its place and its size, against those of an anchor."""
_MOST = 1 << 24
"""No detector asks for more boxes; a file that does is hostile."""


def suppress_softly(
    boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, floor: float, sigma: float
) -> tuple[list[int], list[float]]:
    """The boxes kept, best first, and their scores. With `sigma` > 0 an overlap lowers a score
    before it rules a box out.
    """
    decay = -0.5 / sigma if sigma > 0 else 0.0
    # Entries: score (best first), box, and how many of the kept boxes it was compared with already.
    queue = [(-float(score), index, 0) for index, score in enumerate(scores) if score > floor]
    heapq.heapify(queue)
    kept: list[int] = []
    found: list[float] = []
    while queue and len(kept) < limit:
        negative, box, seen = heapq.heappop(queue)
        score = np.float32(-negative)
        before, gone = score, False
        for ratio in overlap(boxes[box], boxes[kept[seen:]])[::-1]:
            if ratio >= threshold:
                gone = True
                break
            if sigma > 0:
                score = np.float32(score * np.float32(math.exp(decay * float(ratio) ** 2)))
            if score <= floor:
                break
        if gone:
            continue
        if score == before:
            kept.append(box)
            found.append(float(score))
        elif score > floor:
            heapq.heappush(queue, (-float(score), box, len(kept)))
    return kept, found


def _padded_suppression(call: Call) -> tuple[Value, Value, Value]:
    boxes, scores = tensor(call, 0), tensor(call, 1)
    limit = int(number(call, 2, 0))
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise ModelError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
    if not 0 <= limit <= _MOST:
        raise ModelError(f"{limit} boxes are asked for")
    threshold, floor, sigma = (float(number(call, index, 0)) for index in (3, 4, 5))
    kept, found = suppress_softly(boxes, scores, limit, threshold, floor, sigma)
    indices, values = np.zeros(limit, np.int32), np.zeros(limit, np.float32)
    indices[: len(kept)], values[: len(kept)] = kept, found
    return indices, values, np.array(len(kept), np.int32)


def _padded_suppression_type(query: TypeQuery) -> tuple[ValueType, ...]:
    limit = const_ints(query, 2)
    count: Dim = limit[0] if limit and limit[0] >= 0 else None
    return (
        TensorType(DType.I32, (count,)),
        TensorType(DType.F32, (count,)),
        TensorType(DType.I32, ()),
    )


def _decode(call: Call) -> np.ndarray:
    """Boxes as corners, from offsets (y, x, log h, log w) against anchors as centre and size."""
    codes, anchors = tensor(call, 0), tensor(call, 2)
    if (
        codes.ndim != 3
        or codes.shape[0] != 1
        or codes.shape[2] < 4
        or anchors.shape != (codes.shape[1], 4)
    ):
        raise ModelError(f"boxes {list(codes.shape)} and anchors {list(anchors.shape)} do not fit")
    scales = np.array(
        [get_float(call.attrs, name, 1.0) for name in ("y_scale", "x_scale", "h_scale", "w_scale")],
        np.float32,
    )
    codes = codes[0, :, :4] / scales
    centres = codes[:, :2] * anchors[:, 2:] + anchors[:, :2]
    half_sizes = np.float32(0.5) * np.exp(codes[:, 2:]) * anchors[:, 2:]
    return np.concatenate([centres - half_sizes, centres + half_sizes], axis=1).astype(np.float32)


def _suppress(call: Call, boxes: np.ndarray, scores: np.ndarray, limit: int) -> list[int]:
    threshold = get_float(call.attrs, "nms_iou_threshold", 0.0)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= get_float(call.attrs, "nms_score_threshold", 0.0)]
    return suppress(boxes, order, limit, threshold)


class _Found(NamedTuple):
    """One line of the answer."""

    row: int
    box: int
    label: int
    score: float


def _fast(
    call: Call, boxes: np.ndarray, scores: np.ndarray, limit: int
) -> tuple[list[_Found], int]:
    """Suppress by each box's best class; then list the best classes of the boxes that are left."""
    each = get_int(call.attrs, "max_classes_per_detection", 1)
    kept = _suppress(call, boxes, scores.max(axis=1), limit)
    ranked = np.argsort(-scores[kept], axis=1, kind="stable")[:, :each]
    found = [
        _Found(each * position + rank, box, int(label), float(scores[box, label]))
        for position, (box, labels) in enumerate(zip(kept, ranked, strict=True))
        for rank, label in enumerate(labels)
    ]
    return found, len(kept)


def _regular(
    call: Call, boxes: np.ndarray, scores: np.ndarray, limit: int
) -> tuple[list[_Found], int]:
    """Suppress within each class, then take the best of all classes."""
    each = get_int(call.attrs, "detections_per_class", 100)
    best: list[tuple[float, int, int]] = []
    for label in range(scores.shape[1]):
        best.extend(
            (float(scores[box, label]), box, label)
            for box in _suppress(call, boxes, scores[:, label], each)
        )
        best = sorted(best, key=lambda item: -item[0])[:limit]
    return [_Found(row, box, label, score) for row, (score, box, label) in enumerate(best)], len(
        best
    )


def detection_rows(call: Call | TypeQuery) -> int:
    """How many rows the lists of a `DetectionPostProcess` have."""
    limit = get_int(call.attrs, "max_detections", 0)
    each = get_int(call.attrs, "max_classes_per_detection", 1)
    rows = limit if get_int(call.attrs, "use_regular_nms", 0) else limit * each
    if limit < 0 or each < 1 or rows > _MOST:
        raise ModelError(f"max_detections {limit} with {each} classes each")
    return rows


def _post_process(call: Call) -> tuple[Value, Value, Value, Value]:
    boxes, scores = _decode(call), tensor(call, 1)
    classes = get_int(call.attrs, "num_classes", 0)
    if (
        scores.ndim != 3
        or scores.shape[:2] != (1, boxes.shape[0])
        or not 1 <= classes <= scores.shape[2]
    ):
        raise ModelError(
            f"scores {list(scores.shape)} do not fit {boxes.shape[0]} boxes of {classes} classes"
        )
    rows, limit = detection_rows(call), get_int(call.attrs, "max_detections", 0)
    # A class more than there are is the background, and stands first.
    scores = scores[0, :, scores.shape[2] - classes :]
    found, count = (_regular if get_int(call.attrs, "use_regular_nms", 0) else _fast)(
        call, boxes, scores, limit
    )
    places = np.zeros((1, rows, 4), np.float32)
    labels = np.zeros((1, rows), np.float32)
    values = np.zeros((1, rows), np.float32)
    for row, box, label, score in found:
        places[0, row], labels[0, row], values[0, row] = boxes[box], label, score
    return places, labels, values, np.array([count], np.float32)


def _post_process_type(query: TypeQuery) -> tuple[ValueType, ...]:
    rows = detection_rows(query)
    return (
        TensorType(DType.F32, (1, rows, 4)),
        TensorType(DType.F32, (1, rows)),
        TensorType(DType.F32, (1, rows)),
        TensorType(DType.F32, (1,)),
    )


def _check_post_process(query: TypeQuery) -> None:
    """As many codes and scores as there are anchors, of four numbers and of all classes."""
    anchors = shape_of(query, 2)
    boxes = anchors[0] if anchors else None
    demand(query, 0, (1, boxes, None), "the list of boxes")
    demand(query, 1, (1, boxes, None), "the list of scores")
    demand(query, 2, (boxes, _CODE), "the list of anchors")
    codes, scores = shape_of(query, 0), shape_of(query, 1)
    if codes is not None and exceeds(_CODE, codes[2]):
        raise ModelError(f"boxes {query.types[0]} have fewer than {_CODE} numbers")
    classes = get_int(query.attrs, "num_classes", 0)
    if scores is not None and (classes < 1 or exceeds(classes, scores[2])):
        raise ModelError(f"{classes} classes do not fit scores {query.types[1]}")


OPS: tuple[OpDef, ...] = (
    OpDef(
        "PaddedNonMaxSuppression",
        infer=_padded_suppression_type,
        reference=_padded_suppression,
        operands=with_optional(
            4,
            named(
                "boxes",
                "scores",
                "max_output_size",
                "iou_threshold",
                "score_threshold",
                "soft_nms_sigma",
            ),
        ),
    ),
    OpDef(
        "DetectionPostProcess",
        infer=_post_process_type,
        reference=_post_process,
        check=_check_post_process,
        operands=named("boxes", "scores", "anchors"),
    ),
)
