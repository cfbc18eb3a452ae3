"""Depthwise convolution of bytes in C: each input column's bytes, four rows to a lane, times the
weights of every tap that meets it.
"""

from __future__ import annotations

from collections import defaultdict

from whence.codegen.integer_epilogue import IntegerEpilogue
from whence.codegen.render_c import CWriter
from whence.kernels.conv.tiles import Shape
from whence.kernels.integer.depthwise import IntegerSlide
from whence.kernels.ir import Micro

_BORDER = -1
"""In place of an input column: padding."""


def write_integer_slide(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, IntegerSlide)
    it, line, rows, columns, lanes = micro, writer.line, micro.rows, micro.columns, micro.lanes
    vec = f"v{lanes}_i32"
    line(f"const {vec} order = w_quad_order_x{lanes}();")
    zero = writer.expression(it.x_zero)
    line(f"const int32_t raw = {zero}, zero = raw{' + 128' if it.is_signed else ''};")
    line(f"const {vec} border = ({vec})(zero * 0x01010101);")
    line("(void)border;")
    if it.border_bytes:
        line(f"__builtin_memset(scratch, raw, {it.border_bytes});")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t image = task / {it.chunks * it.parts}, chunk = task / {it.parts} %"
        f" {it.chunks}, part = task % {it.parts};"
    )
    row_bytes = columns.size * it.channels
    line(f"const uint8_t *x = (const uint8_t *){it.source} + image * {rows.size * row_bytes};")
    writer.open(
        f"for (int64_t row = chunk * {rows.out} / {it.chunks}; row < (chunk + 1) * {rows.out} /"
        f" {it.chunks}; row++)"
    )
    for tap in range(rows.kernel):
        line(f"const int64_t y{tap} = row * {rows.stride} + {tap * rows.dilation - rows.begin};")
        inside = f"x + y{tap} * {row_bytes}"
        line(
            f"const uint8_t *row{tap} ="
            f" {inside if rows.is_inside else f'(uint64_t)y{tap} < {rows.size}u ? {inside} : scratch'};"
        )
    writer.open(
        f"for (int64_t vector = part * {it.vectors} / {it.parts}; vector < (part + 1) *"
        f" {it.vectors} / {it.parts}; vector++)"
    )
    last = it.channels - lanes
    line(
        "const int64_t channel = vector *"
        f" {lanes}{f' < {last} ? vector * {lanes} : {last}' if it.channels % lanes else ''};"
    )
    line(f"const int8_t *w = {it.weights} + vector * {it.packing.vector_bytes};")
    line(f"const {vec} start = *(const {vec} *)w{' * -zero' if it.packing.x_zero is None else ''};")
    if it.packing.has_sums:
        line(f"const {vec} factor = *(const {vec} *)(w + {lanes * 4});")
    first = lanes * 4 * (1 + it.packing.has_sums)
    for tap in range(columns.kernel):
        for quad in range(it.quads):
            line(
                f"const {vec} w{tap}_{quad} = *(const {vec} *)(w +"
                f" {first + (tap * it.quads + quad) * lanes * 4});"
            )
    for run in it.cover.runs:
        writer.open(
            f"for (int64_t column = {run.start}; column < {run.start + run.count * run.step};"
            f" column += {run.step})"
        )
        _tile(writer, it, run.shape)
        writer.close()
    for _ in range(3):
        writer.close()


def _tile(writer: CWriter, it: IntegerSlide, shape: Shape) -> None:
    line, pixels, lanes, columns = writer.line, shape.pixels, it.lanes, it.columns
    vec = f"v{lanes}_i32"
    line(f"{vec} sum[{pixels}];")
    line("#pragma clang loop unroll(full)")
    line(f"for (int i = 0; i < {pixels}; i++) sum[i] = start;")
    if it.packing.has_sums:
        line(f"{vec} all[{pixels}];")
        line("#pragma clang loop unroll(full)")
        line(f"for (int i = 0; i < {pixels}; i++) all[i] = ({vec})(0);")
    line(
        f"const int64_t at = (column * {columns.stride} - {columns.begin}) * {it.channels} +"
        " channel;"
    )
    for place, pairs in sorted(_meetings(it, shape).items()):
        for quad in range(it.quads):
            taps = min(4, it.rows.kernel - 4 * quad)
            writer.open("")
            line(f"const {vec} four = {_four(it, place, quad, taps)};")
            ones = f"({vec})(0x{sum(1 << 8 * byte for byte in range(taps)):08x})"
            for pixel, tap in pairs:
                line(f"sum[{pixel}] = w_dot_x{lanes}(sum[{pixel}], four, w{tap}_{quad});")
                if it.packing.has_sums:
                    line(f"all[{pixel}] = w_dot_x{lanes}(all[{pixel}], four, {ones});")
            writer.close()
    line(f"int32_t tile[{pixels}][{lanes}] __attribute__((aligned(64)));")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {pixels}; i++) *({vec} *)tile[i] ="
        f" sum[i]{' + all[i] * factor' if it.packing.has_sums else ''};"
    )
    line(f"const int64_t m0 = (image * {it.rows.out} + row) * {columns.out} + column;")
    IntegerEpilogue(it.outputs, it.channels, lanes).store(writer, pixels, ["channel"], "m0")


def _meetings(it: IntegerSlide, shape: Shape) -> dict[int, list[tuple[int, int]]]:
    """By input column, counted from the tile's first: the pixels whose windows hold it, and with
    which tap.
    """
    met: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    reached = {
        (pixel, tap)
        for read in shape.reads
        for tap in range(read.first, read.first + read.count)
        for pixel in read.pixels
    }
    for pixel in range(shape.pixels):
        for tap in range(it.columns.kernel):
            place = (
                pixel * it.columns.stride + tap * it.columns.dilation
                if (pixel, tap) in reached
                else _BORDER
            )
            met[place].append((pixel, tap))
    return met


def _four(it: IntegerSlide, place: int, quad: int, taps: int) -> str:
    lanes = it.lanes
    if place == _BORDER:
        return "border"
    loads = [
        f"*(const v{lanes}_u8 *)(row{4 * quad + tap} + at + {place * it.channels})"
        for tap in range(taps)
    ]
    loads += [f"(v{lanes}_u8)(0)"] * (4 - taps)
    flipped = f" ^ (v{lanes}_i32)(int32_t)0x80808080" if it.is_signed else ""
    return f"w_quads_x{lanes}({', '.join(loads)}, order){flipped}"
