"""Depthwise convolution of bytes: four kernel rows at a time, as the four bytes of a lane.

out[p, c] = epilogue(Σ_kh Σ_kw (x[at(p, kh, kw), c] - x_zero) · (w[kh, kw, c] - w_zero))

Vectors run over channels. The bytes that one channel has in four rows of one input column are put
side by side; each such vector serves all pixels of
a tile whose window holds the column. Padding is read from a row of x_zero, so it adds nothing.
Corrections for zero points are those of
`integer_product`. The last vector of channels begins early rather than end late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.graph import Node
from whence.kernels.conv.direct import input_buffer
from whence.kernels.conv.epilogue import Output
from whence.kernels.conv.tiles import Cover, Field, cover
from whence.kernels.cost import FEWEST_ITEMS, ITEMS_PER_THREAD
from whence.kernels.group import Group
from whence.kernels.index import Var, of
from whence.kernels.integer.product import (
    COLUMN,
    ROW,
    centre,
    constants,
    epilogue,
    packed_params,
    zero_point,
)
from whence.kernels.integer.window import fields
from whence.kernels.ir import Expr, Kernel, Literal, Micro
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.types import DType

# Vector registers by the lanes of the machine's vectors, less some for input, order and constants.
_REGISTERS = {16: 26, 8: 10, 4: 24}
_MOST_WEIGHTS = 9
_SHORTEST = 4
_FLOPS_PER_NS = 80


@dataclass(frozen=True, slots=True)
class IntegerSlide(Micro):
    """The whole operator as one statement; a renderer writes the loops."""

    images: int
    channels: int
    lanes: int
    rows: Field
    columns: Field
    cover: Cover
    """Tiles along a row of the output."""
    chunks: int
    """Parts of the output's rows."""
    parts: int
    """Parts of the vectors of channels."""
    source: str
    is_signed: bool
    x_zero: Expr
    weights: str
    packing: PackChannels
    outputs: tuple[Output, ...]

    @property
    def vectors(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def quads(self) -> int:
        """Groups of four kernel rows."""
        return -(-self.rows.kernel // 4)

    @property
    def border_bytes(self) -> int:
        """Of a row of padding."""
        return 0 if self.rows.is_inside else self.columns.size * self.channels

    @property
    def tasks(self) -> int:
        return self.images * self.chunks * self.parts


@dataclass(frozen=True, slots=True)
class PackChannels:
    """[C, KH, KW, 1] weights by vector of channels: starting values, factors if sums are needed,
    then for each kernel column its rows in fours.
    """

    channels: int
    kernel: tuple[int, int]
    lanes: int
    x_zero: int | None
    w_zero: tuple[int, ...]
    has_sums: bool

    @property
    def vector_bytes(self) -> int:
        return self.lanes * 4 * (1 + self.has_sums + self.kernel[1] * -(-self.kernel[0] // 4))

    @property
    def elements(self) -> int:
        return -(-self.channels // self.lanes) * self.vector_bytes

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        rows, columns = self.kernel
        matrix, left = centre(
            weights.reshape(1, self.channels, rows * columns).transpose(0, 2, 1), self.w_zero
        )
        start = matrix[0].sum(axis=0, dtype=np.int64) - rows * columns * left[0]
        start = start if self.x_zero is None else start * -self.x_zero
        quads = -(-rows // 4)
        codes = np.zeros((quads * 4, columns, self.channels), np.int8)
        codes[:rows] = matrix[0].reshape(rows, columns, self.channels)
        pieces = []
        for first in range(0, self.channels, self.lanes):
            at = min(first, self.channels - self.lanes) + np.arange(self.lanes)
            pieces.append(start[at].astype(np.int32).view(np.int8))
            if self.has_sums:
                pieces.append((-left[0, at]).astype(np.int32).view(np.int8))
            pieces.append(
                codes[:, :, at]
                .reshape(quads, 4, columns, self.lanes)
                .transpose(2, 0, 3, 1)
                .reshape(-1)
            )
        return np.concatenate([piece.reshape(-1).view(np.int8) for piece in pieces])


def is_depthwise(group: Group, anchor: Node) -> bool:
    """One input channel to each output channel, enough of them for a vector?"""
    source, weights = anchor.inputs[0], anchor.inputs[1]
    assert source is not None
    assert weights is not None
    channels = group.shape(source)[-1]
    return (
        channels >= _SHORTEST
        and channels == get_int(anchor.attrs, "group", 1) == group.shape(weights)[0]
    )


def lower_integer_depthwise(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a depthwise IntegerConv with constant weights."""
    source, weights = anchor.inputs[0], anchor.inputs[1]
    assert source is not None
    assert weights is not None
    values = group.graph.const_value(weights)
    assert values is not None
    x_shape, out_shape = group.shape(source), group.shape(anchor.ref())
    channels, images = x_shape[-1], x_shape[0]
    rows, columns = fields(anchor, x_shape[1:-1], values.shape[1:-1])
    lanes = next(size for size in (16, 8, 4) if size <= min(tile.lanes, channels))
    x_zero, signed = zero_point(group, anchor.input(2)), group.dtype(source) is DType.I8
    w_zero = constants(group, anchor, anchor.input(3))
    has_sums = bool(np.any(centre(values.reshape(1, channels, -1).transpose(0, 2, 1), w_zero)[1]))
    known = x_zero.value + 128 * signed if isinstance(x_zero, Literal) else None
    packing = PackChannels(channels, (rows.kernel, columns.kernel), lanes, known, w_zero, has_sums)
    held = min(columns.kernel * -(-rows.kernel // 4), _MOST_WEIGHTS)
    pixels = max((_REGISTERS[tile.lanes] - held) // (1 + has_sums), 1)
    # No tile holds pixels of two rows.
    tiles = cover(rows, columns, min(pixels, 2 * columns.out - 1))
    wanted = -(-max(FEWEST_ITEMS, ITEMS_PER_THREAD * tile.threads) // images)
    chunks = min(rows.out, wanted)
    parts = min(-(-channels // lanes), -(-wanted // chunks))
    pixel = math.prod(out_shape[:-1])
    micro = IntegerSlide(
        images=images,
        channels=channels,
        lanes=lanes,
        rows=rows,
        columns=columns,
        cover=tiles,
        chunks=chunks,
        parts=parts,
        source=input_buffer(group, anchor, source),
        is_signed=signed,
        x_zero=x_zero,
        weights=input_buffer(group, anchor, weights),
        packing=packing,
        outputs=epilogue(group, anchor, of(Var(ROW, pixel)) * channels + of(Var(COLUMN, channels))),
    )
    params = packed_params(group, anchor, weights, packing.elements)
    return Kernel(
        group.name,
        params,
        micro.tasks,
        (micro,),
        group.costs(),
        micro.border_bytes,
        {group.inputs.index(weights): packing},
        _FLOPS_PER_NS,
    )
