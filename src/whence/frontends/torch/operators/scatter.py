"""Copies of a tensor with some elements written."""

from __future__ import annotations

import sys
from typing import Any

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node, meta_of
from whence.frontends.torch.operators.indexing import index_tuples
from whence.frontends.torch.tensors import dtype_of
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType

_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def _scatter(call: AtenCall) -> Value:
    reduce = call.plain("reduce") if "reduce" in call.args else None
    if reduce is None:
        return _scattered(call, {})
    if reduce not in _REDUCTIONS or call.args.get("include_self") is False:
        call.unsupported(f"a scatter that reduces by {reduce}")
    return _scattered(call, {"reduction": _REDUCTIONS[reduce]})


def _scattered(call: AtenCall, attrs: dict[str, Attr]) -> Value:
    axis, index = call.axis("dim", call.rank("self")), call.ref("index")
    if call.has("src"):
        update = call.ref("src")
        if tuple(call.meta("src").shape) != tuple(call.meta("index").shape):
            update = _corner(call, update, index, call.rank("index"))
    else:
        shape = call.op("Shape", index)
        update = call.op("Expand", call.promoted("value"), shape)
    inputs = [call.ref("self"), index, update]
    return call.emit("ScatterElements", inputs, {"axis": axis, **attrs})


def _corner(call: AtenCall, update: Ref, index: Ref, rank: int) -> Ref:
    """PyTorch reads as much of the source as there are indices."""
    begin = call.numbers(*[0] * rank)
    axes = call.numbers(*range(rank))
    return call.op("Slice", update, begin, call.op("Shape", index), axes)


def _index_put(call: AtenCall) -> Value:
    """x[i, j] = values."""
    given: list[Any] = list(call.args["indices"])
    x, values, dtype = call.ref("self"), call.ref("values"), call.out_dtype
    axes = [axis for axis, each in enumerate(given) if each is not None]
    if len(axes) == 1 and dtype_of(meta_of(given[axes[0]]).dtype) is DType.BOOL:
        if call.plain("accumulate") or call.rank("values"):
            call.unsupported("several values written where a mask holds")
        mask = call.value(given[axes[0]])
        missing = call.rank("self") - len(meta_of(given[axes[0]]).shape)
        if axes[0]:
            call.unsupported("a mask for an axis that is not the first")
        if missing:
            mask = call.op("Unsqueeze", mask, call.numbers(*range(-missing, 0)))
        return call.op("Where", mask, values, x)
    if any(dtype_of(meta_of(given[axis]).dtype) is DType.BOOL for axis in axes):
        call.unsupported("masks among indices")
    rank = call.rank("self")
    others = [axis for axis in range(rank) if axis not in axes]
    order = [*axes, *others]
    transposed = call.transpose(x, order)
    tuples, _ = index_tuples(call, [given[axis] for axis in axes])
    # What is written has the shape of what would be read.
    read = call.op("GatherND", transposed, tuples)
    if axes[0] and axes == list(range(axes[0], axes[-1] + 1)) and call.rank("values") > len(others):
        call.unsupported("values for axes that are not the first")
    update = call.op("Expand", call.cast(values, dtype), call.op("Shape", read))
    attrs = {"reduction": "add"} if call.plain("accumulate") else {}
    written = call.emit("ScatterND", [transposed, tuples, update], attrs)
    back = [order.index(axis) for axis in range(rank)]
    return call.transpose(written, back)


def _slice_scatter(call: AtenCall) -> Value:
    """x with a range of an axis written: what is before it, the source, what is after it."""
    axis, size = call.axis("dim", call.rank("self")), call.meta("self").shape
    begin, end = call.args.get("start") or 0, call.args.get("end")
    if call.integer("step", 1) != 1 or is_node(begin) or is_node(end):
        call.unsupported("a range with a step, or of open size")
    dim = size[axis]
    if isinstance(dim, int):
        begin = max(0, begin + dim if begin < 0 else begin)
        end = dim if end is None else min(dim, end + dim if end < 0 else end)
    return _replace(call, axis, begin, sys.maxsize if end is None else end, call.ref("src"))


def _select_scatter(call: AtenCall) -> Value:
    axis, index = call.axis("dim", call.rank("self")), call.args["index"]
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
    parts = []
    if begin > 0:
        limits = [call.numbers(0), call.numbers(begin), call.numbers(axis)]
        parts.append(call.op("Slice", x, *limits))
    parts.append(call.cast(source, call.out_dtype))
    if not isinstance(dim, int) or end < dim:
        limits = [call.numbers(end), call.numbers(sys.maxsize), call.numbers(axis)]
        parts.append(call.op("Slice", x, *limits))
    return call.emit("Concat", parts, {"axis": axis}) if len(parts) > 1 else parts[0]


def _copy(call: AtenCall) -> Value:
    """The source in the shape and element type of what it is copied to."""
    source = call.cast(call.ref("src"), call.out_dtype)
    if tuple(call.meta("src").shape) != tuple(call.meta("self").shape):
        source = call.op("Expand", source, call.op("Shape", call.ref("self")))
    return source


def _fill(call: AtenCall) -> Value:
    value = call.promoted("value")
    return call.op("Expand", value, call.op("Shape", call.ref("self")))


MAPPINGS: Mappings = {
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
