"""Convolution kernels against the reference: odd sizes, strides, paddings, dilations, channels,
epilogues, and the tiles of three machines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.native import Lower, NativeCase, run_native
from whence.errors import UnsupportedError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.kernels.conv.algorithm import lower_blocked_conv
from whence.kernels.conv.depthwise import lower_depthwise
from whence.kernels.conv.direct import lower_conv
from whence.kernels.conv.general import lower_conv_general
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.ops.neural.blocked import from_blocked, to_blocked
from whence.passes.equivalence import difference
from whence.types import DType


class Conv:
    """One blocked convolution to test, by the sizes of its plain form."""

    def __init__(
        self,
        name: str,
        x: tuple[int, int, int, int],
        out: int,
        kernel: tuple[int, int],
        **attrs: Any,
    ) -> None:
        self.name, self.x, self.out, self.kernel = name, x, out, kernel
        self.tile: Tile = attrs.pop("tile", AVX512)
        self.block: int = attrs.pop("block", self.tile.lanes)
        self.residual: bool = attrs.pop("residual", False)
        self.bias: bool = attrs.pop("bias", True)
        self.tail: tuple[str, ...] = attrs.pop("tail", ())
        self.lower: Lower = attrs.pop("lower", lower_blocked_conv)
        self.attrs = attrs

    def case(self, rng: np.random.Generator) -> NativeCase:
        build, feeds = GraphBuilder(self.name), {}
        batch, channels, height, width = self.x
        plain = bool(self.attrs.get("plain_input", 0))
        x = rng.standard_normal(self.x).astype(np.float32)
        feeds["x"] = x if plain else self._blocked(x, rng)
        depth = channels // self.attrs.get("group", 1)
        weights = rng.standard_normal((self.out, depth, *self.kernel)).astype(np.float32)
        inputs: list[Symbol | None] = [
            build.input("x", DType.F32, feeds["x"].shape),
            build.const(weights),
            None,
        ]
        if self.bias:
            inputs[2] = build.const(rng.standard_normal(self.out).astype(np.float32))
        attrs = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), **self.attrs}
        attrs |= {"block": self.block, "channels_in": channels, "channels_out": self.out}
        if self.residual:
            shape = [batch, self.out, *self._spatial(attrs, height, width)]
            feeds["z"] = self._blocked(rng.standard_normal(shape).astype(np.float32), rng)
            inputs.append(build.input("z", DType.F32, feeds["z"].shape))
        y = build.op(
            "BlockedConv",
            *(inputs if self.residual or self.bias else inputs[:2]),
            name="anchor",
            **attrs,
        )
        for op in self.tail:
            y = (
                build.op(op, y)
                if op != "Mul"
                else build.op("Mul", y, build.const(self._scale(rng)))
            )
        build.output("y", y)
        return NativeCase(self.name, build.finish(), feeds, self.lower, self.tile, "BlockedConv")

    def _blocked(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Blocked, with rubbish behind the last channel: no kernel may let it touch a result."""
        y = to_blocked(x, self.block)
        rest = x.shape[1] % self.block
        if rest:
            y[:, -1, ..., rest:] = np.nan
        return y

    def _spatial(self, attrs: dict[str, Any], height: int, width: int) -> tuple[int, int]:
        def size(extent: int, axis: int) -> int:
            reach = (self.kernel[axis] - 1) * attrs["dilations"][axis] + 1
            return int(
                (extent + attrs["pads"][axis] + attrs["pads"][axis + 2] - reach)
                // attrs["strides"][axis]
                + 1
            )

        return size(height, 0), size(width, 1)

    def _scale(self, rng: np.random.Generator) -> np.ndarray:
        blocks = -(-self.out // self.block)
        return rng.standard_normal((1, blocks, 1, 1, self.block)).astype(np.float32)


def check(convolutions: list[Conv], limit: float = 1e-5) -> None:
    rng = np.random.default_rng(0)
    cases = [convolution.case(rng) for convolution in convolutions]
    wrong = {}
    for convolution, case, (made,) in zip(convolutions, cases, run_native(cases), strict=True):
        (expected,) = case.graph.run(case.feeds)
        gap = difference(
            from_blocked(np.asarray(expected), convolution.out), from_blocked(made, convolution.out)
        )
        if not gap <= limit:
            wrong[case.name] = gap
    assert not wrong


def test_shapes_of_tiles() -> None:
    check(
        [
            Conv("pointwise: the image is one row", (1, 32, 9, 11), 48, (1, 1)),
            Conv("pointwise, one pixel", (2, 40, 1, 1), 24, (1, 1)),
            Conv("rows of one tile", (1, 16, 5, 13), 32, (3, 3), pads=(1, 1, 1, 1)),
            Conv("rows of three tiles", (1, 16, 4, 37), 16, (3, 3), pads=(1, 1, 1, 1)),
            Conv("short rows, several to a tile", (1, 32, 7, 7), 64, (3, 3), pads=(1, 1, 1, 1)),
            Conv("very short rows", (2, 16, 9, 2), 32, (3, 3), pads=(1, 1, 1, 1)),
            Conv("one row", (1, 16, 1, 50), 32, (1, 5), pads=(0, 2, 0, 2)),
            Conv("one column", (1, 16, 50, 1), 32, (5, 1), pads=(2, 0, 2, 0)),
        ]
    )


def test_strides_paddings_and_dilations() -> None:
    check(
        [
            Conv("stride 2", (1, 32, 14, 15), 32, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
            Conv("stride 2, pointwise", (1, 32, 13, 14), 32, (1, 1), strides=(2, 2)),
            Conv("uneven strides", (1, 16, 12, 17), 16, (3, 3), strides=(3, 2), pads=(1, 0, 0, 2)),
            Conv("dilated", (1, 16, 19, 18), 16, (3, 3), dilations=(4, 5), pads=(4, 5, 4, 5)),
            Conv(
                "dilated out of sight",
                (1, 16, 5, 6),
                16,
                (3, 3),
                dilations=(6, 7),
                pads=(6, 7, 6, 7),
            ),
            Conv("more padding than kernel", (1, 16, 4, 4), 16, (2, 2), pads=(3, 4, 2, 5)),
            Conv("large kernel", (1, 16, 8, 9), 16, (7, 6), pads=(3, 2, 3, 3)),
            Conv("no padding", (1, 16, 8, 17), 16, (3, 3)),
        ]
    )


def test_channels() -> None:
    check(
        [
            Conv("channels that fill no block", (1, 5, 6, 15), 7, (3, 3), pads=(1, 1, 1, 1)),
            Conv("a block and a half", (1, 24, 6, 15), 40, (3, 3), pads=(1, 1, 1, 1)),
            Conv("three panels, the last one narrow", (1, 24, 3, 15), 80, (1, 1)),
            Conv("groups", (1, 64, 6, 9), 96, (3, 3), pads=(1, 1, 1, 1), group=2),
            Conv("many groups of one block", (2, 64, 5, 5), 64, (3, 3), pads=(1, 1, 1, 1), group=4),
            Conv(
                "plain input",
                (2, 3, 17, 18),
                24,
                (7, 7),
                strides=(2, 2),
                pads=(3, 3, 3, 3),
                plain_input=1,
            ),
            Conv("plain input, pointwise", (1, 3, 5, 6), 16, (1, 1), plain_input=1),
            Conv(
                "plain input, dilated",
                (1, 4, 9, 16),
                32,
                (3, 3),
                dilations=(2, 2),
                pads=(2, 2, 2, 2),
                plain_input=1,
            ),
        ]
    )


def test_epilogues() -> None:
    check(
        [
            Conv("no bias", (1, 16, 4, 9), 32, (1, 1), bias=False),
            Conv(
                "relu and residual",
                (1, 16, 4, 9),
                40,
                (3, 3),
                pads=(1, 1, 1, 1),
                residual=True,
                activation="Relu",
            ),
            Conv(
                "clip",
                (1, 16, 4, 9),
                16,
                (1, 1),
                activation="Clip",
                activation_alpha=0.0,
                activation_beta=6.0,
            ),
            Conv(
                "leaky relu with its own slope", (1, 16, 4, 9), 16, (1, 1), activation="LeakyRelu"
            ),
            Conv("hard swish", (1, 16, 4, 9), 16, (1, 1), activation="HardSwish"),
            Conv(
                "swish, through memory",
                (1, 16, 4, 9),
                48,
                (3, 3),
                pads=(1, 1, 1, 1),
                activation="Swish",
                residual=True,
            ),
            Conv("a tail of operators", (2, 16, 4, 9), 24, (1, 1), tail=("Mul", "Relu", "Mul")),
            Conv("a tail through memory", (2, 16, 4, 9), 24, (1, 1), tail=("Mul", "Tanh")),
        ]
    )


def test_depthwise() -> None:
    pads = (1, 1, 1, 1)
    check(
        [
            Conv(
                "3x3",
                (1, 24, 9, 20),
                24,
                (3, 3),
                pads=pads,
                group=24,
                lower=lower_depthwise,
                activation="Relu",
                residual=True,
            ),
            Conv(
                "3x3 stride 2",
                (2, 32, 15, 14),
                32,
                (3, 3),
                pads=pads,
                strides=(2, 2),
                group=32,
                lower=lower_depthwise,
            ),
            Conv(
                "5x5 on short rows",
                (1, 16, 7, 7),
                16,
                (5, 5),
                pads=(2, 2, 2, 2),
                group=16,
                lower=lower_depthwise,
                activation="Swish",
            ),
            Conv(
                "5x3 dilated",
                (1, 8, 12, 13),
                8,
                (5, 3),
                pads=(4, 2, 4, 2),
                dilations=(2, 2),
                group=8,
                lower=lower_depthwise,
            ),
            Conv(
                "one row",
                (1, 16, 1, 40),
                16,
                (1, 9),
                pads=(0, 8, 0, 0),
                group=16,
                lower=lower_depthwise,
            ),
            Conv("whole image", (1, 16, 7, 7), 16, (7, 7), group=16, lower=lower_depthwise),
        ]
    )


@pytest.mark.parametrize(
    ("tile", "block"),
    [(AVX2, 8), (AVX2, 16), (NEON, 4), (NEON, 16)],
    ids=["avx2", "avx2 in blocks of 16", "neon", "neon in blocks of 16"],
)
def test_other_machines(tile: Tile, block: int) -> None:
    small = replace(tile, cache_bytes=1 << 13)
    check(
        [
            Conv(
                "3x3",
                (1, 20, 7, 19),
                28,
                (3, 3),
                pads=(1, 1, 1, 1),
                tile=tile,
                block=block,
                activation="Relu",
                residual=True,
            ),
            Conv("1x1", (2, 24, 5, 5), 36, (1, 1), tile=tile, block=block, activation="Swish"),
            Conv(
                "cut into many work items",
                (1, 24, 9, 9),
                36,
                (3, 3),
                pads=(1, 1, 1, 1),
                tile=small,
                block=block,
            ),
            Conv(
                "plain",
                (1, 3, 9, 16),
                20,
                (3, 3),
                strides=(2, 2),
                pads=(1, 1, 1, 1),
                tile=tile,
                block=block,
                plain_input=1,
            ),
            Conv(
                "depthwise",
                (1, 20, 5, 9),
                20,
                (3, 3),
                pads=(1, 1, 1, 1),
                tile=tile,
                block=block,
                group=20,
            ),
        ]
    )


def test_what_is_not_covered_says_so() -> None:
    rng = np.random.default_rng(0)
    for wrong in (
        Conv("groups of odd size", (1, 24, 4, 4), 24, (1, 1), group=2, lower=lower_conv),
        Conv("blocks smaller than vectors", (1, 16, 4, 4), 16, (1, 1), block=8, lower=lower_conv),
        Conv("not depthwise", (1, 16, 4, 4), 16, (1, 1), lower=lower_depthwise),
    ):
        with pytest.raises(UnsupportedError, match="anchor"):
            wrong.case(rng).kernel()


# ---- any form, on the plain layout ----


def _general(
    name: str,
    op: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    dtype: type = np.float32,
    **attrs: Any,
) -> NativeCase:
    rng, build = np.random.default_rng(1), GraphBuilder(name)
    feeds: dict[str, np.ndarray] = {}
    feeds["x"] = rng.standard_normal(x).astype(dtype)
    values: list[Symbol | None] = [build.input("x", DType.of(feeds["x"]), x)]
    if attrs.pop("constant", True):
        values.append(build.const(rng.standard_normal(w).astype(dtype)))
    else:
        feeds["w"] = rng.standard_normal(w).astype(dtype)
        values.append(build.input("w", DType.of(feeds["w"]), w))
    made = w[1] * attrs.get("group", 1) if "Transpose" in op else w[0]
    values.append(build.const(rng.standard_normal(made).astype(dtype)))
    tail = attrs.pop("tail", ())
    y = build.op(op, *values, **attrs)
    for each in tail:
        y = build.op(each, y)
    build.output("y", y)
    return NativeCase(name, build.finish(), feeds, lower_conv_general, AVX512, op)


def test_general_forms() -> None:
    cases = [
        _general(
            "2-D",
            "Conv",
            (2, 3, 9, 11),
            (5, 3, 3, 3),
            pads=(1, 1, 1, 1),
            strides=(2, 1),
            tail=("Relu",),
        ),
        _general(
            "1-D, grouped", "Conv", (2, 6, 50), (9, 2, 5), group=3, pads=(2, 2), dilations=(2,)
        ),
        _general("3-D", "Conv", (1, 2, 5, 6, 7), (3, 2, 2, 3, 3), pads=(1, 1, 1, 0, 1, 1)),
        _general(
            "same padding",
            "Conv",
            (1, 3, 8, 9),
            (4, 3, 3, 4),
            auto_pad="SAME_UPPER",
            strides=(2, 2),
        ),
        _general("weights from a tensor", "Conv", (1, 3, 6, 6), (4, 3, 3, 3), constant=False),
        _general(
            "supernode", "FusedConv", (1, 4, 6, 6), (6, 2, 3, 3), group=2, activation="LeakyRelu"
        ),
        _general("double", "Conv", (1, 3, 6, 6), (4, 3, 3, 3), np.float64),
        _general(
            "transposed",
            "ConvTranspose",
            (1, 4, 5, 6),
            (4, 3, 3, 3),
            strides=(2, 2),
            pads=(1, 1, 1, 1),
            output_padding=(1, 1),
        ),
        _general(
            "transposed, grouped",
            "ConvTranspose",
            (2, 6, 7),
            (6, 2, 4),
            group=2,
            strides=(3,),
            dilations=(2,),
        ),
        _general(
            "transposed, given shape",
            "ConvTranspose",
            (1, 2, 4, 4),
            (2, 3, 3, 3),
            strides=(2, 2),
            output_shape=(8, 8),
        ),
        _general("long prime rows", "Conv", (1, 1, 1021), (2, 1, 3), pads=(1, 1)),
    ]
    wrong = {}
    for case, (made,) in zip(cases, run_native(cases), strict=True):
        gap = difference(np.asarray(case.graph.run(case.feeds)[0]), made)
        if not gap <= 1e-5:
            wrong[case.name] = gap
    assert not wrong


def test_several_outputs_of_one_convolution() -> None:
    """A sum that is needed as it is and after its activation is stored twice."""
    rng, build = np.random.default_rng(2), GraphBuilder("two")
    x = build.input("x", DType.F32, (1, 1, 4, 5, 16))
    y = build.op(
        "BlockedConv",
        x,
        build.const(rng.standard_normal((16, 16, 1, 1)).astype(np.float32)),
        block=16,
        channels_in=16,
        channels_out=16,
    )
    build.output("sum", y)
    build.output("relu", build.op("Relu", y))
    graph: Graph = build.finish()
    feeds = {"x": rng.standard_normal((1, 1, 4, 5, 16)).astype(np.float32)}
    case = NativeCase("two", graph, feeds, lower_conv, AVX512, "BlockedConv")
    for made, expected in zip(run_native([case])[0], graph.run(feeds), strict=True):
        assert difference(np.asarray(expected), made) <= 1e-5
