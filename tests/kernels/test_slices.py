"""Work items of convolutions and pools by the rows of the image: each is in one slice, and a slice
reads no further than it says.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from whence.fusion import find_groups, fuse
from whence.graph.builder import GraphBuilder
from whence.kernels.conv.bf16x2_program import Bf16x2Conv
from whence.kernels.conv.depthwise_program import Slide
from whence.kernels.conv.direct_program import Conv
from whence.kernels.conv.slices import least_slices
from whence.kernels.ir import Micro
from whence.kernels.lower import lower
from whence.kernels.tile import AVX2, AVX512, Tile
from whence.types import DType

SMALL = replace(AVX512, cache_bytes=1 << 17, interleaved=True)
MATRIX = replace(SMALL, bf16x2=True)
SAME = (1, 1, 1, 1)


def lowered(
    tile: Tile,
    size: tuple[int, int],
    *,
    channels: int = 16,
    made: int = 16,
    kernel: int = 3,
    op: str = "BlockedConv",
    **attrs: Any,
) -> Micro:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, channels // 16, *size, 16])
    inputs = [x]
    if op == "BlockedConv":
        depth = channels // int(attrs.get("group", 1))
        inputs.append(build.const(np.ones((made, depth, kernel, kernel), np.float32)))
        attrs |= {"block": 16, "channels_in": channels, "channels_out": made}
    else:
        attrs |= {"kernel_shape": (kernel, kernel)}
    build.output("y", build.op(op, *inputs, **attrs))
    graph = build.finish()
    (step,) = lower(fuse(graph, find_groups(graph)), tile)
    assert step.kernel is not None
    (body,) = step.kernel.body
    assert isinstance(body, Micro)
    return body


@pytest.mark.parametrize(
    ("tile", "size", "attrs"),
    [
        (SMALL, (40, 37), {"pads": SAME}),
        (SMALL, (41, 37), {"pads": SAME, "strides": (2, 2)}),
        (SMALL, (40, 37), {"kernel": 1}),
        (SMALL, (40, 37), {"kernel": 1, "strides": (3, 2)}),
        (SMALL, (200, 3), {"pads": SAME}),
        (SMALL, (40, 37), {"pads": (0, 2, 3, 0), "dilations": (2, 1)}),
        (SMALL, (40, 37), {"pads": SAME, "group": 16}),
        (SMALL, (43, 37), {"kernel": 5, "pads": (2, 2, 2, 2), "group": 16, "strides": (2, 2)}),
        (SMALL, (40, 37), {"op": "BlockedMaxPool", "strides": (2, 2), "pads": SAME}),
        (SMALL, (40, 37), {"op": "BlockedAveragePool", "kernel": 2}),
        (replace(AVX2, cache_bytes=1 << 17, interleaved=True), (40, 37), {"pads": SAME}),
        (MATRIX, (70, 64), {"pads": SAME, "channels": 128, "made": 128}),
        (MATRIX, (71, 64), {"pads": SAME, "strides": (2, 2), "channels": 128, "made": 128}),
    ],
)
def test_slices(tile: Tile, size: tuple[int, int], attrs: dict[str, Any]) -> None:
    micro = lowered(replace(tile, transforms=False), size, **attrs)
    assert isinstance(micro, Bf16x2Conv if tile.bf16x2 else Slide | Conv)
    slices = micro.slices
    assert slices is not None
    assert slices.source == micro.source
    items = [item for part in slices.parts for tasks in part.tasks for item in range(*tasks)]
    assert sorted(items) == list(range(micro.tasks))
    rows, columns = micro.rows, micro.columns
    assert slices.parts[-1].made == rows.out * columns.out
    assert all(a.made < b.made and a.read <= b.read for a, b in itertools.pairwise(slices.parts))
    across = size[1]
    for part in slices.parts:
        last = part.made - 1
        # The image may be one row to a kernel of one position.
        row, column = divmod(last, columns.out) if rows.out > 1 else (0, last)
        furthest = [
            min(at * field.stride + (field.kernel - 1) * field.dilation - field.begin, end - 1)
            for at, field, end in ((row, rows, rows.size), (column, columns, columns.size))
        ]
        needed = furthest[0] * columns.size + (furthest[1] if row == rows.out - 1 else across - 1)
        assert needed < part.read <= math.prod(size)


def test_large_images_are_cut_into_slices_and_others_are_not() -> None:
    many = lowered(SMALL, (40, 40), pads=SAME, group=16).slices
    assert many is not None
    assert len(many.parts) >= 2 * 4 * 16 * 40 * 40 // SMALL.slice_bytes // 2
    few = lowered(SMALL, (8, 8), pads=SAME, group=16).slices
    assert few is not None
    assert len(few.parts) == 1
    shared = replace(SMALL, interleaved=False, threads=2)
    assert least_slices(shared, 1, 1 << 20) == least_slices(SMALL, 2, 1 << 20) == 1
    assert least_slices(SMALL, 1, 1 << 20) == (1 << 20) // SMALL.slice_bytes
    assert least_slices(SMALL, 1, 1 << 20, weight_bytes=1 << 20) == 1
