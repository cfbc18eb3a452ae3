"""Custom operators of MediaPipe's models."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.frontends.tflite.making import Model, compare, read, run_litert, run_whence
from whence.errors import ModelError, UnsupportedError

RNG = np.random.default_rng(13)


def deconvolution(padding: int, custom: bytes | None) -> Model:
    """The custom operator, or with `custom` left out the builtin one that computes the same."""
    rng = np.random.default_rng(14)
    model = Model()
    x = model.input((1, 3, 4, 2))
    weights, bias = (
        model.const(rng.normal(size=(5, 3, 3, 2)).astype(np.float32)),
        model.const(rng.normal(size=5).astype(np.float32)),
    )
    shape = (1, 6, 8, 5) if padding == 1 else (1, 7, 9, 5)
    if custom is not None:
        model.output(
            model.op("CUSTOM:Convolution2DTransposeBias", [x, weights, bias], shape, custom=custom)
        )
    else:
        inputs = [model.const(shape, np.int32), weights, x, bias]
        model.output(
            model.op(
                "TRANSPOSE_CONV",
                inputs,
                shape,
                version=3,
                padding=padding - 1,
                stride_w=2,
                stride_h=2,
            )
        )
    return model


@pytest.mark.parametrize("padding", [1, 2])
def test_a_transposed_convolution_with_a_bias(padding):
    x = RNG.normal(size=(1, 3, 4, 2)).astype(np.float32)
    ours = run_whence(deconvolution(padding, struct.pack("<3i", padding, 2, 2)).bytes(), [x])
    compare(ours, run_litert(deconvolution(padding, None), [x]))


@pytest.mark.parametrize(
    "custom", [b"", b"\0" * 12, struct.pack("<3i", 1, 0, 2), struct.pack("<3i", 7, 2, 2)]
)
def test_options_that_do_not_fit(custom):
    with pytest.raises(ModelError, match="options"):
        read(deconvolution(1, custom).bytes())


def options(**values: Any) -> bytes:
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in values.items():
            builder.Key(key)
            if isinstance(value, list):
                builder.VectorFromElements(value)
            else:
                builder.Add(value)
    return bytes(builder.Finish())


BOX: dict[str, Any] = {
    "left_rotation_idx": 0,
    "right_rotation_idx": 4,
    "subset_idxs": [1, 2, 3],
    "output_width": 16,
    "output_height": 8,
    "scale_x": 1.5,
    "scale_y": 2.0,
}


def box_model(custom: bytes, version: int = 2) -> Model:
    model = Model()
    model.output(
        model.op(
            "CUSTOM:Landmarks2TransformMatrix",
            [model.input((1, 5, 3))],
            (1, 4, 4),
            custom=custom,
            version=version,
        )
    )
    return model


def expected_box(points: np.ndarray, target: float) -> np.ndarray:
    """As MediaPipe describes it: shift to the centre, turn back, scale, shift by half the
    picture.
    """

    def affine(a: float, b: float, c: float, d: float, e: float, f: float) -> np.ndarray:
        return np.array([[a, b, 0, c], [d, e, 0, f], [0, 0, 1, 0], [0, 0, 0, 1]])

    (x0, y0), (x1, y1) = points[0, :2], points[4, :2]
    r = target - np.arctan2(y1 - y0, x1 - x0)
    turn = np.array([[np.cos(r), -np.sin(r)], [np.sin(r), np.cos(r)]])
    inside = points[1:4, :2] @ turn.T
    size, centre = inside.max(0) - inside.min(0), turn.T @ ((inside.max(0) + inside.min(0)) / 2)
    back = affine(np.cos(r), np.sin(r), 0, -np.sin(r), np.cos(r), 0)
    scale = affine(1.5 * size[0] / 16, 0, 0, 0, 2.0 * size[1] / 8, 0)
    return np.asarray(
        affine(1, 0, centre[0], 0, 1, centre[1]) @ back @ scale @ affine(1, 0, -8, 0, 1, -4)
    )


@pytest.mark.parametrize("target", [0.0, 0.7])
@pytest.mark.parametrize("together", [False, True])
def test_the_box_around_landmarks(target, together):
    points = RNG.normal(0, 10, (1, 5, 3)).astype(np.float32)
    if together:
        points[0, 4] = points[0, 0]
    (made,) = run_whence(
        box_model(options(**BOX, target_rotation_radians=target)).bytes(), [points]
    )
    np.testing.assert_allclose(made[0], expected_box(points[0], target), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"subset_idxs": [9]}, "landmarks"),
        ({"output_width": 0}, "picture"),
        ({"left_rotation_idx": -1}, "landmarks"),
    ],
)
def test_a_box_that_cannot_be(changed, match):
    with pytest.raises(ModelError, match=match):
        read(box_model(options(**{**BOX, **changed})).bytes())


def test_lists_that_hold_one_list_many_times_are_not_unfolded():
    def fold(depth: int) -> None:
        with builder.Vector():
            if depth:
                fold(depth - 1)
            else:
                builder.Int(1)
            builder.ReuseValue(builder.LastValue)

    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key("subset_idxs")
        fold(60)
    with pytest.raises(ModelError, match="subset_idxs is not a list of whole numbers"):
        read(box_model(bytes(builder.Finish())).bytes())


def test_the_first_version_of_the_box_is_not_known():
    with pytest.raises(UnsupportedError, match="version 1"):
        read(box_model(options(**BOX), version=1).bytes())


MATRIX = np.array(
    [[[0.9, -0.3, 0, 1.2], [0.2, 0.8, 0, -0.4], [0, 0, 1, 0], [0, 0, 0, 1]]], np.float32
)


@pytest.mark.parametrize("width", [2, 3])
def test_landmarks_of_a_part(width):
    points = RNG.normal(size=(1, 6, width)).astype(np.float32)
    model = Model()
    model.output(
        model.op(
            "CUSTOM:TransformLandmarks",
            [model.input(points.shape), model.input((1, 4, 4))],
            points.shape,
            custom=b"",
            version=2,
        )
    )
    (made,) = run_whence(model.bytes(), [points, MATRIX])
    expected = points.copy()
    expected[..., :2] = points[..., :2] @ MATRIX[0, :2, :2].T + MATRIX[0, :2, 3]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_the_pixels_of_a_part():
    picture = RNG.normal(size=(1, 5, 6, 2)).astype(np.float32)
    model = Model()
    inputs = [model.input(picture.shape), model.input((1, 4, 4))]
    model.output(
        model.op(
            "CUSTOM:TransformTensorBilinear",
            inputs,
            (1, 4, 7, 2),
            custom=options(output_height=4, output_width=7),
            version=2,
        )
    )
    (made,) = run_whence(model.bytes(), [picture, MATRIX])
    expected = np.zeros((4, 7, 2))
    outside = 0
    for row in range(4):
        for column in range(7):
            x, y = MATRIX[0, :2, :2] @ [column + 0.5, row + 0.5] + MATRIX[0, :2, 3] - 0.5
            if not (0 <= x <= 5 and 0 <= y <= 4):
                outside += 1
                continue
            left, top = int(x), int(y)
            right, bottom = min(left + 1, 5), min(top + 1, 4)
            upper = picture[0, top, left] * (1 - x + left) + picture[0, top, right] * (x - left)
            lower = picture[0, bottom, left] * (1 - x + left) + picture[0, bottom, right] * (
                x - left
            )
            expected[row, column] = upper * (1 - y + top) + lower * (y - top)
    assert 0 < outside < 28
    np.testing.assert_allclose(made[0], expected, rtol=1e-4, atol=1e-5)
