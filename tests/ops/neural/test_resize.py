from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.ops.oracle import (
    assert_close,
    case_name,
    check_node_case,
    evaluate,
    flops,
    onnxruntime_outputs,
    parameters,
)
from whence.errors import ModelError
from whence.ops.neural.resize import OPS

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {"Resize": "resize", "GridSample": "gridsample"}
# This case states its answers to four decimals.
PRINTED = {"test_gridsample_bicubic"}
# ONNX's text, its inference and ONNX Runtime take the length of the output; these cases take its
# length before rounding down.
MISTAKEN = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}
MODES = ["nearest", "linear", "cubic"]
TRANSFORMS = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


@pytest.mark.parametrize(
    "case", [case for case in parameters(CASES) if case.name not in MISTAKEN], ids=case_name
)
def test_onnx_node_cases(case):
    definition = DEFINITIONS[case.model.graph.node[0].op_type]
    check_node_case(definition, case, atol=1e-4 if case.name in PRINTED else 1e-5)


# The nearest pixel of a position in the middle between two hangs on the last bit, and
# half_pixel_symmetric makes such positions.
@pytest.mark.parametrize(
    ("mode", "transform"),
    [
        pair
        for pair in itertools.product(MODES, TRANSFORMS)
        if pair != ("nearest", "half_pixel_symmetric")
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_resize_like_onnxruntime(mode, transform, seed):
    pick, rng = random.Random(f"{mode}{transform}{seed}"), np.random.default_rng(seed)
    x = rng.standard_normal((1, 2, pick.randint(3, 9), pick.randint(3, 9)), dtype=np.float32)
    attrs = {"mode": mode, "coordinate_transformation_mode": transform}
    crop = transform == "tf_crop_and_resize"
    if mode == "nearest":
        attrs["nearest_mode"] = pick.choice(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    elif not crop:
        attrs["antialias"] = seed % 2
    if mode == "cubic":
        attrs |= {
            "cubic_coeff_a": pick.choice([-0.75, -0.5]),
            "exclude_outside": pick.randint(0, 1),
        }
    roi = None
    if crop:
        roi, attrs["extrapolation_value"] = (
            np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2], np.float32),
            7.0,
        )
    scales = sizes = None
    if pick.random() < 0.5:
        # ONNX Runtime does not crop an axis whose length stays.
        lengths = [
            pick.choice([size for size in range(1, 16) if size != length]) for length in x.shape[2:]
        ]
        sizes = np.array([1, 2, *lengths])
        if not crop and pick.random() < 0.5:
            attrs |= {
                "keep_aspect_ratio_policy": pick.choice(["not_larger", "not_smaller"]),
                "axes": (2, 3),
            }
            sizes = sizes[2:]
    else:
        scales = np.array(
            [1, 1, pick.choice([0.5, 0.6, 1.5, 2, 2.3]), pick.choice([0.5, 0.6, 2, 1.7])],
            np.float32,
        )
    inputs = [x, roi, scales] if sizes is None else [x, roi, None, sizes]
    (actual,) = evaluate(DEFINITIONS["Resize"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("Resize", attrs, inputs, opset=19)[0], 1e-4, 1e-4)


@pytest.mark.parametrize("scale", [0.5, 0.75, 2.0, 2.25])
@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil"])
def test_nearest_with_symmetric_centres(scale, nearest_mode):
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel_symmetric",
        "nearest_mode": nearest_mode,
    }
    inputs = [x, None, np.array([1, 1, 1, scale], np.float32)]
    (actual,) = evaluate(DEFINITIONS["Resize"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("Resize", attrs, inputs, opset=19)[0])


def test_resize_of_five_axes(rng):
    x = rng.standard_normal((1, 2, 3, 4, 5), dtype=np.float32)
    inputs = [x, None, np.array([1, 1, 2, 2, 2], np.float32)]
    (actual,) = evaluate(DEFINITIONS["Resize"], {"mode": "linear"}, inputs)
    assert_close(actual, onnxruntime_outputs("Resize", {"mode": "linear"}, inputs, opset=19)[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_nearest_moves_any_type(rng, dtype):
    x = rng.integers(0, 100, (1, 1, 3, 4)).astype(dtype)
    inputs = [x, None, np.array([1, 1, 2, 3], np.float32)]
    (actual,) = evaluate(DEFINITIONS["Resize"], {"mode": "nearest"}, inputs)
    np.testing.assert_array_equal(actual, x.repeat(2, axis=2).repeat(3, axis=3))
    assert actual.dtype == dtype


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize(
    ("mode", "rank"), [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)]
)
@pytest.mark.parametrize("seed", range(2))
def test_grid_sample_like_onnxruntime(padding, aligned, mode, rank, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, *rng.integers(2, 7, rank)), dtype=np.float32)
    grid = rng.uniform(-1.7, 1.7, (2, *rng.integers(1, 6, rank), rank)).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    (actual,) = evaluate(DEFINITIONS["GridSample"], attrs, [x, grid])
    assert_close(
        actual, onnxruntime_outputs("GridSample", attrs, [x, grid], opset=20)[0], 1e-4, 1e-5
    )


@pytest.mark.parametrize(
    ("attrs", "scales", "message"),
    [
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, [1, 1, 2, 2], "needs a region"),
        ({}, [2, 2], "2 scales or sizes do not fit 4 axes"),
        ({}, [], "neither scales nor sizes"),
    ],
)
def test_faults_of_the_model_are_named(attrs, scales, message):
    with pytest.raises(ModelError, match=message):
        evaluate(
            DEFINITIONS["Resize"],
            attrs,
            [np.ones((1, 1, 3, 3), np.float32), None, np.array(scales, np.float32)],
        )


def test_flops():
    x, y = np.ones((1, 1, 3, 3)), np.ones((1, 1, 6, 3))
    assert flops(DEFINITIONS["Resize"], {"mode": "nearest"}, [x], [y]) == 0
    assert flops(DEFINITIONS["Resize"], {"mode": "linear"}, [x], [y]) == 18 * 4
