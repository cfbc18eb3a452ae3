"""Convolutions whose groups are joined to fill blocks of channels leave out what is zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.api import compile_model
from whence.attribution.cost_model import node_cost
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.kernels.conv.direct import reach, share_reached
from whence.kernels.tile import AVX2
from whence.passes.layout.block_channels import BlockChannels
from whence.passes.manager import run_passes
from whence.types import DType

RNG = np.random.default_rng(8)


def grouped(groups: int, taken: int, made: int, kernel: int = 1) -> Graph:
    """A convolution in groups that take and make so many channels each."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, (1, groups * taken, 9, 11))
    shape = (groups * made, taken, kernel, kernel)
    weights = RNG.standard_normal(shape) / np.sqrt(taken * kernel * kernel)
    attrs: dict[str, Any] = {
        "group": groups,
        "pads": (kernel // 2,) * 4,
        "kernel_shape": (kernel, kernel),
    }
    y = build.op("Conv", x, build.const(weights.astype(np.float32)), name="conv", **attrs)
    build.output("y", y)
    return build.finish()


@pytest.mark.parametrize(
    ("groups", "taken", "made", "kernel"),
    [(4, 68, 68, 1), (4, 34, 34, 1), (4, 68, 17, 1), (4, 6, 28, 1), (3, 20, 33, 3), (8, 12, 12, 3)],
)
def test_joined_groups_compute_the_same(groups: int, taken: int, made: int, kernel: int) -> None:
    graph = grouped(groups, taken, made, kernel)
    data = {"x": RNG.standard_normal((1, groups * taken, 9, 11)).astype(np.float32)}
    expected = graph.run(data)[0]
    got = compile_model(graph)(**data)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_channels_of_other_groups_are_left_out() -> None:
    graph = grouped(4, 68, 68)
    run_passes(graph, (BlockChannels(),))
    (conv,) = (node for node in graph if node.op == "BlockedConv")
    assert (conv.attrs["group"], conv.attrs["joined"]) == (1, 4)
    tile = AVX2
    # Panels of one block: 68 channels are 4.25 blocks, so the fifth panel has outputs of two
    # groups.
    found = reach(conv, tile, 16 // tile.lanes)
    assert len(found) == 17
    assert found[:6] == ((0, 68), (0, 68), (0, 68), (0, 68), (0, 136), (68, 136))
    assert found[-1] == (204, 272)
    assert share_reached(conv, tile) == 20 / 68


def test_zeros_of_other_groups_are_no_operations() -> None:
    graph = grouped(4, 68, 68)
    (conv,) = (node for node in graph if node.op == "Conv")
    expected = node_cost(graph, conv)
    run_passes(graph, (BlockChannels(),))
    (joined,) = (node for node in graph if node.op == "BlockedConv")
    assert joined.attrs["joined"] == 4
    found = node_cost(graph, joined)
    assert expected is not None
    assert found is not None
    assert found.flops == expected.flops


def test_groups_of_whole_blocks_are_not_joined() -> None:
    graph = grouped(2, 32, 48)
    run_passes(graph, (BlockChannels(),))
    (conv,) = (node for node in graph if node.op == "BlockedConv")
    assert "joined" not in conv.attrs
    assert share_reached(conv, AVX2) == 1.0
