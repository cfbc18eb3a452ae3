"""Rows of bytes for a product, gathered: made unsigned, padding filled in, each a multiple of four
long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.kernels.builder import Builder, Pointer
from whence.kernels.conv.tiles import Field
from whence.kernels.ir import Bits, Count, Countable, Expr, Fn, Literal, lanewise
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.integer.product_program import IntegerProduct

# Bytes of the largest vector, and the length from which a copy is a loop.
_WIDEST = 64
_LONG = 512


@dataclass(frozen=True, slots=True)
class Gather:
    """How the bytes of a row are collected: for each tap of a window `taken` channels, of
    `channels` that lie side by side.
    """

    rows: Field
    columns: Field
    channels: int
    taken: int


def gather_rows(
    build: Builder, it: IntegerProduct, x: Pointer, rows: Pointer, lo: Count, hi: Count, zero: Expr
) -> None:
    """Rows `lo` to `hi` of `x` into `rows`, padded with zeros to a multiple of four."""
    depth, padded = it.shape.depth, it.shape.words * 4
    with build.loop("r", hi, begin=lo) as r:
        to = build.pointer("to", rows, (r - lo) * padded, written=True, alone=False)
        if it.gather is None:
            source = build.pointer("from", x, r * it.row_stride)
            _copy(build, source, to, depth)
        else:
            _window(build, it.gather, x, to, r, zero)
        with build.loop("k", padded, begin=depth) as k:
            build.assign(to[k], Literal(0, DType.U8))


def _window(build: Builder, gather: Gather, x: Pointer, to: Pointer, r: Count, zero: Expr) -> None:
    rows, columns = gather.rows, gather.columns
    image = build.count("image", r // (rows.out * columns.out))
    row = build.count("row", r // columns.out % rows.out)
    right = build.count("right", r % columns.out * columns.stride - columns.begin)
    span = columns.kernel * gather.taken

    def kernel_row(line: Pointer, place: Pointer) -> None:
        whole = columns.dilation == 1 and gather.taken == gather.channels
        if whole and columns.is_inside:
            source = build.pointer("from", line, right * gather.channels)
            _copy(build, source, place, span)
        elif whole:
            with build.when((right >= 0) & (right <= columns.size - columns.kernel)):
                source = build.pointer("from", line, right * gather.channels)
                _copy(build, source, place, span)
            with build.otherwise():
                taps(line, place)
        else:
            taps(line, place)

    def taps(line: Pointer, place: Pointer) -> None:
        with build.loop("kw", columns.kernel) as kw:
            column = build.count("column", right + kw * columns.dilation)
            tap = build.pointer("tap", place, kw * gather.taken, written=True, alone=False)
            with _on_the_axis(build, columns, column, tap, gather.taken, zero):
                source = build.pointer("from", line, column * gather.channels)
                _copy(build, source, tap, gather.taken)

    with build.loop("kh", rows.kernel) as kh:
        place = build.pointer("place", to, kh * span, written=True, alone=False)
        down = build.count("down", row * rows.stride + kh * rows.dilation - rows.begin)
        with _on_the_axis(build, rows, down, place, span, zero):
            offset = (image * rows.size + down) * (columns.size * gather.channels)
            kernel_row(build.pointer("line", x, offset), place)


@contextmanager
def _on_the_axis(
    build: Builder, field: Field, position: Count, to: Pointer, size: int, zero: Expr
) -> Iterator[None]:
    """What happens where the position lies on its axis; elsewhere there is padding."""
    if field.is_inside:
        yield
        return
    with build.when((position < 0) | (position >= field.size)):
        build.fill(to, 0, size, zero)
    with build.otherwise():
        yield


def _copy(build: Builder, source: Pointer, to: Pointer, size: int) -> None:
    """So many bytes, made unsigned. The last vector begins early rather than end late."""

    def piece(at: Countable, lanes: int) -> None:
        read: Expr = source.vector(at, lanes)
        if source.dtype is DType.I8:
            read = lanewise(Fn.BIT_XOR, Bits(read, DType.U8), Literal(128, DType.U8))
        build.assign(to.vector(at, lanes), read)

    lanes = min(_WIDEST, 1 << (size.bit_length() - 1))
    if lanes < 4:
        lanes = 1
    if size >= _LONG:
        with build.loop("k", size // lanes * lanes, step=lanes) as k:
            piece(k, lanes)
    else:
        for at in range(0, size - lanes + 1, lanes):
            piece(at, lanes)
    if size % lanes:
        piece(size - lanes, lanes)
