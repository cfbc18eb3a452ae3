"""Pool kernels against the reference, on the blocked and on the plain layout."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Cases
from tests.kernels.native import NativeCase, run_native
from whence.codegen.render_c import render_kernel
from whence.errors import UnsupportedError
from whence.graph.builder import GraphBuilder
from whence.kernels.conv.pool import lower_pool
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.passes.equivalence import difference
from whence.types import DType


def _pool(
    name: str,
    op: str,
    shape: tuple[int, ...],
    *,
    tile: Tile = AVX512,
    dtype: type = np.float32,
    tail: tuple[str, ...] = (),
    **attrs: Any,
) -> NativeCase:
    rng, build = np.random.default_rng(0), GraphBuilder(name)
    x: np.ndarray = (10 * rng.standard_normal(shape)).astype(dtype)
    y = build.op(op, build.input("x", DType.of(x), shape), name="anchor", **attrs)
    for each in tail:
        y = build.op(each, y)
    build.output("y", y)
    return NativeCase(name, build.finish(), {"x": x}, lower_pool, tile, op)


def _check(cases: list[NativeCase]) -> None:
    wrong = {}
    for case, (made,) in zip(cases, run_native(cases), strict=True):
        expected = np.asarray(case.graph.run(case.feeds)[0])
        gap = difference(expected, made)
        if made.shape != expected.shape or not gap <= 1e-5:
            wrong[case.name] = gap
    assert not wrong


@pytest.mark.parametrize("op", ["BlockedMaxPool", "BlockedAveragePool"])
def test_blocked(op: str) -> None:
    _check(
        [
            _pool(
                "3x3 stride 2",
                op,
                (2, 2, 15, 20, 16),
                kernel_shape=(3, 3),
                strides=(2, 2),
                pads=(1, 1, 1, 1),
            ),
            _pool("2x2 stride 2", op, (1, 1, 8, 9, 16), kernel_shape=(2, 2), strides=(2, 2)),
            _pool("short rows", op, (1, 3, 5, 3, 16), kernel_shape=(3, 2), pads=(1, 1, 1, 0)),
            _pool(
                "ceil mode",
                op,
                (1, 1, 10, 11, 16),
                kernel_shape=(3, 3),
                strides=(2, 2),
                ceil_mode=1,
            ),
            _pool(
                "ceil mode and padding",
                op,
                (1, 1, 9, 12, 16),
                kernel_shape=(3, 3),
                strides=(2, 3),
                pads=(1, 1, 1, 1),
                ceil_mode=1,
            ),
            _pool(
                "same",
                op,
                (1, 1, 9, 12, 16),
                kernel_shape=(4, 3),
                strides=(2, 2),
                auto_pad="SAME_LOWER",
            ),
            _pool(
                "with a tail",
                op,
                (1, 2, 6, 30, 16),
                kernel_shape=(5, 5),
                pads=(2, 2, 2, 2),
                tail=("Relu", "Tanh"),
            ),
            _pool("avx2", op, (1, 2, 6, 9, 8), kernel_shape=(3, 3), pads=(1, 1, 1, 1), tile=AVX2),
            _pool(
                "neon in blocks of 8",
                op,
                (1, 2, 6, 9, 8),
                kernel_shape=(3, 3),
                pads=(1, 1, 1, 1),
                tile=NEON,
            ),
        ]
    )


def test_average_over_padding() -> None:
    both: dict[str, Any] = {
        "kernel_shape": (3, 3),
        "strides": (2, 2),
        "pads": (1, 1, 1, 1),
        "count_include_pad": 1,
    }
    _check(
        [
            _pool("blocked", "BlockedAveragePool", (1, 1, 9, 12, 16), **both),
            _pool("blocked, ceil", "BlockedAveragePool", (1, 1, 9, 12, 16), ceil_mode=1, **both),
            _pool("plain", "AveragePool", (1, 3, 9, 12), **both),
            _pool("plain, ceil", "AveragePool", (1, 3, 9, 12), ceil_mode=1, **both),
        ]
    )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_plain(op: str) -> None:
    _check(
        [
            _pool(
                "2-D", op, (2, 3, 13, 18), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)
            ),
            _pool(
                "1-D", op, (1, 2, 101), kernel_shape=(5,), strides=(3,), pads=(2, 1), tail=("Relu",)
            ),
            _pool("3-D", op, (1, 2, 5, 6, 7), kernel_shape=(2, 3, 2), strides=(1, 2, 2)),
            _pool(
                "ceil mode", op, (1, 1, 10, 11), kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1
            ),
        ]
    )


def test_other_types() -> None:
    _check(
        [
            _pool(
                "bytes",
                "MaxPool",
                (1, 2, 8, 8),
                dtype=np.int8,
                kernel_shape=(3, 3),
                pads=(1, 1, 1, 1),
            ),
            _pool(
                "half",
                "AveragePool",
                (1, 2, 8, 8),
                dtype=np.float16,
                kernel_shape=(2, 2),
                strides=(2, 2),
            ),
            _pool(
                "double",
                "MaxPool",
                (1, 2, 8, 8),
                dtype=np.float64,
                kernel_shape=(2, 2),
                dilations=(2, 3),
            ),
            _pool(
                "dilated average",
                "AveragePool",
                (1, 2, 8, 8),
                kernel_shape=(2, 2),
                dilations=(2, 3),
                pads=(1, 2, 1, 2),
            ),
            _pool("third norm", "LpPool", (1, 2, 8, 8), kernel_shape=(2, 2), p=3),
            _pool("first norm", "LpPool", (1, 2, 8, 8), kernel_shape=(2, 2), p=1),
        ]
    )


def test_the_largest_of_nothing_but_nan_is_nan() -> None:
    case = _pool("nan", "BlockedMaxPool", (1, 1, 4, 20, 16), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    x = case.feeds["x"].copy()
    x[0, 0, 1, 5, 3] = np.nan
    broken = NativeCase(case.name, case.graph, {"x": x}, case.lower, case.tile, case.anchor)
    ((made,),) = run_native([broken])
    expected = np.asarray(case.graph.run({"x": x})[0])
    assert np.isnan(expected).sum() == 9
    np.testing.assert_array_equal(made, expected)


def test_positions_are_not_covered() -> None:
    build = GraphBuilder("positions")
    y = build.op(
        "MaxPool",
        build.input("x", DType.F32, (1, 2, 8, 8)),
        name="anchor",
        n_outputs=2,
        kernel_shape=(2, 2),
    )
    build.output("y", y)
    build.output("where", y[1])
    with pytest.raises(UnsupportedError, match="'anchor' also returns positions"):
        NativeCase("positions", build.finish(), {}, lower_pool, AVX512, "MaxPool").kernel()


def test_all_channels_of_a_tile_come_before_the_next_tile() -> None:
    """They share cache lines, which would otherwise come once for each vector of a block."""
    case = _pool(
        "2x2 stride 2",
        "BlockedMaxPool",
        (1, 1, 32, 32, 16),
        tile=AVX2,
        kernel_shape=(2, 2),
        strides=(2, 2),
    )
    text = render_kernel(case.kernel(), "pool")
    loops = re.findall(r"for \(int64_t (\w+) =", text)
    assert loops.index("row") < loops.index("column") < loops.index("lane0")


def test_long_rows_of_prime_length() -> None:
    """Longer than what a stack holds: such a row is divided, and its last part is shorter."""
    cases = Cases(21)
    for width in (8191, 16411, 4_194_319):
        x = cases.normal(1, 1, width)
        y = cases.op("AveragePool", x, kernel_shape=(3,), pads=(1, 1))
        cases.expect(y, str(width))
    cases.check()
