"""Pools of channels-last integers, bit for bit as the reference."""

from __future__ import annotations

import numpy as np

from tests.kernels.harness import Cases
from tests.kernels.test_integer_conv import codes


def test_pools() -> None:
    cases = Cases()
    for dtype in (np.int8, np.uint8, np.int16):
        x = cases.feed(codes(cases, 2, 9, 10, 21, dtype=dtype))
        for op in ("ChannelsLastMaxPool", "ChannelsLastAveragePool"):
            cases.expect(cases.op(op, x, kernel_shape=(2, 2), strides=(2, 2)), "plain", 0)
            cases.expect(
                cases.op(op, x, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)), "padded", 0
            )
            cases.expect(
                cases.op(
                    op, x, kernel_shape=(3, 2), strides=(2, 3), pads=(1, 0, 1, 1), ceil_mode=1
                ),
                "rounded up",
                0,
            )
            cases.expect(cases.op(op, x, kernel_shape=(9, 10)), "the whole image", 0)
        cases.expect(
            cases.op(
                "ChannelsLastAveragePool",
                x,
                kernel_shape=(3, 3),
                pads=(1, 1, 1, 1),
                count_include_pad=1,
            ),
            "padding counts",
            0,
        )
    line = cases.feed(codes(cases, 1, 50, 8))
    cases.expect(
        cases.op("ChannelsLastAveragePool", line, kernel_shape=(7,), strides=(2,)), "one axis", 0
    )
    cases.check(peer=False)


def test_halves_go_away_from_zero() -> None:
    """Every sum that two and four bytes can have."""
    cases = Cases()
    values = np.arange(-128, 128, dtype=np.int8)
    pairs = np.stack(np.meshgrid(values, values), axis=0).reshape(1, 2, 1, -1)
    cases.expect(
        cases.op("ChannelsLastAveragePool", cases.feed(pairs), kernel_shape=(2, 1)), "two", 0
    )
    cases.expect(
        cases.op(
            "ChannelsLastAveragePool", cases.feed(np.repeat(pairs, 3, axis=1)), kernel_shape=(6, 1)
        ),
        "six",
        0,
    )
    large = cases.feed(codes(cases, 1, 70, 70, 5))
    cases.expect(
        cases.op("ChannelsLastAveragePool", large, kernel_shape=(70, 70)), "a large window", 0
    )
    cases.check(peer=False)


def test_what_follows_is_fused() -> None:
    cases = Cases()
    pooled = cases.op(
        "ChannelsLastMaxPool",
        cases.feed(codes(cases, 1, 6, 6, 20)),
        kernel_shape=(2, 2),
        strides=(2, 2),
    )
    wide = cases.op("Sub", cases.op("Cast", pooled, to=6), cases.const(np.array(7, np.int32)))
    cases.expect(wide, "centred", 0)
    assert len(cases.check(peer=False).steps) == 1
