"""Padding."""

from __future__ import annotations

from functools import partial

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(call: AtenCall, mode: str, value: float | None = None) -> Value:
    """PyTorch lists (begin, end) from the last axis backwards."""
    rank, given = call.rank("self"), call.args["pad" if "pad" in call.args else "padding"]
    pairs = [(given[index], given[index + 1]) for index in range(0, len(given), 2)]
    axes = [rank - 1 - index for index in range(len(pairs))]
    pads = call.shape_value([*(begin for begin, _ in pairs), *(end for _, end in pairs)])
    fill: Ref | None = None
    if mode == "constant":
        fill = call.number(0.0 if value is None else value, call.out_dtype)
    inputs = [call.ref("self"), pads, fill, call.numbers(*axes)]
    return call.emit("Pad", inputs, {"mode": mode})


def _named(call: AtenCall) -> Value:
    mode = _MODES.get(call.plain("mode"))
    if mode is None:
        call.unsupported(f"padding of mode {call.plain('mode')}")
    return _pad(call, mode, call.plain("value"))


MAPPINGS: Mappings = {
    "aten::constant_pad_nd": lambda call: _pad(call, "constant", call.plain("value")),
    "aten::pad": _named,
    **{f"aten::reflection_pad{rank}d": partial(_pad, mode="reflect") for rank in (1, 2, 3)},
    **{f"aten::replication_pad{rank}d": partial(_pad, mode="edge") for rank in (1, 2, 3)},
}
