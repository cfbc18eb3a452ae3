"""SVDF: a filter over features, then a filter over time of what it gave in the last runs.

Quantised ones are computed in the integers of LiteRT's own arithmetic, to the last bit.
"""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.lstm_integer import (
    fixed_point,
    has_one_scale,
    scale_of,
    zero_of,
)
from whence.frontends.tflite.operators.lstm_layer import rounding_of
from whence.frontends.tflite.tensors import dtype_of
from whence.graph.node import Ref
from whence.ops.quantised.quantise import integer_range
from whence.types import DType


def _svdf(call: OperatorCall) -> None:
    rank = call.integer("rank", 1)
    filters, memory = call.shape(2)
    if rank < 1 or filters % rank or call.shape(1)[0] != filters or memory < 1:
        call.fail(f"{filters} filters over {memory} steps are not {rank} for each unit")
    if _is_integer(call):
        _integer(call, rank)
    else:
        _real(call, rank)


def _real(call: OperatorCall, rank: int) -> None:
    """A filter over features, then a filter over time of what it gave in the last runs; `rank` of
    them added up make a unit.

    The state has, for each filter, its last results, the oldest first. A run drops the oldest and
    appends the new.
    """
    filters, batch = call.shape(2)[0], call.shape(0)[0]
    features = call.op("MatMul", call.real(0), call.op("Transpose", call.real(1), perm=(1, 0)))
    if (rounding := rounding_of(call, 4)) is not None:
        features = rounding.apply(call, features)
    state = _remembered(call, call.real(4), features)
    sums = call.op("ReduceSum", call.op("Mul", state, call.real(2)), call.ints(-1), keepdims=0)
    units = call.op("Reshape", sums, call.ints(batch, filters // rank, rank))
    result = call.op("ReduceSum", units, call.ints(-1), keepdims=0)
    if call.has(3):
        times, states = call.quantisation(2), call.quantisation(4)
        bias = call.bias(
            3, None if times is None or states is None else times.scales * states.scales
        )
        assert bias is not None
        result = call.op("Add", result, bias)
    call.output(0, call.activate(result))


def _remembered(call: OperatorCall, before: Ref, newest: Ref) -> Ref:
    """The state after this run: without the oldest results, with the newest."""
    filters, memory = call.shape(2)
    before = call.op("Reshape", before, call.ints(call.shape(0)[0], filters, memory))
    kept = call.op("Slice", before, call.ints(1), call.ints(memory), call.ints(2))
    state = call.op("Concat", kept, call.op("Unsqueeze", newest, call.ints(-1)), axis=-1)
    call.assign_state(4, state)
    return state


_CODES = {0: ("INT8",), 1: ("INT8",), 2: ("INT8", "INT16"), 4: ("INT8", "INT16")}
"""The types of the inputs that integer kernels take, besides the bias."""


def _is_integer(call: OperatorCall) -> bool:
    made = call.output_quantisation(0)
    return (
        all(has_one_scale(call, index, *kinds) for index, kinds in _CODES.items())
        and (not call.has(3) or call.tensor(3).type == "INT32")
        and made is not None
        and len(made.scales) == 1
        and call.output_tensor(0).type == "INT8"
        and call.constant_codes(1) is not None
    )


def _integer(call: OperatorCall, rank: int) -> None:
    """The same in integers. As in the reference kernels, only the range of codes limits it."""
    filters, memory = call.shape(2)
    batch = call.shape(0)[0]
    scale = [scale_of(call, index) for index in (0, 1, 2, 4)]
    made = call.output_quantisation(0)
    weights = call.constant_codes(1)
    assert made is not None
    assert weights is not None
    last = call.ints(-1)
    columns = call.const(np.ascontiguousarray(weights.T))
    sums = call.op(
        "MatMulInteger",
        call.needed(0),
        columns,
        call.scalar(zero_of(call, 0), dtype_of(call.tensor(0))),
    )
    newest = _rescaled(call, sums, scale[0] * scale[1] / scale[3], zero_of(call, 4), 4)
    state = _remembered(call, call.needed(4), newest)
    centred = call.cast(state, DType.I32)
    if zero := zero_of(call, 4):
        centred = call.op("Sub", centred, call.scalar(zero, DType.I32))
    products = call.op("Mul", centred, call.cast(call.needed(2), DType.I32))
    units = call.op("Reshape", products, call.ints(batch, filters // rank, rank * memory))
    result = call.op("ReduceSum", units, last, keepdims=0)
    if call.has(3):
        result = call.op("Add", result, call.needed(3))
    ratio = scale[3] * scale[2] / np.float32(made.scales[0])
    call.output_codes(0, _rescaled(call, result, ratio, int(made.zero_points[0]), None))


def _rescaled(call: OperatorCall, sums: Ref, ratio: np.float32, zero: int, like: int | None) -> Ref:
    """Sums in the codes of input `like`, or of the output."""
    dtype = dtype_of(call.output_tensor(0) if like is None else call.tensor(like))
    multiplier, shift = (call.scalar(number, DType.I32) for number in fixed_point(float(ratio)))
    scaled = call.op("FixedPointScale", sums, multiplier, shift)
    if zero:
        scaled = call.op("Add", scaled, call.scalar(zero, DType.I32))
    return call.cast(call.clip(scaled, *integer_range(dtype)), dtype)


MAPPINGS: Mappings = {"SVDF": _svdf}
