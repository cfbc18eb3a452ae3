"""Sorting and the largest few."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref


def _largest(call: AtenCall, count: Ref, axis: int, largest: bool) -> list[Ref]:
    """Values in order, and where they stood; the smallest where not the largest."""
    attrs = {"axis": axis, "largest": int(largest), "sorted": 1}
    return call.emit("TopK", [call.ref("self"), count], attrs, outputs=2)


def _top(call: AtenCall) -> Value:
    axis = call.axis("dim", call.rank("self"))
    return [*_largest(call, call.whole(call.args["k"]), axis, bool(call.plain("largest")))]


def _sorted(call: AtenCall) -> list[Ref]:
    axis = call.axis("dim", call.rank("self"))
    every = call.op("Shape", call.ref("self"), start=axis, end=axis + 1)
    return _largest(call, every, axis, bool(call.plain("descending")))


MAPPINGS: Mappings = {
    "aten::topk": _top,
    "aten::sort": lambda call: [*_sorted(call)],
    "aten::argsort": lambda call: _sorted(call)[1],
}
