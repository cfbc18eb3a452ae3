"""Reading by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.frontends.torch.call import AtenCall, Mappings, Value, meta_of
from whence.frontends.torch.tensors import dtype_of
from whence.graph.node import Ref
from whence.types import DType


def _embedding(call: AtenCall) -> Value:
    return call.op("Gather", call.ref("weight"), call.ref("indices"), axis=0)


def _index_select(call: AtenCall) -> Value:
    axis = call.axis("dim", call.rank("self"))
    return call.op("Gather", call.ref("self"), call.ref("index"), axis=axis)


def _gather(call: AtenCall) -> Value:
    rank = call.rank("self")
    if rank == 0:
        call.unsupported("reading a single number by index")
    inputs = [call.ref("self"), call.ref("index")]
    return call.emit("GatherElements", inputs, {"axis": call.axis("dim", rank)})


def _index(call: AtenCall) -> Value:
    """x[i, :, j]: tensors of indices for some axes, which broadcast against each other."""
    given: Sequence[Any] = call.args["indices"]
    axes = [axis for axis, each in enumerate(given) if each is not None]
    for axis in axes:
        if dtype_of(meta_of(given[axis]).dtype) is DType.BOOL:
            call.unsupported("a mask as index, which leaves open how many elements it picks")
    x = call.ref("self")
    if len(axes) == 1:
        index = call.value(given[axes[0]])
        return call.op("Gather", x, index, axis=axes[0])
    return _gather_nd(call, x, axes, [given[axis] for axis in axes])


def index_tuples(call: AtenCall, indices: Sequence[Any]) -> tuple[Ref, int]:
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
    parts = [call.op("Unsqueeze", ref, call.numbers(-1)) for ref in refs]
    return (parts[0] if len(parts) == 1 else call.emit("Concat", parts, {"axis": -1})), rank


def _gather_nd(call: AtenCall, x: Ref, axes: list[int], indices: Sequence[Any]) -> Ref:
    rank = call.rank("self")
    others = [axis for axis in range(rank) if axis not in axes]
    tuples, before = index_tuples(call, indices)
    found = call.op("GatherND", call.transpose(x, [*axes, *others]), tuples)
    # What the indices give stands where they stood if they stood together, else in front.
    if axes != list(range(axes[0], axes[-1] + 1)) or axes[0] == 0:
        return found
    lead = axes[0]
    order = [
        *range(before, before + lead),
        *range(before),
        *range(before + lead, before + len(others)),
    ]
    return call.transpose(found, order)


def _take(call: AtenCall) -> Value:
    flat = call.reshape(call.ref("self"), -1)
    return call.op("Gather", flat, call.ref("index"), axis=0)


MAPPINGS: Mappings = {
    "aten::embedding": _embedding,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::index": _index,
    "aten::_unsafe_index": _index,
    "aten::take": _take,
}
