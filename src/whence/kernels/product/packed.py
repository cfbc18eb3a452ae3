"""Products of real numbers and weights of 2, 4 or 8 bits that stay packed (MatMulNBits).

Weights are rearranged when a model is compiled: codes of neighbouring columns lie in the lanes of a
vector, their scales and zero points likewise. The panels are the same for one row and for many, so
that programs for both could share them. With `accuracy_level` 4 the file allows to quantise the
other side to int8 (`packed_program.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.cost import chunk_size
from whence.kernels.group import Group, Packed
from whence.kernels.index import Var, of
from whence.kernels.ir import Kernel
from whence.kernels.product.gemm import Product, epilogue
from whence.kernels.product.gemm_program import COLUMN, ROW
from whence.kernels.product.packed_program import PackedProduct
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.ops.quantised.blockwise import unpack
from whence.types import DType

INT8_ACTIVATIONS = 4
"""The `accuracy_level` that allows rows of A to be quantised to int8."""

_PANEL_VECTORS = 4
_SHARED_ROWS = 1 << 13
"""Numbers in A from which on it takes longer to quantise them than to share that."""
_ITEM_TILES = 0.25
"""What a work item costs besides its tiles, in tiles: the panel's weights come from the
second-level cache.
"""


def lower_packed(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a product with packed weights."""
    a, b, scales = (anchor.required(name) for name in ("A", "B", "scales"))
    zeros = anchor.operand("zero_points")
    if group.dtype(a) is not DType.F32:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' multiplies {group.dtype(a)}")
    for ref in (b, scales, zeros):
        if ref is not None and group.graph.const_value(ref) is None:
            raise UnsupportedError(f"{anchor.op} '{anchor.name}' has weights that are computed")
    if anchor.operand("g_idx") is not None:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' regroups its weights (g_idx)")
    attrs = anchor.attrs
    shape = group.shape(anchor.ref())
    columns, depth = get_int(attrs, "N", 0), get_int(attrs, "K", 0)
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    integer = get_int(attrs, "accuracy_level", 0) >= INT8_ACTIVATIONS
    tile_rows, tile_vectors = _tile(rows, tile, integer=integer)
    shares_rows = integer and tile.threads > 1 and rows * depth >= _SHARED_ROWS
    panels = -(-columns // (_PANEL_VECTORS * tile.lanes))
    tiles = -(-rows // tile_rows)
    # Where each worker quantised all rows, smaller work items would mean more of that.
    parts = 1
    if shares_rows:
        parts = -(-tiles // chunk_size(tiles, panels, tile.threads, overhead=_ITEM_TILES))
    flat = of(Var(ROW, rows)) * columns + of(Var(COLUMN, columns))
    product = Product(a, b, False, True, 1.0, anchor.operand("bias"), 1.0)
    micro = PackedProduct(
        rows,
        columns,
        depth,
        get_int(attrs, "bits", 4),
        get_int(attrs, "block_size", 32),
        integer,
        group.input_name(a),
        group.input_name(b),
        group.input_name(scales),
        None if zeros is None else group.input_name(zeros),
        tile.lanes,
        _PANEL_VECTORS,
        tile_rows,
        tile_vectors,
        parts,
        shares_rows,
        epilogue(group, anchor, product, flat, shape),
    )
    layout = (columns, micro.blocks, micro.width)
    elements = micro.panels * micro.blocks * micro.width
    packed = {
        b: Packed(_Words(*layout, micro.bits), elements * micro.block_words, DType.I32),
        scales: Packed(_Scales(*layout), elements),
    }
    if zeros is not None:
        packed[zeros] = Packed(_Zeros(*layout, micro.bits), elements, DType.U8)
    scratch = 4 * sum(micro.scratch)
    return group.kernel(micro.tasks, micro, scratch_bytes=scratch, packed=packed)


def _tile(rows: int, tile: Tile, *, integer: bool) -> tuple[int, int]:
    """Rows and vectors of a register tile. Sums of integers need as many registers again where they
    become real numbers, a third of which memory can stand for.
    """
    registers = tile.rows * tile.vectors
    if integer:
        registers = max(_PANEL_VECTORS, registers * 2 // 3)
    for vectors in (4, 2, 1):
        most = registers // vectors
        if rows <= most or (vectors == 2 and most >= 4):
            parts = -(-rows // most)
            return -(-rows // parts), vectors
    return max(1, min(rows, registers)), 1


@dataclass(frozen=True, slots=True)
class _Panels:
    columns: int
    blocks: int
    width: int

    def divided(self, by_column: np.ndarray) -> np.ndarray:
        """`[column][block][...]` as `[panel][block][...][lane]`, zeros in the last panel's rest."""
        panels = -(-self.columns // self.width)
        padded = np.zeros((panels * self.width, *by_column.shape[1:]), by_column.dtype)
        padded[: self.columns] = by_column
        split = padded.reshape(panels, self.width, *by_column.shape[1:])
        return np.ascontiguousarray(np.moveaxis(split, 1, -1))


@dataclass(frozen=True, slots=True)
class _Words(_Panels):
    """Codes as words of 32 bits: byte j of quad q of a word holds code 4·q + j, at bit `bits`·q."""

    bits: int

    def __call__(self, packed: np.ndarray) -> np.ndarray:
        bits, each = self.bits, 32 // self.bits
        # Whole words at a time: code i of a word moves from bit `bits`·i.
        words = np.ascontiguousarray(packed).view("<u4")
        words = words.reshape(self.columns, self.blocks, -1)
        if bits < 8:
            source, mask = words, np.uint32((1 << bits) - 1)
            words = np.zeros_like(source)
            for code in range(each):
                place = 8 * (code % 4) + bits * (code // 4)
                words |= ((source >> np.uint32(bits * code)) & mask) << np.uint32(place)
        return self.divided(words).view(np.int32)


@dataclass(frozen=True, slots=True)
class _Scales(_Panels):
    def __call__(self, scales: np.ndarray) -> np.ndarray:
        by_column = scales.reshape(self.columns, self.blocks)
        return self.divided(by_column.astype(np.float32, copy=False))


@dataclass(frozen=True, slots=True)
class _Zeros(_Panels):
    bits: int

    def __call__(self, packed: np.ndarray) -> np.ndarray:
        rows = packed.view(np.uint8).reshape(self.columns, -1)
        return self.divided(unpack(rows, self.bits, self.blocks))
