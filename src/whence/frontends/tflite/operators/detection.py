"""The custom operator at the end of SSD detectors."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.flexible import FlexibleOptions
from whence.ops.definition import Attr

WHOLE_OPTIONS = {
    "max_detections": 0,
    "max_classes_per_detection": 1,
    "detections_per_class": 100,
    "num_classes": 0,
    "use_regular_nms": 0,
}
REAL_OPTIONS = {
    "nms_score_threshold": 0.0,
    "nms_iou_threshold": 0.0,
    "y_scale": 1.0,
    "x_scale": 1.0,
    "h_scale": 1.0,
    "w_scale": 1.0,
}


def _post_process(call: OperatorCall) -> None:
    given = FlexibleOptions(call)
    attrs: dict[str, Attr] = {
        name: given.integer(name, absent) for name, absent in WHOLE_OPTIONS.items()
    }
    attrs |= {name: given.number(name, absent) for name, absent in REAL_OPTIONS.items()}
    found = call.emit(
        "DetectionPostProcess", [call.real(0), call.real(1), call.real(2)], attrs, outputs=4
    )
    for index, ref in enumerate(found):
        call.output(index, ref)


MAPPINGS: Mappings = {"CUSTOM:TFLite_Detection_PostProcess": _post_process}
