"""Reductions over every set of axes, with what is fused before and after them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.harness import Cases

_OPS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)


def test_every_set_of_axes():
    cases = Cases()
    shape = (3, 4, 5, 33)
    for count in range(1, 5):
        for axes in itertools.combinations(range(4), count):
            for op in ("ReduceSum", "ReduceMax"):
                cases.expect(
                    cases.op(
                        op, cases.normal(*shape), cases.const(np.array(axes)), keepdims=count % 2
                    ),
                    f"{op}_{axes}",
                )
    cases.check()


@pytest.mark.parametrize("op", _OPS)
def test_every_operator(op: str):
    cases = Cases()
    for shape, axes in (
        ((6, 50), (1,)),
        ((6, 50), (0,)),
        ((2, 7, 1, 1), (1,)),
        ((4, 3, 5), (0, 2)),
        ((1,), (0,)),
    ):
        cases.expect(
            cases.op(op, cases.normal(*shape), cases.const(np.array(axes)), keepdims=0),
            f"{shape}_{axes}",
        )
    cases.check()


def test_other_types():
    cases = Cases()
    for dtype, limit in (
        (np.float64, 1e-12),
        (np.float16, 2e-3),
        (np.int64, 0.0),
        (np.int32, 0.0),
        (np.uint8, 0.0),
    ):
        x = cases.feed((cases.rng.standard_normal((5, 30)) * 20).astype(dtype))
        for op in ("ReduceMax", "ReduceMin", *(("ReduceSum",) if dtype is not np.uint8 else ())):
            cases.expect(
                cases.op(op, x, cases.const(np.array([1]))), f"{op}_{dtype.__name__}", limit
            )
    cases.check(peer=False)


def test_means_of_numbers_whose_sum_has_no_room():
    cases = Cases()
    for dtype in (np.int32, np.uint32, np.int16, np.uint8):
        info = np.iinfo(dtype)
        x = cases.feed(np.array([[info.max] * 40, [info.min] * 39 + [1], [7] * 40], dtype))
        cases.expect(cases.op("ReduceMean", x, cases.const(np.array([1]))), "along", 0)
        cases.expect(cases.op("ReduceMean", x, cases.const(np.array([0]))), "across", 0)
    cases.check(peer=False)


def test_nan_and_infinities():
    cases = Cases()
    x = np.array(
        [
            [1, np.nan, 3],
            [-np.inf, -5, 2],
            [np.inf, np.inf, 0],
            [-np.nan, -1, -2],
            [-0.0, -1, -np.inf],
        ],
        np.float32,
    )
    for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        cases.expect(cases.op(op, cases.feed(x), cases.const(np.array([1]))), op)
        cases.expect(cases.op(op, cases.feed(x), cases.const(np.array([0]))), f"{op}_across")
    cases.check(peer=False)


def test_with_neighbours():
    cases = Cases()
    x = cases.normal(2, 8, 6, 7)
    product = cases.op("Mul", x, cases.normal(8, 1, 1))
    cases.expect(
        cases.op("ReduceSum", cases.op("Exp", product), cases.const(np.array([1]))),
        "broadcast across",
    )
    cases.expect(cases.op("ReduceMean", product, cases.const(np.array([2, 3]))), "broadcast along")
    cases.expect(
        cases.op(
            "ReduceMax", cases.op("Transpose", x, perm=(0, 2, 3, 1)), cases.const(np.array([1, 2]))
        ),
        "transposed",
    )
    cases.expect(cases.op("GlobalAveragePool", cases.op("Relu", x)), "pool")
    cases.check()


@pytest.mark.parametrize("shape", [(1, 2, 80, 80, 16), (3, 512, 48), (2, 6400, 16), (2, 521, 16)])
def test_a_long_sum_across_memory_is_as_good_as_one_along_it(shape: tuple[int, ...]):
    cases = Cases()
    x = (cases.rng.standard_normal(shape) + 1).astype(np.float32)
    axes = tuple(range(1, len(shape) - 1)) if len(shape) == 3 else (2, 3)
    cases.expect(cases.op("ReduceMean", cases.feed(x), cases.const(np.array(axes))), limit=2e-6)
    cases.expect(
        cases.op("ReduceL2", cases.op("Abs", cases.feed(x)), cases.const(np.array(axes))),
        limit=3e-6,
    )
    cases.check(peer=False)
