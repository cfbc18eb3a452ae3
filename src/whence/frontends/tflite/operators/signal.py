"""Fourier transforms."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.types import DType


def _real_fourier(call: OperatorCall) -> None:
    lengths = call.cast(call.needed(1), DType.I64)
    known = call.constant_codes(1)
    if known is not None:
        lengths = call.ints(*call.numbers(1, "lengths"))
    call.output(0, call.op("RealFourier2D", call.real(0), lengths))


MAPPINGS: Mappings = {
    "RFFT2D": _real_fourier,
}
