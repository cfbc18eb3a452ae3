"""Operators that draw numbers. Two runs differ, and no two runtimes draw the same ones."""

from __future__ import annotations

from functools import partial

from whence.frontends.tflite.mapping import Mappings, OperatorCall


def _drawn(call: OperatorCall, op: str) -> None:
    shape = call.numbers(0, "shape")
    if any(size < 0 for size in shape):
        call.fail(f"its shape is {list(shape)}")
    call.output(0, call.op(op, shape=shape, dtype=int(call.output_type(0).dtype)))


MAPPINGS: Mappings = {
    "RANDOM_STANDARD_NORMAL": partial(_drawn, op="RandomNormal"),
    "RANDOM_UNIFORM": partial(_drawn, op="RandomUniform"),
}
