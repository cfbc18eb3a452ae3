"""The matrix product in C: accumulators in vector registers, one broadcast of A times a row of B's
panel a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whence.codegen.render_c import CWriter, c_index
from whence.kernels.ir import Micro
from whence.kernels.product.gemm import BATCH, COLUMN, ROW, STREAM_AHEAD, Gemm
from whence.machine import CACHE_LINE

_LINE = CACHE_LINE // 4
"""Floats in a cache line."""
_UNROLLED = 2
"""Steps of a sum that are written out, at least."""
_LONGEST = 8
"""And at most."""


def write_gemm(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Gemm)
    gemm, line = micro, writer.line
    width = gemm.tile.width
    vector = f"w_f32x{gemm.tile.lanes}"
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t {BATCH} = task / {gemm.panels * gemm.blocks}, panel = task / {gemm.blocks}"
        f" % {gemm.panels}, block = task % {gemm.blocks};"
    )
    line(f"(void){BATCH};")
    line(f"const int64_t n0 = panel * {width};")
    line(f"const int64_t columns = {gemm.columns} - n0 < {width} ? {gemm.columns} - n0 : {width};")
    line(f"const float *restrict a = {gemm.a.buffer} + {c_index(gemm.a.base)};")
    if gemm.packed:
        line(f"const float *restrict b = {gemm.b.buffer} + panel * {gemm.depth * width};")
    else:
        _pack(writer, gemm)
    line(
        f"const int64_t last = (block + 1) * {gemm.block_rows} < {gemm.rows} ? (block + 1) *"
        f" {gemm.block_rows} : {gemm.rows};"
    )
    if gemm.divided:
        line(f"float held[{gemm.block_rows}][{width}]; /* sums of the blocks so far */")
        writer.open(f"for (int64_t k0 = 0; k0 < {gemm.depth}; k0 += {gemm.block_depth})")
    line(f"int64_t m0 = block * {gemm.block_rows};")
    rows = gemm.tile.rows
    writer.open(f"for (; m0 + {rows} <= last; m0 += {rows})")
    _tile(writer, gemm, rows, vector)
    writer.close()
    for rest in sorted(_remainders(gemm)):
        writer.open(f"if (last - m0 == {rest})")
        _tile(writer, gemm, rest, vector)
        writer.close()
    if gemm.divided:
        writer.close()
    writer.close()


def _remainders(gemm: Gemm) -> set[int]:
    """The heights of the tile that ends a block of rows."""
    ends = {
        gemm.rows - first if gemm.rows - first < gemm.block_rows else gemm.block_rows
        for first in range(0, gemm.rows, gemm.block_rows)
    }
    return {end % gemm.tile.rows for end in ends} - {0}


def _pack(writer: CWriter, gemm: Gemm) -> None:
    """Copy this work item's panel of B into scratch, zeros behind the last column."""
    width, line = gemm.tile.width, writer.line
    line("float *restrict pack = scratch;")
    line("const float *restrict b = pack;")
    line(
        f"const float *restrict from = {gemm.b.buffer} + {c_index(gemm.b.base)} + n0 *"
        f" {gemm.b.column_stride};"
    )
    turned = (
        gemm.depth // gemm.tile.lanes * gemm.tile.lanes
        if gemm.b.row_stride == 1 and gemm.b.column_stride > 1
        else 0
    )
    if turned:
        _pack_turned(writer, gemm, turned)
    if turned < gemm.depth:
        writer.open(f"for (int64_t k = {turned}; k < {gemm.depth}; k++)")
        line(
            f"for (int64_t j = 0; j < columns; j++) pack[k * {width} + j] = from[k *"
            f" {gemm.b.row_stride} + j * {gemm.b.column_stride}];"
        )
        line(f"for (int64_t j = columns; j < {width}; j++) pack[k * {width} + j] = 0.0f;")
        writer.close()


def _pack_turned(writer: CWriter, gemm: Gemm, depth: int) -> None:
    """The first `depth` rows of a panel of a B whose columns lie along memory, a square of
    registers at a time.
    """
    lanes, width, line, vector = (
        gemm.tile.lanes,
        gemm.tile.width,
        writer.line,
        f"w_f32x{gemm.tile.lanes}",
    )
    writer.open(
        f"for (int64_t j = 0; j < {width}; j += {lanes}) for (int64_t k = 0; k < {depth}; k +="
        f" {lanes})"
    )
    line(f"{vector} turn[{lanes}];")
    line("#pragma clang loop unroll(full)")
    inside = f"*(const {vector} *)(from + (j + i) * {gemm.b.column_stride} + k)"
    line(
        f"for (int i = 0; i < {lanes}; i++) turn[i] = j + i < columns ? {inside} :"
        f" ({vector})(0.0f);"
    )
    line(f"w_transpose_f32x{lanes}(turn);")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {lanes}; i++) *({vector} *)(pack + (k + i) * {width} + j) = turn[i];"
    )
    writer.close()


@dataclass(frozen=True, slots=True)
class _Pace:
    """Every so many steps of the sum, so many cache lines of the next panel are asked for."""

    steps: int
    lines: int


def _pace(gemm: Gemm) -> _Pace:
    """Weights come from far away, and memory answers only so many requests at a time. While one
    block of a panel is at work, which takes all steps of all its tiles of rows, the next is asked
    for at an even pace; with the last, what lies behind it: mostly the next product's first.
    """
    tiles, lines = -(-gemm.rows // gemm.tile.rows), -(-gemm.tile.width // _LINE)
    common = math.gcd(tiles, lines)
    if tiles // common > _LONGEST:
        return _Pace(min(tiles // lines, _LONGEST), 1)
    repeats = max(1, _UNROLLED * common // tiles)
    return _Pace(tiles // common * repeats, lines // common * repeats)


def _step(writer: CWriter, gemm: Gemm, rows: int, k: str) -> None:
    """The products of column `k` of A with row `k` of the panel."""
    tile, line = gemm.tile, writer.line
    vector = f"w_f32x{tile.lanes}"
    writer.open("")
    for j in range(tile.vectors):
        line(
            f"const {vector} b{j} = *(const {vector} *)(row + ({k}) * {tile.width} +"
            f" {j * tile.lanes});"
        )
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {rows}; i++)")
    line(
        f"const {vector} x = w_splat_f32x{tile.lanes}(at[i * {gemm.a.row_stride} + ({k}) *"
        f" {gemm.a.column_stride}]);"
    )
    for j in range(tile.vectors):
        line(f"sum[i][{j}] += x * b{j};")
    writer.close()
    writer.close()


def _each_sum(writer: CWriter, gemm: Gemm, rows: int, statement: str) -> None:
    writer.line("#pragma clang loop unroll(full)")
    writer.line(
        f"for (int i = 0; i < {rows}; i++) for (int j = 0; j < {gemm.tile.vectors}; j++)"
        f" {statement}"
    )


def _tile(writer: CWriter, gemm: Gemm, rows: int, vector: str) -> None:
    tile, line = gemm.tile, writer.line
    line(
        "const float *restrict at = a + m0 *"
        f" {gemm.a.row_stride}{f' + k0 * {gemm.a.column_stride}' if gemm.divided else ''};"
    )
    line(f"const float *restrict row = b{f' + k0 * {tile.width}' if gemm.divided else ''};")
    line(f"{vector} sum[{rows}][{tile.vectors}];")
    if gemm.divided:
        held = f"*({vector} *)(held[m0 - block * {gemm.block_rows} + i] + j * {tile.lanes})"
        writer.open("if (k0 == 0)")
        _each_sum(writer, gemm, rows, f"sum[i][j] = ({vector}){{0}};")
        writer.close()
        writer.open("else")
        _each_sum(writer, gemm, rows, f"sum[i][j] = {held};")
        writer.close()
    else:
        _each_sum(writer, gemm, rows, f"sum[i][j] = ({vector}){{0}};")
    depth, pace = gemm.block_depth, _pace(gemm) if gemm.packed else _Pace(_UNROLLED, 0)
    if pace.lines:
        # A panel that passes by once is a stream: what is asked for too early would be gone from
        # the cache again.
        distance = (
            depth * tile.width if gemm.rows > tile.rows else min(depth * tile.width, STREAM_AHEAD)
        )
        line(
            f"const float *ahead = row + {distance} + m0 / {tile.rows} *"
            f" {depth // pace.steps * pace.lines * _LINE};"
        )
    whole = depth // pace.steps * pace.steps
    if whole:
        writer.open(f"for (int64_t k = 0; k < {whole}; k += {pace.steps})")
        for j in range(pace.lines):
            line(f"__builtin_prefetch(ahead + {j * _LINE}, 0, 2);")
        if pace.lines:
            line(f"ahead += {pace.lines * _LINE};")
        for step in range(pace.steps):
            _step(writer, gemm, rows, f"k + {step}" if step else "k")
        writer.close()
    for step in range(whole, depth):
        _step(writer, gemm, rows, str(step))
    if gemm.divided:
        writer.open(f"if (k0 < {gemm.depth - depth})")
        _each_sum(writer, gemm, rows, f"{held} = sum[i][j];")
        writer.close()
        writer.open("else")
    _store(writer, gemm, rows, vector)
    if gemm.divided:
        writer.close()


def _store(writer: CWriter, gemm: Gemm, rows: int, vector: str) -> None:
    """Apply the epilogue to the sums of a tile."""
    tile, line = gemm.tile, writer.line
    line(f"float out_tile[{rows}][{tile.width}];")
    _each_sum(writer, gemm, rows, f"*({vector} *)(out_tile[i] + j * {tile.lanes}) = sum[i][j];")
    write_rows(writer, gemm, str(rows))


def write_rows(writer: CWriter, gemm: Gemm, rows: str) -> None:
    """Apply the epilogue to so many rows of `out_tile`, which are those of the product from `m0`
    on, and its `columns` from `n0` on.
    """
    tile, line = gemm.tile, writer.line
    writer.open(f"for (int64_t i = 0; i < {rows}; i++)")
    line(f"const int64_t {ROW} = m0 + i;")
    line(f"(void){ROW};")
    writer.open(f"if (columns == {tile.width})")
    _columns(writer, gemm, str(tile.width))
    writer.close()
    writer.open("else")
    _columns(writer, gemm, "columns")
    writer.close()
    writer.close()


def _columns(writer: CWriter, gemm: Gemm, limit: str) -> None:
    writer.line("#pragma clang loop vectorize(assume_safety)")
    writer.open(f"for (int64_t j = 0; j < {limit}; j++)")
    writer.line(f"const int64_t {COLUMN} = n0 + j;")
    writer.line("const float acc = out_tile[i][j];")
    writer.line(f"{gemm.out}[{c_index(gemm.out_index)}] = {writer.stored(gemm.out, gemm.value)};")
    writer.close()
