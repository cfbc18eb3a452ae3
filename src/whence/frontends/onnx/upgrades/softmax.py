"""Softmax, LogSoftmax and Hardmax, which before opset 13 flattened their input at `axis`."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite
from whence.types import Shape


def flattened(build: Rewrite, op: str, data: str, axis: int, shape: Shape | None) -> str:
    """`op` over everything from `axis` on, as one dimension. When at most one of those dimensions
    is not 1, it is `op` over that one.
    """
    if axis == -1:
        return build.op(op, data, axis=-1)
    if shape is not None:
        first = axis + len(shape) if axis < 0 else axis
        wide = [index for index in range(first, len(shape)) if shape[index] != 1]
        if len(wide) <= 1:
            return build.op(op, data, axis=wide[0] if wide else len(shape) - 1)
    matrix = build.op(op, build.op("Flatten", data, axis=axis), axis=-1)
    return build.op("Reshape", matrix, build.op("Shape", data))


def shape_with(build: Rewrite, data: str, axis: int) -> Shape | None:
    """The shape of a value, where it is known to have this axis; what has not is refused when it is
    flattened.
    """
    shape = build.shape(data)
    return shape if shape is not None and -len(shape) <= axis < len(shape) else None


def as_result(build: Rewrite) -> list[OpRecord]:
    """Everything built, of which what was made last is the record's result."""
    build.records[-1].outputs = [build.record.output(0)]
    build.records[-1].name = build.record.name
    return build.records


def _coerced(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = record.required(0)
    flattened(build, record.op, data, record.integer("axis", 1), build.shape(data))
    return as_result(build)


ADAPTERS: tuple[Adapter, ...] = tuple(
    Adapter(op, 13, _coerced) for op in ("Softmax", "LogSoftmax", "Hardmax")
)
