"""Fourier transforms, and the parts of complex numbers."""

from __future__ import annotations

from functools import partial

from whence.frontends.tflite.export.call import ExportCall, Exports


def _part(call: ExportCall, op: str) -> None:
    call.emit(op, [call.input(0)])


EXPORTS: Exports = {
    "ComplexAbs": partial(_part, op="COMPLEX_ABS"),
    "ImaginaryPart": partial(_part, op="IMAG"),
    "RealFourier2D": lambda call: call.emit("RFFT2D", [call.input(0), call.index_input(1)]),
    "RealPart": partial(_part, op="REAL"),
}
