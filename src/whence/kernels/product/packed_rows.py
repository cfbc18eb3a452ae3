"""Rows of A for a product with packed weights: quantised to int8 block by block, or real numbers
filled up to whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.kernels.builder import Builder, Pointer, zeros
from whence.kernels.expressions import apply, choose
from whence.kernels.ir import (
    FULLY,
    SCRATCH,
    SHARED,
    Bits,
    Count,
    Expr,
    Fn,
    Literal,
    Op,
    Primitive,
    Splat,
    count,
    lanewise,
    least,
)
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.product.packed_program import PackedProduct

LARGEST_CODE = 127
"""Of a quantised row."""
_PART = 4096
"""Numbers that a worker quantises before it looks for more."""
_MAGIC = 12582912.0
"""1.5 · 2^23: the last place of a sum with it counts ones, so that adding it rounds, to even."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of A, ready to be multiplied."""

    values: Pointer
    """int32 words of four codes, or float32."""
    stride: int
    scales: Pointer | None = None
    """Of quantised rows, `[row][block]`."""
    corrections: Pointer | None = None
    """What zero points take from the sum of a block, `[row][block]`: the sum of its codes, as
    float32; minus the middle of the range times that, as int32, where no zero points are given.
    """


def _filled(build: Builder, it: PackedProduct, row: Pointer, to: Pointer, at: Count) -> None:
    """A row of A, zeros behind it up to whole blocks."""
    with build.loop("k", it.depth, vectorise=True) as k:
        build.assign(to[at + k], row[k])
    with build.loop("k", it.padded, begin=it.depth) as k:
        build.assign(to[at + k], Literal(0.0, DType.F32))


def real_rows(build: Builder, it: PackedProduct) -> Rows:
    a = build.buffer(it.a)
    if not it.pads:
        return Rows(a, it.depth)
    filled = build.scratch("filled", alone=False)
    with build.loop("row", it.rows) as row:
        _filled(build, it, build.pointer("from", a, row * it.depth), filled, row * it.padded)
    return Rows(filled, it.padded)


def quantised_rows(build: Builder, it: PackedProduct) -> Rows:
    """Rows of A as int8: in each block the number farthest from zero becomes 127 or -127."""
    codes_size, scales_size, _ = it.scratch
    a = build.buffer(it.a)
    where = SHARED if it.shares_rows else SCRATCH
    codes = build.memory("codes", where, DType.I8, 0)
    scales = build.memory("row_scales", where, DType.F32, codes_size)
    kind = DType.I32 if it.zeros is None else DType.F32
    corrections = build.memory("corrections", where, kind, codes_size + it.rows * it.blocks)
    # Behind all that, as what the workers share is the private memory of one of them.
    staged = (
        build.scratch("staged", offset=codes_size + scales_size, alone=False) if it.pads else None
    )
    words = build.memory("row_words", where, DType.I32, 0)

    def quantise(row: Count) -> None:
        """Codes, scales and corrections of one row."""
        source = build.pointer("from", a, row * it.depth, alone=False)
        if staged is not None:
            _filled(build, it, source, staged, count(0))
            source = staged
        with build.loop("b", it.blocks) as b:
            scale, total = _quantised_block(build, it, source, codes, row, b)
            place = row * it.blocks + b
            build.assign(scales[place], scale)
            if it.zeros is None:
                whole = Op(Fn.CAST, (total,), DType.I32)
                by = Literal(-it.middle, DType.I32)
                total = apply(Fn.MUL, whole, by)
            build.assign(corrections[place], total)

    if it.shares_rows:
        each = max(1, _PART // it.padded)
        with build.loop("rows", -(-it.rows // each), shared=True) as part:
            last = build.count("last", least((part + 1) * each, it.rows))
            with build.loop("row", last, begin=part * each) as row:
                quantise(row)
    else:
        with build.loop("row", it.rows) as row:
            quantise(row)
    return Rows(words, it.padded // 4, scales, corrections)


def _quantised_block(
    build: Builder, it: PackedProduct, source: Pointer, codes: Pointer, row: Count, b: Count
) -> tuple[Expr, Expr]:
    """Its scale, and the sum of its codes."""
    lanes = it.lanes
    tops = build.variable("tops", zeros(lanes))
    with build.loop("i", it.block, step=lanes, unroll=FULLY) as i:
        x = source.vector(b * it.block + i, lanes)
        unsigned = lanewise(Fn.BIT_AND, Bits(x, DType.I32), Literal(0x7FFFFFFF, DType.I32))
        size = build.let("size", Bits(unsigned, DType.F32))
        build.assign(tops, lanewise(Fn.CHOOSE, lanewise(Fn.LT, tops, size), size, tops))
    top = build.let("top", Primitive(f"top_f32x{lanes}", (tops,), DType.F32))
    scale = build.let("scale", top * Literal(1.0 / LARGEST_CODE, DType.F32))
    nothing, one = Literal(0.0, DType.F32), Literal(1.0, DType.F32)
    inverse = build.let("inverse", choose(apply(Fn.EQ, top, nothing), nothing, one / scale))
    totals = build.variable("totals", zeros(lanes))
    with build.loop("i", it.block, step=lanes, unroll=FULLY) as i:
        x = source.vector(b * it.block + i, lanes)
        magic = Literal(_MAGIC, DType.F32)
        rounded = build.let("rounded", x * inverse + Splat(magic, lanes))
        build.accumulate(totals, rounded - magic)
        code = Op(Fn.CAST, (Bits(rounded, DType.I32),), DType.I8, lanes)
        build.assign(codes.vector(row * it.padded + b * it.block + i, lanes), code)
    return scale, build.let("total", Primitive(f"sum_f32x{lanes}", (totals,), DType.F32))
