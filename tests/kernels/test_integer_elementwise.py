"""Elementwise arithmetic on bytes, and last dimensions too short to fill a vector."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import Cases
from tests.kernels.test_integer_conv import codes
from whence.graph.builder import Symbol


def scaled(cases: Cases, x: Symbol, factor: int, shift: int) -> Symbol:
    return cases.op(
        "FixedPointScale",
        x,
        cases.const(np.array(factor, np.int32)),
        cases.const(np.array(shift, np.int32)),
    )


def int32(cases: Cases, value: int | list[int]) -> Symbol:
    return cases.const(np.array(value, np.int32))


def added(cases: Cases, x: Symbol, y: Symbol) -> Symbol:
    """The sum of two tensors of codes as LiteRT computes it."""
    wide = [
        cases.op(
            "Mul",
            cases.op("Sub", cases.op("Cast", each, to=6), int32(cases, zero)),
            int32(cases, 1 << 20),
        )
        for each, zero in ((x, 3), (y, -7))
    ]
    total = cases.op(
        "Add", scaled(cases, wide[0], 1518500250, 0), scaled(cases, wide[1], 1073741824, -1)
    )
    moved = cases.op("Add", scaled(cases, total, 2000000000, -19), int32(cases, -4))
    return cases.op("Cast", cases.op("Clip", moved, int32(cases, -128), int32(cases, 127)), to=3)


def test_sums_of_codes() -> None:
    cases = Cases()
    for shape in ((1, 5, 7, 24), (33,), (2, 3)):
        cases.expect(
            added(cases, cases.feed(codes(cases, *shape)), cases.feed(codes(cases, *shape))),
            "alike",
            0,
        )
    cases.expect(
        added(cases, cases.feed(codes(cases, 4, 5, 20)), cases.feed(codes(cases, 20))),
        "one for each channel",
        0,
    )
    cases.expect(
        added(cases, cases.feed(codes(cases, 4, 5, 20)), cases.feed(codes(cases, 4, 1, 20))),
        "broadcast",
        0,
    )
    cases.check(peer=False)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_short_last_dimensions(channels: int) -> None:
    cases = Cases(channels)
    for size in (5, 9, 40):
        x = cases.feed(codes(cases, 1, size, 9, channels, dtype=np.uint8))
        centred = cases.op("Sub", cases.op("Cast", x, to=6), int32(cases, list(range(channels))))
        cases.expect(centred, "a number for each channel", 0)
        cases.expect(cases.op("Cast", scaled(cases, centred, 1518500250, -2), to=3), "scaled", 0)
        cases.expect(
            cases.op(
                "Transpose", cases.feed(codes(cases, 1, channels, size, 9)), perm=(0, 2, 3, 1)
            ),
            "turned",
            0,
        )
        cases.expect(
            cases.op("Concat", x, cases.feed(codes(cases, 1, size, 9, 3, dtype=np.uint8)), axis=3),
            "joined",
            0,
        )
        cases.expect(
            cases.op(
                "Pad",
                x,
                cases.const(np.array([0, 1, 2, 0, 0, 0, 1, 1], np.int64)),
                cases.const(np.uint8(9)),
            ),
            "padded",
            0,
        )
    cases.check(peer=False)
