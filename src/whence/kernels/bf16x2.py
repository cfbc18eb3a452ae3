"""Products of float32 numbers by units that multiply bfloat16 matrices: each number is taken as the
sum of two bfloat16 (the bf16x2 split).

    x = high + low + rest      high = bfloat16(x), low = bfloat16(x - high), |rest| ≤ 2⁻¹⁶·|x|
    x·w ≈ high·high + high·low + low·high      summed in float32

What is left out is at most 3·2⁻¹⁶ of each |x·w|, and of either sign: over a layer's sum about 4e-6
of the largest output, where float32 products that are rounded one after the other give 1e-6, and
Winograd's transforms 2e-6 to 7e-6. An infinite operand gives NaN where float32 might have given
infinity: infinity times the other operand's low half has no certain sign. The same holds for
numbers above 3.39e38, which bfloat16 rounds to infinity.

A matrix unit holds tiles of 16 rows of 64 bytes: 16 × 32 bfloat16 of one operand, 32 × 16 of the
other, where two neighbours of the sum lie side by side, and 16 × 16 sums. Three products of tiles
take as long as 48 rows of vectors; float32 by vectors would take five times as long.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from whence.kernels.cost import overlapped
from whence.kernels.tile import Tile
from whence.machine import CACHE_LINE

TILE = 16
"""Rows of a tile, and columns of a tile of sums."""
DEPTH = 32
"""Terms of a sum that one product of tiles adds."""
TILE_FLOATS = TILE * DEPTH // 2
"""As many float32 take the room of a tile of bfloat16."""
PANEL = 2
"""Tiles of output channels, and of pixels or rows, that are multiplied with each other: four tiles
of sums, which leaves four for the operands.
"""
GROUP = PANEL * TILE
"""Pixels or rows, and output channels, that are multiplied with each other."""
SUM_FLOATS = GROUP * GROUP
STEP_FLOATS = 2 * PANEL * TILE_FLOATS
"""Of a step's weights: the panel's high parts of the bf16x2 split, then its low parts."""

# A step: twelve products of tiles, eight tiles loaded. Then, by vector: splitting input into two
# bfloat16, what is done to sums, and products when matrix units are not used.
_STEP_CYCLES = 240
_SPLIT_CYCLES, _STORE_CYCLES, _PRODUCT_CYCLES = 12, 8, 0.6
# What weights from beyond the cache get of what reading alone gets from memory.
_PREFETCHED = 5 / 6


def cycles_by_units(steps: int, split: int, stored: int, fetching: float) -> float:
    """What so many steps take, with vectors of input to split, vectors of sums to store, and
    weights that take so many cycles to fetch.
    """
    return overlapped(
        steps * _STEP_CYCLES + split * _SPLIT_CYCLES + stored * _STORE_CYCLES, fetching
    )


def cycles_by_vectors(products: int, fetching: float) -> float:
    """What so many products of vectors take instead."""
    return overlapped(products * _PRODUCT_CYCLES, fetching)


def fetch_cycles(weights: int, tile: Tile) -> float:
    """Of so many float32 weights from beyond the cache."""
    return 4 * weights / (_PREFETCHED * tile.memory_bytes)


def pack_bf16x2(weights: np.ndarray) -> np.ndarray:
    """Weights [output, tap, channel] as a panel's steps read them: by panel, block of channels,
    tap, half, tile of outputs; in a tile by pair of channels, output, channel of the pair. Outputs
    and channels that there are not are zeros.
    """
    outputs, taps, channels = weights.shape
    padded = np.zeros(
        (-(-outputs // (PANEL * TILE)) * PANEL * TILE, taps, -(-channels // DEPTH) * DEPTH),
        np.float32,
    )
    padded[:outputs, :, :channels] = weights
    high = padded.astype(ml_dtypes.bfloat16)
    rest = padded - high.astype(np.float32)
    # What is not finite, or no longer as bfloat16, has no low half.
    low = np.where(np.isfinite(rest), rest, 0).astype(ml_dtypes.bfloat16)
    parts = np.stack([high, low]).view(np.uint16)
    split = parts.reshape(2, -1, PANEL, TILE, taps, padded.shape[2] // DEPTH, DEPTH // 2, 2)
    # half, panel, tile, output, tap, block, pair, of the pair → panel, block, tap, half, tile,
    # pair, output, of the pair
    return (
        np.ascontiguousarray(split.transpose(1, 5, 4, 0, 2, 6, 3, 7)).reshape(-1).view(np.float32)
    )


def lines_ahead(groups: int) -> int:
    """Cache lines of weights to come that each step asks for, so that all are near when a panel has
    been multiplied with so many groups.
    """
    return -(-4 * STEP_FLOATS // (CACHE_LINE * groups))


def packed_floats(outputs: int, taps: int, channels: int) -> int:
    """How many float32 take the room of packed weights."""
    return -(-outputs // (PANEL * TILE)) * -(-channels // DEPTH) * taps * STEP_FLOATS
