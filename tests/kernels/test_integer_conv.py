"""Convolutions of bytes, bit for bit as the reference: every kind of window, sign, zero point and
tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.codegen.render_c import render_kernel
from whence.fusion import find_groups, fuse
from whence.graph.builder import Symbol
from whence.kernels.lower import lower
from whence.kernels.tile import AVX512


def codes(cases: Cases, *shape: int, dtype: type = np.int8) -> np.ndarray:
    """Codes of a type, its extremes among them."""
    info = np.iinfo(dtype)
    values: np.ndarray = cases.rng.integers(info.min, info.max + 1, shape).astype(dtype)
    values.reshape(-1)[:2] = np.array([info.min, info.max])[: values.size]
    return values


def conv(
    cases: Cases,
    x: tuple[int, ...],
    w: tuple[int, ...],
    x_type: type = np.int8,
    w_type: type = np.int8,
    x_zero: int = 3,
    w_zero: Any = None,
    **attrs: Any,
) -> Symbol:
    zero = cases.const(np.array(x_zero, x_type))
    zeros = None if w_zero is None else cases.const(np.array(w_zero, w_type))
    return cases.op(
        "IntegerConv",
        cases.feed(codes(cases, *x, dtype=x_type)),
        cases.const(codes(cases, *w, dtype=w_type)),
        zero,
        zeros,
        **attrs,
    )


def requantised(
    cases: Cases, sums: Symbol, channels: int, dtype: type = np.int8, rounding: str = "double"
) -> Symbol:
    """Bias, a factor for each channel, zero point, clipping: the tail of a LiteRT convolution."""
    bias = cases.const(cases.rng.integers(-4000, 4000, channels).astype(np.int32))
    multiplier = cases.const(cases.rng.integers(1 << 30, (1 << 31) - 1, channels).astype(np.int32))
    shift = cases.const(cases.rng.integers(-11, -7, channels).astype(np.int32))
    scaled = cases.op(
        "FixedPointScale", cases.op("Add", sums, bias), multiplier, shift, rounding=rounding
    )
    info = np.iinfo(dtype)
    moved = cases.op("Add", scaled, cases.const(np.array(5, np.int32)))
    clipped = cases.op(
        "Clip",
        moved,
        cases.const(np.array(info.min, np.int32)),
        cases.const(np.array(info.max, np.int32)),
    )
    return cases.op("Cast", clipped, to=2 if dtype is np.uint8 else 3)


def test_windows() -> None:
    cases = Cases()
    same: dict[str, Any] = {"pads": (1, 1, 1, 1)}
    cases.expect(conv(cases, (1, 5, 6, 8), (16, 1, 1, 8)), "pointwise", 0)
    cases.expect(conv(cases, (2, 5, 6, 8), (24, 1, 1, 8), np.uint8), "pointwise in place", 0)
    cases.expect(conv(cases, (1, 7, 9, 3), (20, 3, 3, 3), **same), "first layer", 0)
    cases.expect(
        conv(cases, (1, 8, 9, 3), (8, 3, 3, 3), np.uint8, strides=(2, 2), pads=(0, 0, 1, 1)),
        "strided",
        0,
    )
    cases.expect(
        conv(cases, (1, 9, 9, 5), (33, 3, 3, 5), dilations=(2, 2), pads=(2, 2, 2, 2)), "dilated", 0
    )
    cases.expect(conv(cases, (1, 6, 6, 12), (18, 3, 3, 4), group=3, **same), "groups", 0)
    cases.expect(
        conv(cases, (1, 6, 6, 6), (3, 3, 3, 2), group=3, **same), "groups of one filter", 0
    )
    cases.expect(conv(cases, (1, 1, 1, 70), (10, 1, 1, 70)), "one pixel", 0)
    cases.expect(conv(cases, (1, 4, 4, 70), (2, 1, 1, 70)), "two filters", 0)
    cases.expect(conv(cases, (1, 40, 40), (16, 5, 40), np.uint8, pads=(2, 2)), "one axis", 0)
    cases.expect(
        conv(cases, (2, 40, 1, 40), (16, 5, 1, 40), pads=(2, 0, 2, 0)), "one pixel wide", 0
    )
    cases.expect(
        conv(cases, (1, 3, 4, 5, 6), (7, 2, 2, 2, 6), pads=(0, 1, 0, 1, 0, 1)), "three axes", 0
    )
    cases.expect(conv(cases, (1, 2, 2, 600), (130, 3, 3, 600), **same), "deep", 0)
    cases.check(peer=False)


def test_zero_points_and_signs() -> None:
    cases = Cases(1)
    for x_type in (np.int8, np.uint8):
        for w_type in (np.int8, np.uint8):
            cases.expect(
                conv(cases, (1, 6, 7, 9), (20, 3, 3, 9), x_type, w_type, 7, 9, pads=(1, 1, 1, 1)),
                "one zero",
                0,
            )
            zeros = codes(cases, 20, dtype=w_type)
            cases.expect(
                conv(cases, (1, 6, 7, 8), (20, 1, 1, 8), x_type, w_type, 100, zeros),
                "a zero for each filter",
                0,
            )
            cases.expect(
                conv(
                    cases,
                    (1, 6, 7, 20),
                    (20, 3, 3, 1),
                    x_type,
                    w_type,
                    100,
                    zeros,
                    pads=(1, 1, 1, 1),
                    group=20,
                ),
                "depthwise",
                0,
            )
    cases.check(peer=False)


def test_depthwise() -> None:
    cases = Cases(2)
    for channels in (4, 7, 16, 24, 40):
        cases.expect(
            conv(
                cases, (1, 7, 9, channels), (channels, 3, 3, 1), group=channels, pads=(1, 1, 1, 1)
            ),
            f"{channels} channels",
            0,
        )
    wide: dict[str, Any] = {"group": 32, "strides": (2, 2)}
    cases.expect(
        conv(cases, (2, 15, 33, 32), (32, 3, 3, 1), np.uint8, **wide, pads=(0, 0, 1, 1)),
        "strided",
        0,
    )
    cases.expect(
        conv(cases, (1, 15, 17, 32), (32, 5, 5, 1), **wide, pads=(2, 2, 2, 2)), "five rows", 0
    )
    cases.expect(
        conv(cases, (1, 15, 17, 32), (32, 3, 3, 1), group=32, dilations=(2, 3), pads=(2, 3, 2, 3)),
        "dilated",
        0,
    )
    cases.expect(conv(cases, (1, 30, 20), (20, 7, 1), group=20, pads=(3, 3)), "one axis", 0)
    cases.expect(conv(cases, (1, 5, 5, 32), (32, 5, 5, 1), group=32), "the whole image", 0)
    cases.expect(
        conv(cases, (2, 30, 1, 20), (20, 9, 1, 1), group=20, strides=(2, 2), pads=(4, 0, 4, 0)),
        "one pixel wide",
        0,
    )
    cases.expect(
        conv(cases, (1, 6, 6, 8), (16, 3, 3, 1), group=8, pads=(1, 1, 1, 1)),
        "two filters a channel",
        0,
    )
    cases.check(peer=False)


@pytest.mark.parametrize("rounding", ["double", "single"])
def test_requantised(rounding: str) -> None:
    cases = Cases(3)
    for dtype in (np.int8, np.uint8):
        for made in (3, 16, 24, 37):
            made_sums = conv(cases, (1, 6, 7, 12), (made, 1, 1, 12), dtype)
            cases.expect(requantised(cases, made_sums, made, dtype, rounding), f"to {made}", 0)
        cases.expect(
            requantised(
                cases,
                conv(cases, (1, 6, 20, 24), (24, 3, 3, 1), dtype, group=24, pads=(1, 1, 1, 1)),
                24,
                dtype,
                rounding,
            ),
            "depthwise",
            0,
        )
    program = cases.check(peer=False)
    assert len(program.steps) == 10, "the tail is fused"


def test_scaling_of_every_kind() -> None:
    cases = Cases(4)
    edges = np.array(
        [
            -(2**31),
            2**31 - 1,
            -1,
            0,
            1,
            -(2**30),
            2**30,
            -3,
            3,
            12345,
            -12345,
            2**24,
            -(2**24),
            7,
            -7,
            100,
        ],
        np.int32,
    )
    values = np.concatenate(
        [edges, cases.rng.integers(-(2**31), 2**31, 16 * 63).astype(np.int32)]
    ).reshape(-1, 16)
    x = cases.feed(values)
    for rounding in ("double", "single"):
        for shift in (-31, -8, -1, 0, 1, 7):
            for multiplier in (1 << 30, (1 << 31) - 1, 1518500250):
                factors = (
                    cases.const(np.array(multiplier, np.int32)),
                    cases.const(np.array(shift, np.int32)),
                )
                cases.expect(
                    cases.op("FixedPointScale", x, *factors, rounding=rounding),
                    f"{rounding} {shift}",
                    0,
                )
        shifts = cases.const(np.arange(-12, 4, dtype=np.int32))
        multipliers = cases.const(cases.rng.integers(1 << 30, (1 << 31) - 1, 16).astype(np.int32))
        cases.expect(
            cases.op("FixedPointScale", x, multipliers, shifts, rounding=rounding), "by channel", 0
        )
        # The same as the tail of a convolution, where it is written as vectors.
        sums = conv(cases, (1, 5, 5, 64), (16, 3, 3, 64))
        cases.expect(
            cases.op("FixedPointScale", sums, multipliers, shifts, rounding=rounding), "of sums", 0
        )
    wide = cases.feed(cases.rng.integers(-(2**40), 2**40, (5, 16)))
    cases.expect(
        cases.op(
            "FixedPointScale", wide, multipliers, cases.const(np.arange(-20, -4, dtype=np.int32))
        ),
        "of 64 bits",
        0,
    )
    cases.check(peer=False)


def test_residual_addition_and_tables() -> None:
    cases = Cases(5)
    x = cases.feed(codes(cases, 1, 6, 7, 24))
    sums = cases.op(
        "IntegerConv",
        x,
        cases.const(codes(cases, 24, 3, 3, 24)),
        cases.const(np.int8(-4)),
        pads=(1, 1, 1, 1),
    )
    made = requantised(cases, sums, 24)
    wide = cases.op("Sub", cases.op("Cast", x, to=6), cases.const(np.array(-4, np.int32)))
    both = cases.op("Add", cases.op("Cast", made, to=6), wide)
    scaled = cases.op(
        "FixedPointScale",
        both,
        cases.const(np.array(1518500250, np.int32)),
        cases.const(np.array(-1, np.int32)),
    )
    small = cases.op(
        "Cast",
        cases.op(
            "Clip",
            scaled,
            cases.const(np.array(-128, np.int32)),
            cases.const(np.array(127, np.int32)),
        ),
        to=3,
    )
    cases.expect(small, "sum", 0)
    cases.expect(made, "also used", 0)
    table = cases.const(codes(cases, 256))
    cases.expect(cases.op("LookUp", small, table), "table", 0)
    cases.expect(
        cases.op("LookUp", requantised(cases, conv(cases, (1, 4, 4, 8), (16, 1, 1, 8)), 16), table),
        "table behind a convolution",
        0,
    )
    wide_table = cases.const(cases.rng.standard_normal(256).astype(np.float32))
    cases.expect(
        cases.op("LookUp", cases.feed(codes(cases, 3, 50, dtype=np.uint8)), wide_table),
        "table of real numbers",
        0,
    )
    cases.check(peer=False)


def test_scales_as_real_numbers() -> None:
    """The tail that ONNX's arithmetic has: a float factor, rounded half to even."""
    cases = Cases(6)
    for group, w in ((1, (40, 3, 3, 40)), (40, (40, 3, 3, 1))):
        sums = conv(cases, (1, 6, 7, 40), w, np.uint8, group=group, pads=(1, 1, 1, 1))
        scale = cases.const(cases.rng.uniform(0.0005, 0.002, 40).astype(np.float32))
        real = cases.op("Mul", cases.op("Cast", sums, to=1), scale)
        moved = cases.op("Add", cases.op("Round", real), cases.const(np.float32(128)))
        clipped = cases.op("Clip", moved, cases.const(np.float32(0)), cases.const(np.float32(255)))
        cases.expect(cases.op("Cast", clipped, to=2), "clip", 0)
        cases.expect(
            cases.op(
                "QuantizeLinear", real, cases.const(np.float32(1)), cases.const(np.uint8(128))
            ),
            "quantise",
            0,
        )
    cases.check(peer=False)


def test_what_is_known_only_at_run_time() -> None:
    cases = Cases(7)
    weights = cases.const(codes(cases, 20, 3, 3, 8))
    for zero in (0, 130, 255):
        x = cases.feed(codes(cases, 1, 6, 7, 8, dtype=np.uint8))
        cases.expect(
            cases.op("IntegerConv", x, weights, cases.feed(np.uint8(zero)), pads=(1, 1, 1, 1)),
            "zero point",
            0,
        )
        deep = cases.const(codes(cases, 8, 3, 3, 1))
        cases.expect(
            cases.op(
                "IntegerConv", x, deep, cases.feed(np.uint8(zero)), pads=(1, 1, 1, 1), group=8
            ),
            "depthwise",
            0,
        )
    x = cases.feed(codes(cases, 1, 6, 7, 8))
    cases.expect(
        cases.op(
            "IntegerConv",
            x,
            cases.feed(codes(cases, 20, 3, 3, 8)),
            cases.const(np.int8(-3)),
            pads=(1, 1, 1, 1),
        ),
        "weights",
        0,
    )
    cases.check(peer=False)


def test_sixteen_bits_and_transposed() -> None:
    cases = Cases(8)
    x = cases.feed(codes(cases, 1, 5, 6, 8, dtype=np.int16))
    cases.expect(
        cases.op("IntegerConv", x, cases.const(codes(cases, 12, 3, 3, 8)), pads=(1, 1, 1, 1)),
        "of 16 bits",
        0,
    )
    x = cases.feed(codes(cases, 1, 5, 6, 8))
    for group, w in ((1, (12, 3, 3, 8)), (2, (6, 3, 2, 8))):
        zero = cases.const(np.int8(4))
        made = cases.op(
            "IntegerConvTranspose",
            x,
            cases.const(codes(cases, *w)),
            zero,
            zero,
            strides=(2, 2),
            pads=(0, 0, 1, 0),
            group=group,
        )
        cases.expect(made, "transposed", 0)
    cases.check(peer=False)


def test_sums_that_wrap_around() -> None:
    """Products at the extremes, past what 16 bits hold: an instruction that saturates would
    show.
    """
    cases = Cases(9)
    for x, w in ((255, 127), (255, -128), (0, -128)):
        ones = np.full((1, 3, 3, 64), x, np.uint8)
        weights = np.full((16, 3, 3, 64), w, np.int8)
        cases.expect(
            cases.op(
                "IntegerConv",
                cases.feed(ones),
                cases.const(weights),
                cases.const(np.uint8(128)),
                pads=(1, 1, 1, 1),
            ),
            "product",
            0,
        )
        cases.expect(
            cases.op(
                "IntegerConv",
                cases.feed(ones),
                cases.const(weights[:, :, :, :1].repeat(4, 0)),
                group=64,
            ),
            "depthwise",
            0,
        )
    cases.check(peer=False)


def test_tails_are_written_as_vectors() -> None:
    """Whatever follows a convolution in quantised models; a loop over single elements would show as
    a hint to the compiler.
    """
    cases = Cases(10)
    made = requantised(cases, conv(cases, (1, 4, 4, 8), (24, 1, 1, 8)), 24)
    cases.expect(cases.op("LookUp", made, cases.const(codes(cases, 256))), "table", 0)
    real = cases.op(
        "Mul",
        cases.op("Cast", conv(cases, (1, 4, 4, 24), (24, 3, 3, 1), group=24), to=1),
        cases.const(np.float32(0.001)),
    )
    cases.expect(
        cases.op("QuantizeLinear", real, cases.const(np.float32(1)), cases.const(np.uint8(128))),
        "quantise",
        0,
    )
    graph = cases.build.finish()
    steps = lower(fuse(graph, find_groups(graph, "dominator")), AVX512)
    kernels = [step.kernel for step in steps if step.kernel is not None]
    assert len(kernels) == 2
    for kernel in kernels:
        assert "vectorize" not in render_kernel(kernel, "kernel")


def test_tables_alone() -> None:
    """Lengths around those of vectors, tables at the seams of a concatenation, and what is computed
    before and after.
    """
    cases = Cases(11)
    table, other = cases.const(codes(cases, 256)), cases.const(codes(cases, 256, dtype=np.uint8))
    for length in (1, 15, 16, 17, 100, 5000):
        cases.expect(cases.op("LookUp", cases.feed(codes(cases, length)), table), "signed", 0)
        cases.expect(
            cases.op("LookUp", cases.feed(codes(cases, length, dtype=np.uint8)), other),
            "unsigned",
            0,
        )
    parts = [
        cases.op("LookUp", cases.feed(codes(cases, 3, 7, channels)), table)
        for channels in (16, 20, 33)
    ]
    cases.expect(cases.op("Concat", *parts, axis=2), "joined", 0)
    twice = cases.op("LookUp", cases.op("LookUp", cases.feed(codes(cases, 9, 40)), other), other)
    wide = cases.op(
        "Sub",
        cases.op("Cast", twice, to=6),
        cases.const(cases.rng.integers(-9, 9, 40).astype(np.int32)),
    )
    cases.expect(wide, "twice", 0)
    cases.expect(
        cases.op(
            "LookUp", cases.op("Transpose", cases.feed(codes(cases, 40, 50)), perm=(1, 0)), table
        ),
        "turned",
        0,
    )
    cases.check(peer=False)


def test_a_bias_made_at_run_time_leaves_the_tail_to_the_convolution() -> None:
    """As in models whose activations are quantised at run time: what scales the bias also scales
    the result.
    """
    cases = Cases(12)
    scale = cases.op("Mul", cases.feed(np.float32(0.02)), cases.const(np.float32(0.5)))
    bias = cases.op("Cast", cases.op("Floor", cases.op("Div", cases.weights(24), scale)), to=6)
    sums = cases.op(
        "Add",
        conv(cases, (1, 5, 6, 8), (24, 3, 3, 8)),
        cases.op("Reshape", bias, cases.const(np.array([1, 1, 1, 24], np.int64))),
    )
    cases.expect(
        cases.op("Relu", cases.op("Mul", cases.op("Cast", sums, to=1), scale)), "scaled", 1e-6
    )
    program = cases.check(peer=False)
    ops = [{member.op for member in step.members} for step in program.steps]
    assert any({"IntegerConv", "Add", "Mul", "Relu"} <= members for members in ops), ops
