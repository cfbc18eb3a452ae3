"""Tensors made from a shape, a few numbers or a compact form: fills, ranges, densified weights."""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.types import MAX_RANK, DType


def _fill(call: OperatorCall) -> None:
    value = call.needed(1)
    if call.rank(1) != 0:
        value = call.op("Reshape", value, call.ints())
    call.output_codes(0, call.op("Expand", value, call.cast(call.needed(0), DType.I64)))


def _zeros_like(call: OperatorCall) -> None:
    shape = call.op("Shape", call.needed(0))
    value = np.zeros(1, call.output_type(0).dtype.numpy)
    call.output_codes(0, call.op("ConstantOfShape", shape, value=value))


def _range(call: OperatorCall) -> None:
    def number(index: int) -> Ref:
        ref = call.real(index)
        return ref if call.rank(index) == 0 else call.op("Reshape", ref, call.ints())

    call.output(0, call.op("Range", number(0), number(1), number(2)))


def _rank(call: OperatorCall) -> None:
    call.output_codes(0, call.cast(call.op("Size", call.op("Shape", call.needed(0))), DType.I32))


def _broadcast_args(call: OperatorCall) -> None:
    """The shape that two shapes broadcast to."""
    lengths = [
        call.shape(index)[0] if call.rank(index) == 1 else call.fail("its inputs are not lists")
        for index in (0, 1)
    ]
    if max(lengths) > MAX_RANK:
        call.fail(f"its inputs are shapes of {lengths} dimensions")
    sides = []
    for index, length in enumerate(lengths):
        side, missing = call.needed(index), max(lengths) - length
        if missing:
            ones = call.const(np.ones(missing, call.type(index).dtype.numpy))
            side = call.op("Concat", ones, side, axis=0)
        sides.append(side)
    is_one = call.op("Equal", sides[0], call.const(np.ones((), call.type(0).dtype.numpy)))
    call.output_codes(0, call.op("Where", is_one, sides[1], sides[0]))


def _densify(call: OperatorCall) -> None:
    """Sparse constants are whole in the graph already."""
    known = call.constant_codes(0)
    if known is None:
        call.fail("its input is not stored in the file")
    call.output_constant(0, known)


MAPPINGS: Mappings = {
    "BROADCAST_ARGS": _broadcast_args,
    "DENSIFY": _densify,
    "FILL": _fill,
    "RANGE": _range,
    "RANK": _rank,
    "ZEROS_LIKE": _zeros_like,
}
