"""What programs of matrix units have in common: splitting float32 into two bfloat16, and a step of
four tiles of sums (see `bf16x2`).
"""

from __future__ import annotations

from whence.kernels.bf16x2 import DEPTH, PANEL, TILE, TILE_FLOATS
from whence.kernels.builder import Builder, Pointer, zeros
from whence.kernels.ir import (
    Bits,
    Count,
    Countable,
    Expr,
    Fn,
    Op,
    TileLoad,
    TileMultiply,
    TileStore,
    TileZero,
    count,
    lanewise,
)
from whence.types import DType

_ROW_BYTES = 64
# Sums are tiles 0 to 3, by tile of rows and tile of columns; then come two of the left operand and
# two of the right.
_LEFT, _RIGHT = 4, 6


def zero_sums(build: Builder) -> None:
    build.add(*(TileZero(number) for number in range(PANEL * PANEL)))


def multiply_step(build: Builder, left: Pointer, low: int, weights: Pointer) -> None:
    """Add the products of one step. `left` points to the first tile's high parts, behind which are
    the second's; the low ones are `low` further. `weights` points to the step's weights.

    Low parts first: the high ones of the left operand are then there for both parts of the right
    one, and no tile is loaded twice.
    """

    def load_left(number: int, is_low: bool) -> None:
        offset = number * TILE * DEPTH + (low if is_low else 0)
        build.add(TileLoad(_LEFT + number, left.name, count(offset), _ROW_BYTES))

    def load_right(number: int, is_low: bool) -> None:
        offset = (PANEL * is_low + number) * TILE_FLOATS
        build.add(TileLoad(_RIGHT + number, weights.name, count(offset), _ROW_BYTES))

    def multiply(row: int, column: int) -> None:
        build.add(TileMultiply(row * PANEL + column, _LEFT + row, _RIGHT + column))

    load_right(0, False)
    load_right(1, False)
    for is_low in (True, False):
        for row in range(PANEL):
            load_left(row, is_low)
            for column in range(PANEL):
                multiply(row, column)
    for column in range(PANEL):
        load_right(column, True)
        for row in range(PANEL):
            multiply(row, column)


def store_sums(build: Builder, to: Pointer) -> None:
    """Store the sums, row by row."""
    width = PANEL * TILE
    for row in range(PANEL):
        for column in range(PANEL):
            offset = row * TILE * width + column * TILE
            build.add(TileStore(row * PANEL + column, to.name, count(offset), 4 * width))


def store_split(build: Builder, value: Expr, to: Pointer, offset: Countable, low: int) -> None:
    """Store a vector's high parts, and its low parts `low` further. What is not finite, or no
    longer as bfloat16, has no low part.
    """
    x = build.let("x", value)
    high = build.let("high", Op(Fn.CAST, (x,), DType.BF16, TILE))
    rest = build.let("rest", x - Op(Fn.CAST, (high,), DType.F32, TILE))
    is_finite = lanewise(Fn.EQ, rest - rest, zeros(TILE))
    finite = build.let(
        "finite", Bits(lanewise(Fn.BIT_AND, Bits(rest, DType.I32), is_finite), DType.F32)
    )
    build.assign(to.vector(offset, TILE), high)
    build.assign(to.vector(count(offset) + low, TILE), Op(Fn.CAST, (finite,), DType.BF16, TILE))


def store_zeros(build: Builder, to: Pointer, offset: Count, low: int) -> None:
    """Store the parts of zeros."""
    for place in (offset, offset + low):
        build.assign(to.vector(place, TILE), zeros(TILE, DType.BF16))
