"""Elements picked by where they are, and copies of a tensor with some elements written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node, meta_of
from whence.frontends.torch.tensors import dtype_of
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _embedding(call: AtenCall) -> Value:
    return call.op("Gather", call.ref("weight"), call.ref("indices"), axis=0)


def _index_select(call: AtenCall) -> Value:
    axis = call.axis()
    return call.op("Gather", call.ref("self"), call.ref("index"), axis=axis)


def _gather(call: AtenCall) -> Value:
    if call.rank("self") == 0:
        call.unsupported("reading a single number by index")
    inputs = [call.ref("self"), call.ref("index")]
    return call.emit("GatherElements", inputs, {"axis": call.axis()})


def _indices(call: AtenCall) -> tuple[list[int], list[Any]]:
    """The axes that are indexed, and what each is indexed by."""
    given = call.args["indices"]
    axes = [axis for axis, each in enumerate(given) if each is not None]
    return axes, [given[axis] for axis in axes]


def _is_mask(index: Any) -> bool:
    return dtype_of(meta_of(index).dtype) is DType.BOOL


def _index(call: AtenCall) -> Value:
    """x[i, :, j]: tensors of indices for some axes, which broadcast against each other."""
    axes, indices = _indices(call)
    if any(map(_is_mask, indices)):
        call.unsupported("a mask as index, which leaves open how many elements it picks")
    x = call.ref("self")
    if len(axes) == 1:
        return call.op("Gather", x, call.value(indices[0]), axis=axes[0])
    others = [axis for axis in range(call.rank("self")) if axis not in axes]
    tuples, before = _index_tuples(call, indices)
    found = call.op("GatherND", call.transpose(x, [*axes, *others]), tuples)
    # What the indices give stands where they stood if they stood together, else in front.
    lead = axes[0] if _are_together(axes) else 0
    order = [
        *range(before, before + lead),
        *range(before),
        *range(before + lead, before + len(others)),
    ]
    return call.transpose(found, order)


def _are_together(axes: Sequence[int]) -> bool:
    return axes[-1] - axes[0] == len(axes) - 1


def _index_tuples(call: AtenCall, indices: Sequence[Any]) -> tuple[Ref, int]:
    """Tensors of indices, broadcast against each other, side by side along a new last axis; and the
    number of axes before that.
    """
    # As text, which sizes that are open can be told apart by.
    shapes = [tuple(str(dim) for dim in meta_of(each).shape) for each in indices]
    rank = max(len(shape) for shape in shapes)
    refs = [call.cast(call.value(each), DType.I64) for each in indices]
    if len(set(shapes)) > 1:
        # Adding a zero of the other shapes is how values broadcast without knowing sizes.
        zeros = [call.op("Sub", ref, ref) for ref in refs]
        total = zeros[0]
        for zero in zeros[1:]:
            total = call.op("Add", total, zero)
        refs = [call.op("Add", ref, total) for ref in refs]
    return call.concat([call.op("Unsqueeze", ref, call.numbers(-1)) for ref in refs], -1), rank


def _take(call: AtenCall) -> Value:
    flat = call.reshape(call.ref("self"), -1)
    return call.op("Gather", flat, call.ref("index"), axis=0)


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


_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def _scatter(call: AtenCall) -> Value:
    reduce = call.plain("reduce")
    if reduce is None:
        return _scattered(call, {})
    if reduce not in _REDUCTIONS or call.args.get("include_self") is False:
        call.unsupported(f"a scatter that reduces by {reduce}")
    return _scattered(call, {"reduction": _REDUCTIONS[reduce]})


def _scattered(call: AtenCall, attrs: dict[str, Attr]) -> Value:
    axis, index = call.axis(), call.ref("index")
    if call.has("src"):
        update = call.ref("src")
        if tuple(call.meta("src").shape) != tuple(call.meta("index").shape):
            # PyTorch reads as much of the source as there are indices.
            rank = call.rank("index")
            begin, axes = call.numbers(*[0] * rank), call.numbers(*range(rank))
            update = call.op("Slice", update, begin, call.op("Shape", index), axes)
    else:
        update = call.op("Expand", call.promoted("value"), call.op("Shape", index))
    inputs = [call.ref("self"), index, update]
    return call.emit("ScatterElements", inputs, {"axis": axis, **attrs})


def _index_put(call: AtenCall) -> Value:
    """x[i, j] = values."""
    axes, indices = _indices(call)
    x, values, rank = call.ref("self"), call.ref("values"), call.rank("self")
    if len(axes) == 1 and _is_mask(indices[0]):
        if call.plain("accumulate") or call.rank("values"):
            call.unsupported("several values written where a mask holds")
        if axes[0]:
            call.unsupported("a mask for an axis that is not the first")
        mask = call.value(indices[0])
        if missing := rank - len(meta_of(indices[0]).shape):
            mask = call.op("Unsqueeze", mask, call.numbers(*range(-missing, 0)))
        return call.op("Where", mask, values, x)
    if any(map(_is_mask, indices)):
        call.unsupported("masks among indices")
    others = [axis for axis in range(rank) if axis not in axes]
    if axes[0] and _are_together(axes) and call.rank("values") > len(others):
        call.unsupported("values for axes that are not the first")
    order = [*axes, *others]
    transposed = call.transpose(x, order)
    tuples, _ = _index_tuples(call, indices)
    # What is written has the shape of what would be read.
    read = call.op("GatherND", transposed, tuples)
    update = call.op("Expand", call.cast(values, call.out_dtype), call.op("Shape", read))
    attrs = {"reduction": "add"} if call.plain("accumulate") else {}
    written = call.emit("ScatterND", [transposed, tuples, update], attrs)
    back = [order.index(axis) for axis in range(rank)]
    return call.transpose(written, back)


def _slice_scatter(call: AtenCall) -> Value:
    """x with a range of an axis written: what is before it, the source, what is after it."""
    axis = call.axis()
    begin, end = call.args.get("start") or 0, call.args.get("end")
    if call.integer("step", 1) != 1 or is_node(begin) or is_node(end):
        call.unsupported("a range with a step, or of open size")
    dim = call.meta("self").shape[axis]
    if isinstance(dim, int):
        begin = max(0, begin + dim if begin < 0 else begin)
        end = dim if end is None else min(dim, end + dim if end < 0 else end)
    return _replace(call, axis, begin, sys.maxsize if end is None else end, call.ref("src"))


def _select_scatter(call: AtenCall) -> Value:
    axis, index = call.axis(), call.args["index"]
    if is_node(index):
        call.unsupported("an index that is open")
    dim = call.meta("self").shape[axis]
    if index < 0:
        if not isinstance(dim, int):
            call.unsupported("an index from the end of an axis of open size")
        index += dim
    source = call.op("Unsqueeze", call.ref("src"), call.numbers(axis))
    return _replace(call, axis, index, index + 1, source)


def _replace(call: AtenCall, axis: int, begin: int, end: int, source: Ref) -> Value:
    x, dim = call.ref("self"), call.meta("self").shape[axis]
    parts = [call.cast(source, call.out_dtype)]
    if begin > 0:
        parts.insert(0, call.sliced(x, axis, 0, begin))
    if not isinstance(dim, int) or end < dim:
        parts.append(call.sliced(x, axis, end, sys.maxsize))
    return call.concat(parts, axis)


def _copy(call: AtenCall) -> Value:
    """The source in the shape and element type of what it is copied to."""
    source = call.cast(call.ref("src"), call.out_dtype)
    if tuple(call.meta("src").shape) != tuple(call.meta("self").shape):
        source = call.op("Expand", source, call.op("Shape", call.ref("self")))
    return source


def _fill(call: AtenCall) -> Value:
    return call.op("Expand", call.promoted("value"), call.op("Shape", call.ref("self")))


MAPPINGS: Mappings = {
    "aten::embedding": _embedding,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::index": _index,
    "aten::_unsafe_index": _index,
    "aten::take": _take,
    "aten::as_strided": _as_strided,
    "aten::scatter": _scatter,
    "aten::scatter_add": lambda call: _scattered(call, {"reduction": "add"}),
    "aten::scatter_reduce": _scatter,
    "aten::index_put": _index_put,
    "aten::_unsafe_index_put": _index_put,
    "aten::slice_scatter": _slice_scatter,
    "aten::select_scatter": _select_scatter,
    "aten::copy": _copy,
    "aten::fill": _fill,
}
