"""Pools. Averages do not count padding; maxima of quantised tensors are taken on codes."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.conv import window_attrs
from whence.frontends.tflite.operators.moving import move
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _attrs(call: OperatorCall) -> dict[str, Attr]:
    if call.rank(0) != 4:
        call.fail(f"its input is {call.type(0)}, not a tensor of 4 dimensions")
    kernel = (call.integer("filter_height"), call.integer("filter_width"))
    if min(kernel) < 1:
        call.fail(f"its window is {list(kernel)}")
    strides = (call.integer("stride_h"), call.integer("stride_w"))
    return {"kernel_shape": kernel, **window_attrs(call, 0, kernel, strides, (1, 1))}


def _average(call: OperatorCall) -> None:
    made = call.activate(call.emit("ChannelsLastAveragePool", [call.real(0)], _attrs(call)))
    call.output(0, made)


def _maximum(call: OperatorCall) -> None:
    move(call, lambda x: call.emit("ChannelsLastMaxPool", [x], _attrs(call)))


def _root_mean_square(call: OperatorCall) -> None:
    x: Ref = call.real(0)
    mean = call.emit("ChannelsLastAveragePool", [call.op("Mul", x, x)], _attrs(call))
    call.output(0, call.activate(call.op("Sqrt", mean)))


MAPPINGS: Mappings = {
    "AVERAGE_POOL_2D": _average,
    "L2_POOL_2D": _root_mean_square,
    "MAX_POOL_2D": _maximum,
}
