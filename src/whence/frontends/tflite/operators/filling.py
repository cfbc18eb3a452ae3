"""Tensors made from a shape, a few numbers or a compact form: fills, ranges, random numbers,
densified weights.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.types import MAX_RANK, DType


def _number(call: OperatorCall, index: int, value: Ref) -> Ref:
    """The value of an input that is one number, without the dimensions that it may have."""
    return value if call.rank(index) == 0 else call.op("Reshape", value, call.ints())


def _fill(call: OperatorCall) -> None:
    value = _number(call, 1, call.needed(1))
    call.output_codes(0, call.op("Expand", value, call.cast(call.needed(0), DType.I64)))


def _zeros_like(call: OperatorCall) -> None:
    shape = call.op("Shape", call.needed(0))
    value = np.zeros(1, call.output_type(0).dtype.numpy)
    call.output_codes(0, call.op("ConstantOfShape", shape, value=value))


def _range(call: OperatorCall) -> None:
    numbers = (_number(call, index, call.real(index)) for index in range(3))
    call.output(0, call.op("Range", *numbers))


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


def _drawn(call: OperatorCall, op: str) -> None:
    """Random numbers. Two runs differ, and no two runtimes draw the same ones."""
    shape = call.numbers(0, "shape")
    if any(size < 0 for size in shape):
        call.fail(f"its shape is {list(shape)}")
    call.output(0, call.op(op, shape=shape, dtype=int(call.output_type(0).dtype)))


MAPPINGS: Mappings = {
    "BROADCAST_ARGS": _broadcast_args,
    "DENSIFY": _densify,
    "FILL": _fill,
    "RANDOM_STANDARD_NORMAL": partial(_drawn, op="RandomNormal"),
    "RANDOM_UNIFORM": partial(_drawn, op="RandomUniform"),
    "RANGE": _range,
    "RANK": _rank,
    "ZEROS_LIKE": _zeros_like,
}
