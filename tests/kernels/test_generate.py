"""Values made from a description."""

from __future__ import annotations

import numpy as np

from tests.kernels.harness import Cases


def test_ranges():
    cases = Cases()
    for start, limit, delta, dtype in (
        (0, 10, 1, np.int64),
        (3, -9, -2, np.int32),
        (0.5, 4.0, 0.25, np.float32),
        (1, 2, 0.1, np.float64),
    ):
        y = cases.op(
            "Range", *(cases.const(np.array(value, dtype)) for value in (start, limit, delta))
        )
        cases.expect(y, f"{start}_{limit}_{delta}")
    cases.check()


def test_fills_and_eyes():
    cases = Cases()
    shape = cases.const(np.array([3, 4]))
    cases.expect(cases.op("ConstantOfShape", shape), "zero")
    cases.expect(cases.op("ConstantOfShape", shape, value=np.array([2.5], np.float32)), "float")
    cases.expect(cases.op("ConstantOfShape", shape, value=np.array([-7], np.int64)), "int")
    cases.expect(cases.op("ConstantOfShape", shape, value=np.array([True])), "bool")
    for k in (-1, 0, 2):
        cases.expect(cases.op("EyeLike", cases.normal(3, 5), k=k), f"eye_{k}")
    cases.expect(cases.op("EyeLike", cases.normal(4, 4), dtype=7), "eye_int")
    cases.check()


def test_shapes():
    cases = Cases()
    x = cases.normal(2, 3, 4, 5)
    cases.expect(cases.op("Shape", x), "whole")
    cases.expect(cases.op("Shape", x, start=1, end=-1), "part")
    cases.expect(cases.op("Size", x), "size")
    cases.check()
