"""Operators that draw numbers. Two runs differ, and no two runtimes draw the same ones."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mapper, Mappings, OperatorCall


def _drawn(op: str) -> Mapper:
    def mapper(call: OperatorCall) -> None:
        shape = call.numbers(0, "shape")
        if any(size < 0 for size in shape):
            call.fail(f"its shape is {list(shape)}")
        call.output(0, call.op(op, shape=shape, dtype=int(call.output_type(0).dtype)))

    return mapper


MAPPINGS: Mappings = {
    "RANDOM_STANDARD_NORMAL": _drawn("RandomNormal"),
    "RANDOM_UNIFORM": _drawn("RandomUniform"),
}
