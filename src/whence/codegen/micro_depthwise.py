"""Depthwise convolutions and pools in C: vectors over the channels of a block, each input vector
loaded once for all pixels of a tile.
"""

from __future__ import annotations

from collections import defaultdict

from whence.codegen.c_text import c_literal
from whence.codegen.epilogue import Epilogue, vector_typedef
from whence.codegen.micro_conv import write_kernel_rows, write_tiles
from whence.codegen.render_c import CWriter
from whence.kernels.conv.depthwise import Slide
from whence.kernels.conv.epilogue import IMAGE
from whence.kernels.conv.tiles import Shape
from whence.kernels.ir import Fn, Literal, Micro
from whence.types import DType


def write_slide(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Slide)
    slide, line = micro, writer.line
    line(vector_typedef(slide.lanes))
    for name, shares in (("row_share", slide.row_shares), ("column_share", slide.column_shares)):
        if len(set(shares)) > 1:
            line(
                f"static const float {name}[{len(shares)}] ="
                f" {{{', '.join(_number(share) for share in shares)}}};"
            )
    writer.open("for (int64_t task = begin; task < end; task++)")
    chunks = slide.chunks
    line(
        f"const int64_t {IMAGE} = task / {slide.blocks * chunks}, block = task / {chunks} %"
        f" {slide.blocks}, chunk = task % {chunks};"
    )
    units = slide.cover.units
    line(
        f"const int64_t first = chunk * {slide.chunk}, last = first + {slide.chunk} < {units} ?"
        f" first + {slide.chunk} : {units};"
    )
    plane = slide.rows.size * slide.columns.size * slide.block
    taps = slide.rows.kernel * slide.columns.kernel * slide.block
    parts = slide.block // slide.lanes
    writer.open(
        f"for (int64_t lane0 = 0; lane0 < {slide.block}; lane0 += {slide.lanes})"
        if parts > 1
        else ""
    )
    if parts == 1:
        line("const int64_t lane0 = 0;")
    line(f"const float *restrict x = {slide.source} + task / {chunks} * {plane} + lane0;")
    if slide.weights is not None:
        line(f"const float *restrict w = {slide.weights} + block * {taps} + lane0;")
    write_tiles(writer, slide.cover, slide.rows, lambda shape: _tile(writer, slide, shape))
    writer.close()
    writer.close()


def _tile(writer: CWriter, slide: Slide, shape: Shape) -> None:
    line, pixels = writer.line, shape.pixels
    rows, columns = slide.rows, slide.columns
    epilogue = Epilogue(slide.outputs, slide.lanes, slide.block, "lane0")
    line(
        f"const int64_t at = ((row * {rows.stride} - {rows.begin}) * {columns.size} + column *"
        f" {columns.stride} - {columns.begin}) * {slide.block};"
    )
    line(f"const int64_t place = row * {columns.out} + column;")
    line(f"vec sum[{pixels}][1];")
    start = "0.0f" if slide.fn is Fn.ADD else "-__builtin_inff()"
    line("#pragma clang loop unroll(full)")
    line(f"for (int i = 0; i < {pixels}; i++) sum[i][0] = (vec)({start});")
    epilogue.prefetch(writer, pixels, 1)
    write_kernel_rows(writer, rows, shape, lambda row: _kernel_row(writer, slide, shape, row))
    _average(writer, slide, shape)
    epilogue.store(writer, pixels, 1)


def _kernel_row(writer: CWriter, slide: Slide, shape: Shape, row: int | None) -> None:
    """The products of one kernel row: input vectors from left to right, each with all taps that
    meet it.
    """
    line, rows, columns = writer.line, slide.rows, slide.columns
    met: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for read in shape.reads:
        if read.row != row:
            continue
        for tap in range(read.first, read.first + read.count):
            for pixel in read.pixels:
                down, right = divmod(pixel, shape.columns)
                met[
                    (
                        down * rows.stride * columns.size
                        + right * columns.stride
                        + tap * columns.dilation
                    )
                    * slide.block
                ].append((pixel, tap))
    line(f"const float *restrict xk = x + at + kh * {rows.dilation * columns.size * slide.block};")
    if slide.weights is not None:
        line(f"const float *restrict wk = w + kh * {columns.kernel * slide.block};")
        for tap in sorted({tap for pairs in met.values() for _, tap in pairs}):
            line(f"const vec w{tap} = *(const vec *)(wk + {tap * slide.block});")
    for offset, pairs in sorted(met.items()):
        folds = " ".join(_fold(slide, pixel, tap) for pixel, tap in pairs)
        line(f"{{ const vec a = *(const vec *)(xk + {offset}); {folds} }}")


def _fold(slide: Slide, pixel: int, tap: int) -> str:
    if slide.fn is Fn.MAX:
        return f"sum[{pixel}][0] = __builtin_elementwise_maximum(sum[{pixel}][0], a);"
    return f"sum[{pixel}][0] += a{f' * w{tap}' if slide.weights is not None else ''};"


def _average(writer: CWriter, slide: Slide, shape: Shape) -> None:
    if not slide.row_shares:
        return
    writer.line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {shape.pixels}; i++)")
    down, right = (
        (f"row + i / {shape.columns}", f"column + i % {shape.columns}")
        if shape.rows > 1
        else ("row", "column + i")
    )
    factors = [
        f"{name}[{place}]" if len(set(shares)) > 1 else _number(shares[0])
        for name, shares, place in (
            ("row_share", slide.row_shares, down),
            ("column_share", slide.column_shares, right),
        )
    ]
    writer.line(f"sum[i][0] *= (vec)({factors[0]} * {factors[1]});")
    writer.close()


def _number(value: float) -> str:
    return c_literal(Literal(value, DType.F32))
