"""The custom operator at the end of SSD detectors, whose options are a FlexBuffer."""

from __future__ import annotations

from flatbuffers import flexbuffers

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.operators.detection import REAL_OPTIONS, WHOLE_OPTIONS


def _post_process(call: ExportCall) -> None:
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, absent in WHOLE_OPTIONS.items():
            builder.Key(name)
            value = call.integer(name, absent)
            # The only one that is a truth value there.
            if name == "use_regular_nms":
                builder.Bool(bool(value))
            else:
                builder.Int(value)
        for name, missing in REAL_OPTIONS.items():
            builder.Key(name)
            builder.Float(call.number(name, missing))
    call.emit(
        "CUSTOM:TFLite_Detection_PostProcess",
        [call.input(index) for index in range(3)],
        custom=bytes(builder.Finish()),
    )


EXPORTS: Exports = {"DetectionPostProcess": _post_process}
