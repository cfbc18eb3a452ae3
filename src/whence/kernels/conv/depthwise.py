"""Windows that slide over each channel by itself, on channel-blocked tensors: depthwise
convolutions, and the pools.

out[n, p, c] = epilogue(fold over kh, kw of x[n, at(p, kh, kw), c] · w[kh, kw, c])

Vectors run over the channels of a block; a tile holds several neighbouring pixels, so that each
input vector is loaded once for all of them. A work item is a block of channels of a chunk of the
image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import estimate
from whence.graph import Node
from whence.kernels.conv.depthwise_program import Slide
from whence.kernels.conv.direct import (
    epilogue,
    fields,
    input_buffer,
    packed_weights,
    require_floats,
)
from whence.kernels.conv.slices import least_slices
from whence.kernels.conv.tiles import Cover, Field, OpenCover, cover, open_cover
from whence.kernels.cost import chunk_size
from whence.kernels.group import Group, data_operands
from whence.kernels.ir import Fn, Kernel
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int

# What a work item costs besides its arithmetic, in units of the cover.
_ITEM_UNITS = 0.25
# Where sizes are open, there are also tiles so many times as narrow, for short rows.
_NARROWER = 4


@dataclass(frozen=True, slots=True)
class SlidePlan:
    """How a sliding window is divided."""

    pixels: int
    """In a register tile, at most."""
    chunk: int
    """Units of the cover in a work item."""


@dataclass(frozen=True, slots=True)
class PackDepthwise:
    """[C, 1, KH, KW] weights by block, kernel row, kernel column and channel, zeros behind the last
    channel.
    """

    block: int

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        channels, _, *kernel = weights.shape
        blocks = -(-channels // self.block)
        padded = np.zeros((blocks * self.block, *kernel), np.float32)
        padded[:channels] = weights[:, 0]
        return np.ascontiguousarray(
            padded.reshape(blocks, self.block, *kernel).transpose(0, 2, 3, 1)
        )


def lower_depthwise(
    group: Group, anchor: Node, tile: Tile, plan: SlidePlan | None = None
) -> Kernel:
    """A kernel for a group whose anchor is a BlockedConv with one input channel to each output
    channel.
    """
    weights = anchor.required("W")
    attrs = anchor.attrs
    block, channels = get_int(attrs, "block", 0), get_int(attrs, "channels_out", 0)
    require_floats(group, anchor)
    shape = group.shape(weights)
    if (
        get_int(attrs, "plain_input", 0)
        or shape[1] != 1
        or get_int(attrs, "channels_in", 0) != channels
    ):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has more than one channel for each output channel"
        )
    micro = slide(
        group, anchor, tile, shape[2:], weights=input_buffer(group, anchor, weights), plan=plan
    )
    elements = micro.blocks * block * math.prod(shape[2:])
    packed = packed_weights(group, anchor, PackDepthwise(block), elements)
    return group.kernel(micro.tasks, micro, packed=packed)


def slide(
    group: Group,
    anchor: Node,
    tile: Tile,
    kernel: tuple[int, ...],
    *,
    weights: str | None = None,
    fn: Fn = Fn.ADD,
    ceil_mode: bool = False,
    shares: tuple[tuple[float, ...], ...] = (),
    counted: tuple[tuple[int, int], ...] | None = None,
    plan: SlidePlan | None = None,
) -> Slide:
    """The sliding window of an anchor whose first input is blocked."""
    source = anchor.first_input
    shape = group.shape(source)
    images, blocks, height, width, block = shape
    if block % tile.lanes:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has blocks of {block} channels, vectors hold {tile.lanes}"
        )
    rows, columns = fields(anchor, (height, width), kernel, ceil_mode)
    plan = _divided(rows, columns, shape, tile) if plan is None else plan
    return Slide(
        images=images,
        blocks=blocks,
        block=block,
        lanes=tile.lanes,
        rows=rows,
        columns=columns,
        cover=_cover(rows, columns, plan.pixels),
        chunk=plan.chunk,
        source=input_buffer(group, anchor, source),
        weights=weights,
        fn=fn,
        shares=shares,
        outputs=epilogue(group, anchor),
        counted=counted,
    )


def _cover(rows: Field, columns: Field, pixels: int) -> Cover | OpenCover:
    is_open = rows.is_open or columns.is_open
    if is_open:
        return open_cover(rows, columns, pixels, pixels // _NARROWER)
    return cover(rows, columns, pixels)


def _divided(
    rows: Field, columns: Field, shape: Sequence[int], tile: Tile, pixels: int | None = None
) -> SlidePlan:
    """Tiles of so many pixels, over a blocked tensor of this shape."""
    images, blocks, *_, block = shape
    image_bytes = 4 * blocks * block * (rows.size * columns.size + rows.out * columns.out)
    if pixels is None:
        # Registers hold the sums of a tile, one kernel row of weights and an input vector.
        pixels = max(tile.rows * tile.vectors * 2 // 3, 1)
    units = estimate(_cover(rows, columns, pixels).units)
    chunk = chunk_size(
        units,
        estimate(images * blocks),
        tile.threads,
        overhead=_ITEM_UNITS,
        least_parts=least_slices(tile, images, image_bytes),
    )
    return SlidePlan(pixels, chunk)


def depthwise_plans(group: Group, anchor: Node, tile: Tile) -> Iterator[SlidePlan]:
    """What is worth timing, what the cost model takes first; some may come twice."""
    source, weights = data_operands(anchor)
    shape = group.shape(source)
    rows, columns = fields(anchor, shape[2:4], group.shape(weights)[2:])
    usual, budget = _divided(rows, columns, shape, tile), tile.rows * tile.vectors
    yield usual
    for pixels in (max(budget // 4, 1), max(budget // 2, 1), max(budget * 6 // 7, 1)):
        yield _divided(rows, columns, shape, tile, pixels)
    units = cover(rows, columns, usual.pixels).units
    for chunk in {-(-usual.chunk // 4), min(4 * usual.chunk, units)} - {usual.chunk}:
        yield SlidePlan(usual.pixels, chunk)


def is_depthwise(anchor: Node) -> bool:
    """Has a BlockedConv one input channel to each output channel?"""
    groups = get_int(anchor.attrs, "group", 1)
    return groups > 1 and groups == get_int(anchor.attrs, "channels_in", 0) == get_int(
        anchor.attrs, "channels_out", 0
    )
