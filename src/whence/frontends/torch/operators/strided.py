"""Views by strides: elements picked by where they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value, meta_of


def _as_strided(call: AtenCall) -> Value:
    x, meta = call.ref("self"), call.meta("self")
    size, stride = call.args["size"], call.args["stride"]
    if _is_same(meta, size, stride) and not call.args.get("storage_offset"):
        return x
    sizes, strides = call.ints("size"), call.ints("stride")
    shape = call.shape("self")
    order = sorted(range(len(shape)), key=lambda axis: (-meta.stride(axis), axis))
    if not _is_dense([shape[axis] for axis in order], [meta.stride(axis) for axis in order]):
        call.unsupported("a view by strides of a tensor that has gaps")
    # The elements in the order of memory, of which positions are then read.
    flat = call.reshape(call.transpose(x, order), -1)
    where = np.array(call.integer("storage_offset"))
    for count, step in zip(sizes, strides, strict=True):
        where = where[..., np.newaxis] + np.arange(count) * step
    return call.op("Gather", flat, call.const(where.astype(np.int64)), axis=0)


def _is_same(meta: Any, size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Are they the strides it has, where an axis has more than one element?"""
    wanted = [_text(dim) for dim in size]
    if wanted != [_text(dim) for dim in meta.shape]:
        return False
    return all(
        dim == 1 or _text(step) == _text(meta.stride(axis))
        for axis, (dim, step) in enumerate(zip(meta.shape, stride, strict=True))
    )


def _text(value: Any) -> str:
    """A size, or the symbol that stands for it."""
    return str(meta_of(value))


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


MAPPINGS: Mappings = {"aten::as_strided": _as_strided}
