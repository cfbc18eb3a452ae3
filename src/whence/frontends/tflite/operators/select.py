"""Selection by condition, of the largest, the distinct, the non-zero, of boxes; reversal,
diagonals.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.flexible import FlexibleOptions
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _choose(call: OperatorCall, condition: Ref) -> None:
    call.move(partial(call.op, "Where", condition), (1, 2))


def _select(call: OperatorCall) -> None:
    condition, rank = call.needed(0), call.rank(1)
    if call.rank(0) == 1 and rank > 1:
        # A list of conditions chooses whole rows.
        condition = call.op("Unsqueeze", condition, call.ints(*range(1, rank)))
    _choose(call, condition)


def _where(call: OperatorCall) -> None:
    call.output_codes(0, call.op("Transpose", call.op("NonZero", call.needed(0)), perm=(1, 0)))


def _top_k(call: OperatorCall) -> None:
    count = call.op("Reshape", call.cast(call.needed(1), DType.I64), call.ints(1))
    keeps = call.keeps_codes()
    values, places = call.emit(
        "TopK",
        [call.needed(0) if keeps else call.real(0), count],
        {"axis": -1, "largest": 1, "sorted": 1},
        outputs=2,
    )
    if keeps:
        call.output_codes(0, values)
    else:
        call.output(0, values)
    call.output_codes(1, call.cast(places, call.output_type(1).dtype))


def _unique(call: OperatorCall) -> None:
    """The distinct values in the order of appearance, and for each element its value's index."""
    values, _, numbers = call.emit("Unique", [call.needed(0)], {"sorted": 0}, outputs=3)
    call.output_codes(0, values)
    call.output_codes(1, call.cast(numbers, call.output_type(1).dtype))


def _reverse(call: OperatorCall) -> None:
    rank, axes = call.rank(0), call.numbers(1, "axes")
    if any(not -rank <= axis < rank for axis in axes):
        call.fail(f"axes {list(axes)} are not all of {rank}")
    count = len(axes)
    # From the last element back past the first.
    first, beyond = call.ints(*[-1] * count), call.ints(*[np.iinfo(np.int64).min] * count)
    call.move(
        lambda x: call.op("Slice", x, first, beyond, call.ints(*axes), call.ints(*[-1] * count)),
    )


def _reverse_sequence(call: OperatorCall) -> None:
    """ONNX's works on the first two axes, so others are brought there and back."""
    rank, time, batch = call.rank(0), call.integer("seq_dim"), call.integer("batch_dim")
    if not (-rank <= time < rank and -rank <= batch < rank) or time % rank == batch % rank:
        call.fail(f"its sequences run along axis {time}, its batch along {batch} of {rank}")
    time, batch = time % rank, batch % rank
    lengths = call.cast(call.needed(1), DType.I64)
    order = (batch, time, *(axis for axis in range(rank) if axis not in (batch, time)))
    back = tuple(order.index(axis) for axis in range(rank))

    def reversed_(x: Ref) -> Ref:
        if {time, batch} == {0, 1}:
            return call.op("ReverseSequence", x, lengths, time_axis=time, batch_axis=batch)
        x = call.op("Transpose", x, perm=order)
        x = call.op("ReverseSequence", x, lengths, time_axis=1, batch_axis=0)
        return call.op("Transpose", x, perm=back)

    call.move(reversed_)


def _diagonal(rows: int, columns: int, call: OperatorCall) -> Ref:
    if rows * columns > 1 << 24:
        call.fail(f"its matrices have {rows} rows and {columns} columns")
    return call.const(np.eye(rows, columns, dtype=np.bool_))


def _matrix_diag(call: OperatorCall) -> None:
    shape = call.type(0).shape
    size = shape[-1] if shape else None
    if not isinstance(size, int):
        call.unsupported(f"the length of its diagonal, of {call.type(0)}, is not known")
    codes = call.needed(0)
    zero = call.const(np.zeros((), call.tensor_type_of(codes).dtype.numpy))
    rows = call.op("Unsqueeze", codes, call.ints(-2))
    call.output_codes(0, call.op("Where", _diagonal(size, size, call), rows, zero))


def _matrix_set_diag(call: OperatorCall) -> None:
    shape = call.type(0).shape or ()
    rows, columns = shape[-2:] if len(shape) > 1 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int):
        call.unsupported(f"the size of its matrices, {call.type(0)}, is not known")
    # The diagonal is as long as the shorter side, and broadcasts along the other.
    line = call.op("Unsqueeze", call.needed(1), call.ints(-2 if rows >= columns else -1))
    call.output_codes(0, call.op("Where", _diagonal(rows, columns, call), line, call.needed(0)))


def _bucketise(call: OperatorCall) -> None:
    """How many of the ascending bounds an element reaches."""
    found = call.options.get("boundaries", ())
    bounds = np.array(found if isinstance(found, tuple) else (), np.float32)
    x = call.op("Unsqueeze", call.cast(call.needed(0), DType.F32), call.ints(-1))
    reached = call.cast(call.op("GreaterOrEqual", x, call.const(bounds)), DType.I32)
    call.output_codes(0, call.op("ReduceSum", reached, call.ints(-1), keepdims=0))


def _suppression(call: OperatorCall, soft: bool) -> None:
    """Boxes that do not overlap better ones: indices, scores if soft, and their count."""
    inputs = [
        call.needed(index) if index == 2 else call.real(index) for index in range(6 if soft else 5)
    ]
    indices, scores, count = call.emit("PaddedNonMaxSuppression", inputs, outputs=3)
    call.outputs((indices, scores, count) if soft else (indices, count))


# ---- the custom operator at the end of SSD detectors ----

WHOLE_DETECTION_OPTIONS = {
    "max_detections": 0,
    "max_classes_per_detection": 1,
    "detections_per_class": 100,
    "num_classes": 0,
    "use_regular_nms": 0,
}
REAL_DETECTION_OPTIONS = {
    "nms_score_threshold": 0.0,
    "nms_iou_threshold": 0.0,
    "y_scale": 1.0,
    "x_scale": 1.0,
    "h_scale": 1.0,
    "w_scale": 1.0,
}


def _post_process(call: OperatorCall) -> None:
    given = FlexibleOptions(call)
    attrs: dict[str, Attr] = {
        name: given.integer(name, absent) for name, absent in WHOLE_DETECTION_OPTIONS.items()
    }
    attrs |= {name: given.number(name, absent) for name, absent in REAL_DETECTION_OPTIONS.items()}
    inputs = [call.real(0), call.real(1), call.real(2)]
    call.outputs(call.emit("DetectionPostProcess", inputs, attrs, outputs=4))


MAPPINGS: Mappings = {
    "BUCKETIZE": _bucketise,
    "CUSTOM:TFLite_Detection_PostProcess": _post_process,
    "MATRIX_DIAG": _matrix_diag,
    "MATRIX_SET_DIAG": _matrix_set_diag,
    "NON_MAX_SUPPRESSION_V4": partial(_suppression, soft=False),
    "NON_MAX_SUPPRESSION_V5": partial(_suppression, soft=True),
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SELECT": _select,
    "SELECT_V2": lambda call: _choose(call, call.needed(0)),
    "TOPK_V2": _top_k,
    "UNIQUE": _unique,
    "WHERE": _where,
}
