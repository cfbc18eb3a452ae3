"""Fourier transforms, and the parts of complex numbers."""

from __future__ import annotations

from whence.frontends.tflite.export.call import ExportCall, Exporter, Exports


def _real_fourier(call: ExportCall) -> None:
    call.emit("RFFT2D", [call.input(0), call.index_input(1)])


def _part(op: str) -> Exporter:
    def export(call: ExportCall) -> None:
        call.emit(op, [call.input(0)])

    return export


EXPORTS: Exports = {
    "ComplexAbs": _part("COMPLEX_ABS"),
    "ImaginaryPart": _part("IMAG"),
    "RealFourier2D": _real_fourier,
    "RealPart": _part("REAL"),
}
