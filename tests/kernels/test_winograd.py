"""Winograd's convolution against the reference, and its error beside that of the direct form."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.kernels.native import Lower, NativeCase, run_native
from tests.kernels.test_conv import Conv, check
from whence.graph import Node
from whence.kernels.conv.algorithm import lower_blocked_conv
from whence.kernels.conv.direct import lower_conv
from whence.kernels.conv.winograd import (
    WinogradPlan,
    cheapest_winograd,
    lower_winograd,
    winograd_plans,
)
from whence.kernels.conv.winograd_program import Winograd
from whence.kernels.conv.winograd_transforms import transforms
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.ops.neural.blocked import from_blocked


def by(size: int, rows: int, vectors: int, chunk: int) -> Lower:
    """Lower with exactly this plan, whatever it costs."""

    def lower(group: Group, anchor: Node, tile: Tile) -> Kernel:
        return lower_winograd(group, anchor, tile, WinogradPlan(size, rows, vectors, chunk))

    return lower


@pytest.mark.parametrize("size", [2, 4])
def test_the_matrices_are_exact(size: int) -> None:
    matrices = transforms(size)
    x = [Fraction(number * number % 7 - 3) for number in range(size + 2)]
    w = [Fraction(2), Fraction(-5), Fraction(3)]
    places = [
        a * b for a, b in zip(_times(matrices.weights, w), _times(matrices.input, x), strict=True)
    ]
    assert _times(matrices.output, places) == [
        sum((x[i + k] * w[k] for k in range(3)), Fraction(0)) for i in range(size)
    ]


def _times(matrix: tuple[tuple[Fraction, ...], ...], column: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for row in matrix]


def test_shapes_and_borders() -> None:
    pads = (1, 1, 1, 1)
    check(
        [
            Conv("whole tiles", (1, 16, 8, 8), 32, (3, 3), pads=pads, lower=by(4, 4, 2, 4)),
            Conv(
                "tiles that stick out", (1, 32, 7, 9), 32, (3, 3), pads=pads, lower=by(4, 3, 1, 6)
            ),
            Conv(
                "small tiles that stick out",
                (1, 32, 7, 9),
                32,
                (3, 3),
                pads=pads,
                lower=by(2, 5, 2, 20),
            ),
            Conv(
                "two images, several chunks",
                (2, 16, 11, 13),
                64,
                (3, 3),
                pads=pads,
                lower=by(4, 5, 4, 10),
            ),
            Conv("no padding", (1, 16, 10, 6), 16, (3, 3), lower=by(4, 2, 1, 2)),
            Conv(
                "uneven padding",
                (1, 16, 5, 6),
                16,
                (3, 3),
                pads=(2, 0, 1, 3),
                lower=by(2, 7, 1, 14),
            ),
            Conv("less than a tile", (1, 16, 2, 3), 16, (3, 3), pads=pads, lower=by(4, 1, 1, 1)),
            Conv(
                "tiles that begin beyond the image",
                (1, 16, 16, 16),
                16,
                (3, 3),
                pads=(0, 0, 3, 3),
                lower=by(4, 5, 1, 25),
            ),
            Conv(
                "padding wider than the image",
                (1, 16, 2, 3),
                16,
                (3, 3),
                pads=(4, 4, 5, 5),
                lower=by(2, 7, 1, 21),
            ),
            Conv("one pixel", (1, 16, 1, 1), 48, (3, 3), pads=pads, lower=by(4, 1, 3, 1)),
        ]
    )


def test_channels_and_epilogues() -> None:
    pads = (1, 1, 1, 1)
    check(
        [
            Conv(
                "channels that fill no block",
                (1, 5, 6, 15),
                7,
                (3, 3),
                pads=pads,
                lower=by(4, 4, 1, 8),
            ),
            Conv(
                "a block and a half", (1, 24, 6, 15), 40, (3, 3), pads=pads, lower=by(2, 8, 3, 24)
            ),
            Conv(
                "relu and residual",
                (2, 16, 4, 9),
                40,
                (3, 3),
                pads=pads,
                lower=by(4, 6, 3, 6),
                residual=True,
                activation="Relu",
            ),
            Conv(
                "swish, through memory",
                (1, 16, 4, 9),
                48,
                (3, 3),
                pads=pads,
                lower=by(4, 3, 1, 3),
                activation="Swish",
                residual=True,
            ),
            Conv(
                "a tail through memory",
                (2, 16, 4, 9),
                24,
                (3, 3),
                pads=pads,
                lower=by(2, 5, 2, 10),
                tail=("Mul", "Tanh"),
            ),
        ]
    )


@pytest.mark.parametrize(("tile", "block"), [(AVX2, 8), (AVX2, 16), (NEON, 4), (NEON, 16)])
def test_other_machines(tile: Tile, block: int) -> None:
    def conv(name: str, lower: Lower, **more: object) -> Conv:
        return Conv(
            name,
            (1, 20, 7, 19),
            28,
            (3, 3),
            pads=(1, 1, 1, 1),
            tile=tile,
            block=block,
            lower=lower,
            **more,
        )

    wide = 2 if block == 16 else 1
    check(
        [
            conv("large tiles", by(4, 5, 1, 10), activation="Relu"),
            conv("small tiles", by(2, 6, wide, 12), residual=True),
        ]
    )


def test_it_is_taken_where_it_pays() -> None:
    def kind(**sizes: int) -> int:
        case = Conv(
            "conv",
            (1, sizes["channels"], sizes["extent"], sizes["extent"]),
            sizes["channels"],
            (3, 3),
            pads=(1, 1, 1, 1),
        )
        native = case.case(np.random.default_rng(0))
        (anchor,) = (node for node in native.graph if node.op == "BlockedConv")
        tile = replace(AVX512, cache_bytes=2 << 20)
        found = cheapest_winograd(native.group(), anchor, tile)
        (statement,) = lower_blocked_conv(native.group(), anchor, tile).body
        assert isinstance(statement, Winograd) == (found is not None)
        return 0 if found is None else found[1].size

    assert kind(channels=64, extent=56) == 4
    assert kind(channels=128, extent=28) == 4
    # Four times the weights for four tiles: fetching them takes longer than the products they save.
    assert kind(channels=512, extent=7) == 0


@pytest.mark.parametrize("tile", [AVX2, AVX512, NEON], ids=["avx2", "avx512", "neon"])
def test_a_register_tile_leaves_room_for_its_weights(tile: Tile) -> None:
    """Sums that do not stay in registers, beside a row of weights and an input value, take half as
    long again.
    """
    registers = tile.rows * tile.vectors + tile.vectors + 1
    for channels, extent in ((32, 40), (24, 12), (96, 20)):
        case = Conv("conv", (1, 96, extent, extent), channels, (3, 3), pads=(1, 1, 1, 1))
        native = case.case(np.random.default_rng(0))
        (anchor,) = (node for node in native.graph if node.op == "BlockedConv")
        for plan in winograd_plans(native.group(), anchor, tile):
            assert (plan.tile_rows + 1) * plan.vectors + 1 <= registers


def test_its_error_is_close_to_that_of_the_direct_form() -> None:
    errors = {}
    for name, lower in {"direct": lower_conv, "2": by(2, 14, 2, 98), "4": by(4, 13, 2, 26)}.items():
        case = Conv(
            name, (1, 256, 14, 14), 32, (3, 3), pads=(1, 1, 1, 1), bias=False, lower=lower
        ).case(np.random.default_rng(3))
        errors[name] = error_of(case)
    assert errors["direct"] < 3e-6
    assert errors["2"] < 2 * errors["direct"]
    assert errors["4"] < 4 * errors["direct"]


def error_of(case: NativeCase) -> float:
    """The largest difference from double precision, relative to the largest output."""
    ((made,),) = run_native([case])
    (anchor,) = (node for node in case.graph if node.op == "BlockedConv")
    weights = case.graph.const_value(anchor.inputs[1])
    assert weights is not None
    x = np.pad(
        from_blocked(case.feeds["x"], weights.shape[1]).astype(np.float64),
        ((0, 0), (0, 0), (1, 1), (1, 1)),
    )
    height, width = x.shape[2] - 2, x.shape[3] - 2
    exact = sum(
        np.einsum(
            "nchw,oc->nohw",
            x[:, :, i : i + height, j : j + width],
            weights[:, :, i, j].astype(np.float64),
        )
        for i in range(3)
        for j in range(3)
    )
    return float(np.abs(from_blocked(made, weights.shape[0]) - exact).max() / np.abs(exact).max())
