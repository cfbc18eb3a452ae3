"""Softmax, LogSoftmax and Hardmax, which before opset 13 flattened their input at `axis`."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite


def flattened(build: Rewrite, op: str, data: str, axis: int) -> list[OpRecord]:
    """`op` over everything from `axis` on, as one dimension. When at most one of those dimensions
    is not 1, it is `op` over that one.
    """
    shape = build.shape(data)
    if axis == -1:
        return build.result(op, data, axis=-1)
    if shape is not None:
        first = axis + len(shape) if axis < 0 else axis
        wide = [index for index in range(first, len(shape)) if shape[index] != 1]
        if len(wide) <= 1:
            return build.result(op, data, axis=wide[0] if wide else len(shape) - 1)
    matrix = build.op(op, build.op("Flatten", data, axis=axis), axis=-1)
    return build.result("Reshape", matrix, build.op("Shape", data))


def _coerced(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return flattened(build, record.op, record.required(0), record.integer("axis", 1))


ADAPTERS: tuple[Adapter, ...] = tuple(
    Adapter(op, 13, _coerced) for op in ("Softmax", "LogSoftmax", "Hardmax")
)
