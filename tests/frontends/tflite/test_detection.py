"""The last operator of SSD detectors, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.frontends.tflite.making import (
    Model,
    Quantised,
    check,
    compare,
    read,
    run_litert,
    run_whence,
)
from tests.frontends.tflite.runtimes import convert, operators
from whence.errors import ModelError

RNG = np.random.default_rng(10)
BOXES, CLASSES = 20, 4


def options(**changed: Any) -> bytes:
    values = {
        "max_detections": 5,
        "max_classes_per_detection": 1,
        "detections_per_class": 3,
        "use_regular_nms": False,
        "nms_score_threshold": 0.1,
        "nms_iou_threshold": 0.4,
        "num_classes": CLASSES,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
        **changed,
    }
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in values.items():
            builder.Key(key)
            if isinstance(value, bool):
                builder.Bool(value)
            elif isinstance(value, int):
                builder.Int(value)
            else:
                builder.Float(value)
    return bytes(builder.Finish())


def detector(
    custom: bytes,
    rows: int = 5,
    dtype: Any = np.float32,
    codes: Quantised | None = None,
    scores: Quantised | None = None,
) -> Model:
    model = Model()
    anchors = np.concatenate(
        [RNG.random((BOXES, 2)), 0.1 + 0.3 * RNG.random((BOXES, 2))], axis=1
    ).astype(np.float32)
    if codes is not None:
        stored = model.const(np.rint(anchors * 128).astype(np.uint8), quantised=Quantised(1 / 128))
    else:
        stored = model.const(anchors)
    inputs = [
        model.input((1, BOXES, 4), dtype, codes),
        model.input((1, BOXES, CLASSES + 1), dtype, scores),
        stored,
    ]
    outputs = [model.tensor(shape) for shape in ((1, rows, 4), (1, rows), (1, rows), (1,))]
    model.op("CUSTOM:TFLite_Detection_PostProcess", inputs, outputs=outputs, custom=custom)
    model.output(*outputs)
    return model


@pytest.mark.parametrize("regular", [False, True])
def test_float(regular):
    feeds = [
        RNG.normal(size=(1, BOXES, 4)).astype(np.float32),
        RNG.random((1, BOXES, CLASSES + 1)).astype(np.float32),
    ]
    *_, count = check(detector(options(use_regular_nms=regular)), feeds)
    assert int(count[0]) == 5


def test_several_classes_for_each_box():
    feeds = [
        RNG.normal(size=(1, BOXES, 4)).astype(np.float32),
        RNG.random((1, BOXES, CLASSES + 1)).astype(np.float32),
    ]
    check(detector(options(max_classes_per_detection=2), rows=10), feeds)


def test_quantised():
    codes = RNG.integers(100, 156, (1, BOXES, 4)).astype(np.uint8)
    scores = (
        RNG.permutation(256)[: BOXES * (CLASSES + 1)]
        .reshape(1, BOXES, CLASSES + 1)
        .astype(np.uint8)
    )
    check(
        detector(options(), dtype=np.uint8, codes=Quantised(0.05, 128), scores=Quantised(1 / 256)),
        [codes, scores],
    )


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("ending", ["tflite", "circle"])
def test_written_back(quantised, ending, tmp_path):
    changed = options(use_regular_nms=True, nms_iou_threshold=0.3)
    if quantised:
        model = detector(
            changed, dtype=np.uint8, codes=Quantised(0.05, 128), scores=Quantised(1 / 256)
        )
        feeds = [
            RNG.integers(100, 156, (1, BOXES, 4)).astype(np.uint8),
            RNG.permutation(256)[: BOXES * (CLASSES + 1)]
            .reshape(1, BOXES, CLASSES + 1)
            .astype(np.uint8),
        ]
    else:
        model = detector(changed)
        feeds = [
            RNG.normal(size=(1, BOXES, 4)).astype(np.float32),
            RNG.random((1, BOXES, CLASSES + 1)).astype(np.float32),
        ]
    path = tmp_path / f"again.{ending}"
    record = convert(model, path)
    assert operators(record)[-1] == "CUSTOM:TFLite_Detection_PostProcess"
    compare(run_whence(path.read_bytes(), feeds), run_whence(model, feeds))
    if ending == "tflite":
        compare(run_litert(path.read_bytes(), feeds), run_litert(model, feeds))


@pytest.mark.parametrize(
    ("custom", "match"),
    [
        (b"", "bytes"),
        (b"\xff" * 40, "options"),
        (options(max_detections=1 << 30), "max_detections"),
        (options(max_classes_per_detection=0), "classes"),
    ],
)
def test_hostile_options(custom, match):
    with pytest.raises(ModelError, match=match):
        read(detector(custom).bytes())
