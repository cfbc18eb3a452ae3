"""Fourier transforms."""

from __future__ import annotations

from whence.frontends.tflite.export.call import Exports

EXPORTS: Exports = {
    "RealFourier2D": lambda call: call.emit("RFFT2D", [call.input(0), call.index_input(1)]),
}
