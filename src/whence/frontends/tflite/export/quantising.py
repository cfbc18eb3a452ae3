"""Between real numbers and codes, where no quantised operator takes it in."""

from __future__ import annotations

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.codes import CODE_TYPES, codes_of, dtype_at
from whence.frontends.tflite.export.units import dequantise_before
from whence.types import DType

_REQUANTISED = CODE_TYPES | {DType.I32}
"""The codes that QUANTIZE takes and makes; those of 32 bits mean something to it alone."""


def _quantise(call: ExportCall) -> None:
    """From reals, or straight from codes of another meaning."""
    if codes_of(call.graph, call.node) is None:
        call.unsupported("its scale or zero point is not stored, or goes by blocks")
    source = call.graph[call.ref(0).node]
    before = codes_of(call.graph, source) if source.op == "DequantizeLinear" else None
    if (
        before is not None
        and before.per_tensor
        and dequantise_before(call.graph, call.ref(0)) is source
        and dtype_at(call.graph, source.inputs[0]) in _REQUANTISED
    ):
        call.emit("QUANTIZE", [call.writer.codes_tensor(call.ref(0))], version=2)
        return
    if call.type(0).dtype is not DType.F32:
        call.unsupported(f"quantisation of {call.type(0)}")
    call.emit("QUANTIZE", [call.input(0)])


def _dequantise(call: ExportCall) -> None:
    if codes_of(call.graph, call.node) is None:
        call.unsupported("its scale or zero point is not stored, or goes by blocks")
    if call.type(0).dtype in CODE_TYPES:
        version = {DType.I8: 2, DType.I16: 3}.get(call.type(0).dtype, 1)
        call.emit("DEQUANTIZE", [call.writer.codes_tensor(call.node.ref())], version=version)
        return
    value = call.writer.known(call.node.ref())
    if value is None:
        call.unsupported(f"codes of {call.type(0)} that are not stored")
    # Biases and the like: the numbers themselves.
    call.writer.adopt(call.node.ref(), call.const(value, call.node.name))


EXPORTS: Exports = {"DequantizeLinear": _dequantise, "QuantizeLinear": _quantise}
