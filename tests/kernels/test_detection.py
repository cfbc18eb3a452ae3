"""The last operator of SSD detectors: boxes are decoded, and the best of those that overlap kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Cases

_USUAL = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}


def _detect(
    cases: Cases,
    name: str,
    *,
    boxes: int = 60,
    classes: int = 4,
    background: int = 1,
    scores: np.ndarray | None = None,
    **attrs: Any,
) -> None:
    rng = cases.rng
    # Few anchors for many boxes, so that most of them overlap.
    anchors = np.tile(rng.uniform(0.2, 0.8, (6, 4)), (boxes // 6 + 1, 1))[:boxes]
    if scores is None:
        # Few different values, so that there are ties.
        scores = rng.integers(0, 9, (1, boxes, classes + background)).astype(np.float32) / 9
    found = cases.op(
        "DetectionPostProcess",
        cases.normal(1, boxes, 4),
        cases.feed(scores),
        cases.const(anchors.astype(np.float32)),
        n_outputs=4,
        **{
            **_USUAL,
            "num_classes": classes,
            "max_detections": 10,
            "max_classes_per_detection": 1,
            "nms_iou_threshold": 0.5,
            "nms_score_threshold": 0.3,
            **attrs,
        },
    )
    for index in range(4):
        cases.expect(found[index], f"{name}_{index}")


@pytest.mark.parametrize("regular", [0, 1])
def test_boxes_are_suppressed(regular: int) -> None:
    cases = Cases()
    way: dict[str, Any] = {"use_regular_nms": regular, "detections_per_class": 5}
    _detect(cases, "usual", **way)
    _detect(cases, "no_background", background=0, **way)
    _detect(cases, "one_class", classes=1, **way)
    _detect(cases, "several_classes", max_classes_per_detection=3, **way)
    _detect(cases, "more_classes_than_there_are", max_classes_per_detection=7, **way)
    _detect(cases, "all_that_there_are", max_detections=200, nms_iou_threshold=1.0, **way)
    _detect(cases, "one", max_detections=1, **way)
    _detect(cases, "none_is_good", nms_score_threshold=2.0, **way)
    _detect(cases, "negative_scores", nms_score_threshold=-1e9, **way)
    _detect(cases, "one_box", boxes=1, **way)
    cases.check(peer=False)


@pytest.mark.parametrize("regular", [0, 1])
def test_scores_that_are_no_numbers_are_no_detections(regular: int) -> None:
    cases = Cases()
    scores = cases.rng.uniform(0, 1, (1, 60, 5)).astype(np.float32)
    scores[0, ::3, 2], scores[0, 5:9] = np.nan, np.nan
    _detect(cases, "nan", scores=scores, use_regular_nms=regular, max_classes_per_detection=2)
    cases.check(peer=False)
