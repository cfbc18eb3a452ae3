"""ArgMax and ArgMin, running sums and products, the best of a row."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.types import DType


def test_arg():
    cases = Cases()
    for op, shape in itertools.product(
        ("ArgMax", "ArgMin"), ((7,), (3, 50), (2, 3, 4, 5), (1, 1), (2, 600, 3))
    ):
        for axis in range(len(shape)):
            for last in (0, 1):
                # Few different values, so that there are ties.
                x = cases.feed(cases.rng.integers(0, 5, shape).astype(np.float32))
                cases.expect(
                    cases.op(op, x, axis=axis, select_last_index=last, keepdims=last),
                    f"{op}_{shape}_{axis}_{last}",
                )
    cases.expect(
        cases.op("ArgMax", cases.feed(cases.rng.integers(-9, 9, (5, 6)).astype(np.int32)), axis=1),
        "int32",
    )
    cases.check()


def test_arg_of_what_is_fused_before():
    cases = Cases()
    x = cases.normal(4, 40)
    cases.expect(
        cases.op("ArgMax", cases.op("Neg", cases.op("Mul", x, cases.weights(40))), axis=1), "along"
    )
    cases.expect(cases.op("ArgMin", cases.op("Transpose", x), axis=1, keepdims=0), "transposed")
    cases.check()


def test_arg_finds_a_nan():
    cases = Cases()
    x = np.array([[1, np.nan, 3, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf]], np.float32)
    cases.expect(cases.op("ArgMax", cases.feed(x), axis=1))
    cases.expect(cases.op("ArgMin", cases.feed(x), axis=1))
    cases.check(peer=False)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_running(dtype: type):
    cases = Cases()
    for shape in ((9,), (4, 7), (2, 5, 300)):
        for axis, exclusive, reverse in itertools.product(range(len(shape)), (0, 1), (0, 1)):
            x = cases.feed((cases.rng.standard_normal(shape) * 3).astype(dtype))
            y = cases.op(
                "CumSum", x, cases.const(np.array(axis)), exclusive=exclusive, reverse=reverse
            )
            cases.expect(y, f"{shape}_{axis}_{exclusive}_{reverse}")
    cases.check()


def test_top_k():
    cases = Cases()
    for shape, k in (((50,), 1), ((4, 100), 7), ((2, 30, 5), 30), ((3, 5, 4), 2)):
        for axis, largest in itertools.product(range(len(shape)), (0, 1)):
            count = min(k, shape[axis])
            x = cases.feed(cases.rng.integers(0, 20, shape).astype(np.float32))
            y = cases.op(
                "TopK", x, cases.const(np.array([count])), axis=axis, largest=largest, n_outputs=2
            )
            for index in (0, 1):
                cases.expect(y[index], f"{shape}_{axis}_{largest}_{index}")
    whole = cases.op(
        "TopK",
        cases.feed(cases.rng.integers(-9, 9, (5, 12)).astype(np.int64)),
        cases.const(np.array([4])),
        n_outputs=2,
    )
    cases.expect(whole[0], "integers")
    cases.check()


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_top_k_puts_nan_first(dtype: DType):
    cases = Cases()
    x = cases.feed(np.array([3, np.nan, -1, np.inf, np.nan, 2], dtype.numpy))
    for largest in (0, 1):
        y = cases.op("TopK", x, cases.const(np.array([5])), largest=largest, n_outputs=2)
        cases.expect(y[0], f"values_{largest}")
        cases.expect(y[1], f"places_{largest}")
    cases.check(peer=False)
