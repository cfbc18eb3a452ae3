"""Resize in all its modes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.harness import Cases

_TRANSFORMS = (
    "half_pixel",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
    "half_pixel_symmetric",
)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_transforms(mode: str):
    cases = Cases()
    for transform, scales in itertools.product(
        _TRANSFORMS, ((2.0, 2.0), (0.5, 0.6), (1.0, 3.0), (1.7, 0.8))
    ):
        factors = cases.const(np.array([1.0, 1.0, *scales], np.float32))
        y = cases.op(
            "Resize",
            cases.normal(1, 3, 7, 10),
            None,
            factors,
            mode=mode,
            coordinate_transformation_mode=transform,
        )
        cases.expect(y, f"{transform}_{scales}")
    cases.check()


def test_nearest_modes():
    cases = Cases()
    for nearest, transform, sizes in itertools.product(
        ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        ("half_pixel", "asymmetric"),
        ((14, 20), (3, 5), (10, 7)),
    ):
        y = cases.op(
            "Resize", cases.normal(1, 2, 7, 10), None, None, cases.const(np.array([1, 2, *sizes])),
            mode="nearest", nearest_mode=nearest, coordinate_transformation_mode=transform,
        )  # fmt: skip
        cases.expect(y, f"{nearest}_{transform}_{sizes}")
    cases.check()


def test_volumes_axes_and_types():
    cases = Cases()
    half = cases.const(np.array([1.5, 2.0, 0.5], np.float32))
    cases.expect(
        cases.op("Resize", cases.normal(1, 2, 4, 5, 6), None, half, mode="linear", axes=(2, 3, 4)),
        "volume",
    )
    cases.expect(
        cases.op(
            "Resize",
            cases.normal(2, 3, 9),
            None,
            cases.const(np.array([1.0, 1.0, 2.5], np.float32)),
            mode="linear",
        ),
        "line",
    )
    whole = cases.feed(cases.rng.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8))
    cases.expect(
        cases.op(
            "Resize", whole, None, cases.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest"
        ),
        "bytes",
    )
    cases.check()


def test_crops():
    cases = Cases()
    roi, sizes = (
        cases.const(np.array([0.1, 0.2, 1.2, 0.9], np.float32)),
        cases.const(np.array([5, 9])),
    )
    for mode in ("nearest", "linear"):
        y = cases.op(
            "Resize", cases.normal(1, 2, 8, 8), roi, None, sizes,
            mode=mode, axes=(2, 3), coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0,
        )  # fmt: skip
        cases.expect(y, mode)
    cases.check(peer=False)


def test_smoothed():
    cases = Cases()
    for mode, outside in itertools.product(("linear", "cubic"), (0, 1)):
        factors = cases.const(np.array([1, 1, 0.6, 1], np.float32))
        cases.expect(
            cases.op(
                "Resize",
                cases.normal(1, 1, 10, 6),
                None,
                factors,
                mode=mode,
                antialias=1,
                exclude_outside=outside,
            ),
            f"{mode}_{outside}",
        )
    cases.check(peer=False)


def test_fused_with_its_surroundings():
    cases = Cases()
    x = cases.normal(1, 4, 6, 6)
    factors = cases.const(np.array([1, 1, 2, 2], np.float32))
    up = cases.op(
        "Resize",
        cases.op("Relu", x),
        None,
        factors,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    cases.expect(cases.op("Add", up, cases.normal(1, 4, 12, 12)), "between")
    cases.expect(cases.op("Concat", up, cases.normal(1, 2, 12, 12), axis=1), "concatenated")
    cases.check()
