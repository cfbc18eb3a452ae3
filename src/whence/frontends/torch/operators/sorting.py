"""Sorting and the largest few."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref


def _top(call: AtenCall) -> Value:
    axis = call.axis("dim", call.rank("self"))
    largest = int(bool(call.plain("largest")))
    inputs = [call.ref("self"), call.whole(call.args["k"])]
    attrs = {"axis": axis, "largest": largest, "sorted": 1}
    return list(call.emit("TopK", inputs, attrs, outputs=2))


def _sort(call: AtenCall) -> Value:
    values, order = _sorted(call)
    return [values, order]


def _sorted(call: AtenCall) -> list[Ref]:
    axis = call.axis("dim", call.rank("self"))
    shape = call.op("Shape", call.ref("self"), start=axis, end=axis + 1)
    attrs = {"axis": axis, "largest": int(bool(call.plain("descending"))), "sorted": 1}
    return call.emit("TopK", [call.ref("self"), shape], attrs, outputs=2)


MAPPINGS: Mappings = {
    "aten::topk": _top,
    "aten::sort": _sort,
    "aten::argsort": lambda call: _sorted(call)[1],
}
