"""Convolution by matrix units against the reference, and its error beside that of the other
ways.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.native import Lower, run_native
from tests.kernels.test_conv import Conv, check
from tests.kernels.test_winograd import by as by_winograd
from tests.kernels.test_winograd import error_of
from whence.codegen.emit import emit
from whence.codegen.target import Arch, Target
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.bf16x2 import DEPTH, PANEL, TILE, pack_bf16x2, packed_floats
from whence.kernels.conv.algorithm import lower_blocked_conv
from whence.kernels.conv.bf16x2 import Bf16x2ConvPlan, lower_bf16x2_conv
from whence.kernels.conv.bf16x2_program import Bf16x2Conv
from whence.kernels.conv.direct import lower_conv
from whence.kernels.conv.winograd_program import Winograd
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.tile import AVX512, Tile
from whence.ops.neural.blocked import from_blocked

MATRIX = replace(AVX512, cache_bytes=2 << 20, bf16x2=True)
PADS = (1, 1, 1, 1)
runs_emulated = pytest.mark.skipif(
    Target.default().arch is not Arch.X86_64,
    reason="matrix units are emulated on x86 only (tests/kernels/emulated_tiles.py)",
)


def by(chunk: int, parts: int) -> Lower:
    """Lower with exactly this plan, whatever it costs."""

    def lower(group: Group, anchor: Node, tile: Tile) -> Kernel:
        return lower_bf16x2_conv(group, anchor, tile, Bf16x2ConvPlan(chunk, parts))

    return lower


def conv(
    name: str,
    x: tuple[int, int, int, int],
    out: int,
    kernel: tuple[int, int],
    chunk: int,
    parts: int = 1,
    **attrs: object,
) -> Conv:
    return Conv(name, x, out, kernel, tile=MATRIX, lower=by(chunk, parts), **attrs)


SHAPES = [
    conv("pointwise", (1, 64, 9, 11), 96, (1, 1), 9),
    conv("pointwise, chunks and parts", (2, 32, 9, 11), 128, (1, 1), 4, 3),
    conv("pointwise, every other pixel", (1, 32, 9, 12), 32, (1, 1), 2, strides=(2, 2)),
    conv("rows that go on", (1, 32, 7, 7), 64, (3, 3), 7, 2, pads=PADS),
    conv("a row at a time", (1, 32, 5, 40), 32, (3, 3), 1, pads=PADS),
    conv("strides", (1, 32, 13, 17), 32, (3, 3), 3, strides=(2, 2), pads=PADS),
    conv("strides beyond the kernel", (1, 32, 13, 17), 32, (2, 2), 2, strides=(3, 3)),
    conv(
        "uneven strides, dilation, padding",
        (1, 32, 14, 19),
        32,
        (3, 2),
        2,
        strides=(2, 1),
        dilations=(1, 3),
        pads=(2, 0, 1, 4),
    ),
    conv("padding wider than the image", (1, 32, 2, 3), 32, (5, 5), 3, pads=(3, 4, 4, 3)),
    conv("one pixel", (1, 48, 1, 1), 16, (3, 3), 1, pads=PADS),
]
EPILOGUES = [
    conv("channels that fill no block", (1, 21, 6, 15), 23, (3, 3), 2, pads=PADS),
    conv("a block and a half", (1, 40, 6, 15), 40, (3, 3), 6, pads=PADS),
    conv("an odd number of blocks", (1, 48, 6, 15), 48, (1, 1), 6, 2),
    conv(
        "relu and residual",
        (2, 32, 4, 9),
        40,
        (3, 3),
        4,
        pads=PADS,
        residual=True,
        activation="Relu",
    ),
    conv(
        "swish, through memory",
        (1, 32, 4, 9),
        48,
        (3, 3),
        3,
        pads=PADS,
        activation="Swish",
        residual=True,
    ),
]
TAILS = [
    conv("a tail through memory", (2, 32, 4, 9), 24, (3, 3), 4, pads=PADS, tail=("Mul", "Tanh"))
]


@runs_emulated
@pytest.mark.parametrize("convolutions", [SHAPES, EPILOGUES], ids=["shapes", "epilogues"])
def test_results(convolutions: list[Conv]) -> None:
    check(convolutions)


@runs_emulated
def test_a_tail_that_sees_last_digits() -> None:
    """The sums go up to fifty, and of those near zero the tanh makes results of their own size: an
    error of 4e-6 of fifty shows.
    """
    check(TAILS, limit=5e-4)


def test_the_code_compiles_for_a_machine_that_has_them() -> None:
    cases = [each.case(np.random.default_rng(0)) for each in (*SHAPES, *EPILOGUES, *TAILS)]
    emitted = emit([case.kernel() for case in cases], [["anchor"]] * len(cases))
    assert Toolchain(Target.named("x86_64-amx")).build_library(emitted.units).is_file()


def test_packed_weights() -> None:
    """A product with tiles, done by hand."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((40, 3, 50)).astype(np.float32)
    packed = pack_bf16x2(weights)
    assert packed.size == packed_floats(40, 3, 50)
    steps = (
        packed.view(np.uint16)
        .view(ml_dtypes.bfloat16)
        .astype(np.float32)
        .reshape(2, 2, 3, 2, PANEL, DEPTH // 2, TILE, 2)
    )
    whole = steps.sum(axis=3)
    for output, tap, channel in [(0, 0, 0), (17, 1, 31), (33, 2, 32), (39, 0, 49)]:
        found = whole[
            output // 32,
            channel // 32,
            tap,
            output % 32 // 16,
            channel % 32 // 2,
            output % 16,
            channel % 2,
        ]
        assert abs(found - weights[output, tap, channel]) <= 2.0**-16 * abs(
            weights[output, tap, channel]
        )
    assert not whole[1, :, :, :, :, 8:].any()
    assert not whole[:, 1, :, :, 9:].any()


@pytest.mark.parametrize("number", [np.inf, np.finfo(np.float32).max])
def test_an_infinite_weight_has_no_low_half(number: float) -> None:
    packed = (
        pack_bf16x2(np.full((1, 1, 1), number, np.float32)).view(np.uint16).view(ml_dtypes.bfloat16)
    )
    assert (np.isposinf(packed).sum(), np.isnan(packed).sum()) == (1, 0)


@runs_emulated
def test_its_error_beside_the_others() -> None:
    """Against double precision, over 256 channels and nine taps: about 4e-6 of the largest output,
    where direct products have 1.4e-6.
    """
    errors = {}
    for name, lower in {
        "direct": lower_conv,
        "winograd": by_winograd(4, 13, 2, 26),
        "halves": by(14, 1),
    }.items():
        errors[name] = error_of(
            Conv(
                name, (1, 256, 14, 14), 32, (3, 3), pads=PADS, bias=False, tile=MATRIX, lower=lower
            ).case(np.random.default_rng(3))
        )
    assert errors["direct"] < errors["winograd"] < errors["halves"] < 8e-6


@runs_emulated
def test_numbers_that_are_none() -> None:
    """NaN stays NaN, and what is infinite is not finite afterwards; neighbours do not notice."""
    case = conv("numbers", (1, 32, 1, 4), 16, (1, 1), 1).case(np.random.default_rng(0))
    for column, number in enumerate((np.nan, np.inf, np.finfo(np.float32).max)):
        case.feeds["x"][0, 0, 0, column, 0] = number
    ((made,),) = run_native([case])
    found = from_blocked(made, 16)[0, :, 0]
    assert np.isnan(found[:, 0]).all()
    assert not np.isfinite(found[:, 1:3]).any(), "the largest numbers are infinite as bfloat16"
    assert np.isfinite(found[:, 3]).all()


def test_it_is_taken_where_it_pays() -> None:
    def kind(channels: int, out: int, extent: int, kernel: int, stride: int = 1) -> type:
        pads = (kernel // 2,) * 4
        case = Conv(
            "conv",
            (1, channels, extent, extent),
            out,
            (kernel, kernel),
            pads=pads,
            strides=(stride, stride),
            tile=MATRIX,
        )
        native = case.case(np.random.default_rng(0))
        (anchor,) = (node for node in native.graph if node.op == "BlockedConv")
        (statement,) = lower_blocked_conv(native.group(), anchor, MATRIX).body
        return type(statement)

    assert kind(1024, 256, 14, 1) is Bf16x2Conv
    assert kind(128, 128, 56, 3, 2) is Bf16x2Conv
    assert kind(64, 64, 56, 3) is Winograd
    assert kind(16, 16, 4, 1) is not Bf16x2Conv, "too small to save time that anybody would see"


def test_there_must_be_matrix_units() -> None:
    case = conv("conv", (1, 32, 4, 4), 32, (1, 1), 4).case(np.random.default_rng(0))
    (anchor,) = (node for node in case.graph if node.op == "BlockedConv")
    with pytest.raises(UnsupportedError, match="matrix units"):
        lower_bf16x2_conv(case.group(), anchor, AVX512, Bf16x2ConvPlan(4, 1))
