"""Choosing among boxes: what is kept, how lists are filled up, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Call, TypeQuery
from whence.ops.neural.detection import suppress_softly
from whence.ops.registry import evaluate
from whence.ops.tensor.selection import overlap
from whence.ops.types.inference import infer
from whence.types import DType, TensorType

BOXES = np.array([[0, 0, 2, 2], [0, 1, 2, 3], [5, 5, 6, 6], [3, 3, 3, 3]], np.float32)


def test_overlap_counts_area_whatever_the_order_of_corners():
    found = overlap(np.array([2, 2, 0, 0], np.float32), BOXES)
    np.testing.assert_allclose(found, [1, 1 / 3, 0, 0], rtol=1e-6)


def test_a_hard_limit_and_a_soft_one():
    scores = np.array([0.9, 0.8, 0.7, 0.1], np.float32)
    assert suppress_softly(BOXES, scores, 9, 0.3, 0.2, 0.0)[0] == [0, 2]
    kept, found = suppress_softly(BOXES, scores, 9, 1.0, 0.2, 0.5)
    assert kept == [0, 1, 2]
    np.testing.assert_allclose(found[1], 0.8 * np.exp(-((1 / 3) ** 2)), rtol=1e-6)


def test_the_list_is_filled_up_with_zeros():
    inputs = (
        BOXES,
        np.array([0.9, 0.8, 0.7, 0.1], np.float32),
        np.array(3, np.int32),
        np.float32(0.3),
        np.float32(0.2),
    )
    indices, scores, count = evaluate(Call("PaddedNonMaxSuppression", {}, inputs, 3))
    assert indices.tolist() == [0, 2, 0]
    assert scores.tolist() == [np.float32(0.9), np.float32(0.7), 0]
    assert int(count) == 2


def test_types():
    types = (TensorType(DType.F32, (4, 4)), TensorType(DType.F32, (4,)), TensorType(DType.I32, ()))
    query = TypeQuery("PaddedNonMaxSuppression", {}, types, (None, None, np.array(7, np.int32)), 3)
    assert infer(query) == (
        TensorType(DType.I32, (7,)),
        TensorType(DType.F32, (7,)),
        TensorType(DType.I32, ()),
    )
    attrs = {"max_detections": 5, "max_classes_per_detection": 2}
    detections = infer(
        TypeQuery("DetectionPostProcess", attrs, (TensorType(DType.F32),) * 3, (None,) * 3, 4)
    )
    assert detections[0] == TensorType(DType.F32, (1, 10, 4))


def test_what_does_not_fit():
    with pytest.raises(ModelError, match="boxes are asked for"):
        evaluate(
            Call("PaddedNonMaxSuppression", {}, (BOXES, np.ones(4, np.float32), np.array(-1)), 3)
        )
    with pytest.raises(ModelError, match="do not fit"):
        evaluate(
            Call("PaddedNonMaxSuppression", {}, (BOXES, np.ones(3, np.float32), np.array(1)), 3)
        )
    with pytest.raises(ModelError, match="anchors"):
        evaluate(
            Call(
                "DetectionPostProcess",
                {},
                (np.ones((1, 3, 4)), np.ones((1, 3, 2)), np.ones((2, 4))),
                4,
            )
        )
