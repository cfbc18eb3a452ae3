"""Convolution by matrix units in C: turn a chunk of the input into halves, multiply tiles, store
what becomes of the sums.
"""

from __future__ import annotations

from whence.codegen.epilogue import Epilogue, vector_typedef
from whence.codegen.matrix_tiles import (
    write_ahead,
    write_configure,
    write_release,
    write_step,
    write_sums,
    write_transpose,
    write_types,
    write_zeros,
)
from whence.codegen.render_c import CWriter
from whence.kernels.bf16x2 import DEPTH, GROUP, PANEL, STEP_FLOATS, TILE
from whence.kernels.conv.bf16x2 import Bf16x2Conv
from whence.kernels.conv.epilogue import IMAGE
from whence.kernels.conv.tiles import Field
from whence.kernels.ir import Micro
from whence.machine import CACHE_LINE


def write_bf16x2_conv(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Bf16x2Conv)
    it, line = micro, writer.line
    line(vector_typedef(TILE))
    write_types(writer)
    write_configure(writer)
    line(
        "half *restrict turned = scratch; float *restrict sums = (float *)scratch +"
        f" {it.turned_floats};"
    )
    line(
        f"static const int32_t taps[{len(it.taps)}] ="
        f" {{{', '.join(str(tap * DEPTH) for tap in it.taps)}}};"
    )
    line("int64_t have = -1;")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t round = task / {it.parts}, part = task % {it.parts}, {IMAGE} = round /"
        f" {it.chunks}, first = round % {it.chunks} * {it.chunk};"
    )
    line(
        f"const int64_t count = first + {it.chunk} <= {it.rows.out} ? {it.chunk} : {it.rows.out} -"
        " first;"
    )
    writer.open("if (round != have)")
    line("have = round;")
    _turn(writer, it)
    writer.close()
    line(f"const int64_t positions = (count - 1) * {it.width} + {it.columns.out};")
    writer.open(
        f"for (int64_t panel = part * {it.panels} / {it.parts}; panel < (part + 1) * {it.panels} /"
        f" {it.parts}; panel++)"
    )
    writer.open(f"for (int64_t at = 0; at < positions; at += {GROUP})")
    _multiply(writer, it)
    _store(writer, it)
    writer.close()
    writer.close()
    writer.close()
    write_release(writer)


def _turn(writer: CWriter, it: Bf16x2Conv) -> None:
    """The input of `count` output rows from `first` on, in planes."""
    line = writer.line
    rows, columns = it.rows, it.columns
    across = len(it.column_planes)
    if it.blocks_in % 2:
        line(
            f"__builtin_memset(turned + {(it.depths - 1) * 2 * it.half * DEPTH}, 0,"
            f" {2 * it.half * DEPTH * 2});"
        )
    writer.open(f"for (int64_t c = 0; c < {it.blocks_in}; c++)")
    line(
        f"const float *restrict from = {it.source} + ({IMAGE} * {it.blocks_in} + c) *"
        f" {rows.size * columns.size * TILE};"
    )
    line(f"half *restrict block = turned + c / 2 * {2 * it.half * DEPTH} + c % 2 * {TILE};")
    rest = it.channels % TILE
    if rest:
        kept = ", ".join("-1" if lane < rest else "0" for lane in range(TILE))
        line(f"const ivec kept = c == {it.blocks_in - 1} ? (ivec){{{kept}}} : (ivec)(-1);")
    for number, above in enumerate(it.row_planes):
        writer.open(f"for (int64_t r = 0; r < count + {it.plane_rows - it.chunk}; r++)")
        line(f"const int64_t row = (first + r) * {rows.stride} + {above - rows.begin};")
        line(f"const int inside = row >= 0 && row < {rows.size};")
        for beside_number, beside in enumerate(it.column_planes):
            writer.open("")
            line(
                "half *restrict to = block +"
                f" {(number * across + beside_number) * it.plane * DEPTH} + r * {it.width * DEPTH};"
            )
            low, high = _columns_inside(columns, beside, it.width)
            line(
                f"const int64_t low = inside ? {low} : {it.width}, high = inside ? {high} :"
                f" {it.width};"
            )
            for begin, end in (("0", "low"), ("high", str(it.width))):
                writer.open(f"for (int64_t x = {begin}; x < {end}; x++)")
                line(
                    f"*(halves *)(to + x * {DEPTH}) = (halves)(0); *(halves *)(to + x * {DEPTH} +"
                    f" {it.half * DEPTH}) = (halves)(0);"
                )
                writer.close()
            writer.open("for (int64_t column = low; column < high; column++)")
            value = (
                f"*(const vec *)(from + (row * {columns.size} + column * {columns.stride} +"
                f" {beside - columns.begin}) * {TILE})"
            )
            write_transpose(
                writer,
                f"(vec)((ivec){value} & kept)" if rest else value,
                f"to + column * {DEPTH}",
                str(it.half * DEPTH),
            )
            writer.close()
            writer.close()
        writer.close()
    writer.close()


def _columns_inside(field: Field, beside: int, width: int) -> tuple[int, int]:
    """The columns of a plane that lie on the input: from the first to behind the last."""
    inside = [x for x in range(width) if 0 <= x * field.stride + beside - field.begin < field.size]
    return (inside[0], inside[-1] + 1) if inside else (width, width)


def _multiply(writer: CWriter, it: Bf16x2Conv) -> None:
    line = writer.line
    line(
        f"const float *restrict w = {it.weights} + panel *"
        f" {it.depths * len(it.taps) * STEP_FLOATS};"
    )
    if it.ahead:
        panel = it.depths * len(it.taps) * STEP_FLOATS
        line(
            f"const float *ahead = w + {panel} + at / {GROUP} *"
            f" {it.depths * len(it.taps) * it.ahead * CACHE_LINE // 4};"
        )
    write_zeros(writer)
    writer.open(f"for (int64_t c = 0; c < {it.depths}; c++)")
    line(f"const half *restrict x = turned + (c * {2 * it.half} + at) * {DEPTH};")
    writer.open(f"for (int64_t tap = 0; tap < {len(it.taps)}; tap++)")
    line("const half *restrict xt = x + taps[tap];")
    if it.ahead:
        write_ahead(writer, it.ahead)
    write_step(writer, "xt", str(it.half * DEPTH), str(TILE * DEPTH), "w")
    line(f"w += {STEP_FLOATS};")
    writer.close()
    writer.close()
    write_sums(writer, "sums")


def _store(writer: CWriter, it: Bf16x2Conv) -> None:
    line = writer.line
    epilogue = Epilogue(it.outputs, TILE, TILE)
    line(
        f"const int64_t block = panel * {PANEL}, some = positions - at < {GROUP} ? positions - at :"
        f" {GROUP};"
    )
    beyond = it.width > it.columns.out
    if beyond:
        line(
            f"int64_t column = at % {it.width} - 1, place = (first + at / {it.width}) *"
            f" {it.columns.out};"
        )
        line(f"place += column < {it.columns.out} ? column : {it.columns.out - 1};")
    writer.open("for (int64_t i = 0; i < some; i++)")
    if beyond:
        # Behind the end of a row there are no pixels until the next one begins.
        line(f"column = column + 1 < {it.width} ? column + 1 : 0;")
        line(f"if (column >= {it.columns.out}) continue;")
        line("place++;")
    else:
        line(f"const int64_t place = first * {it.columns.out} + at + i;")
    line(f"const vec (*restrict sum)[{PANEL}] = (const vec (*)[{PANEL}])(sums + i * {GROUP});")
    rest = it.group_vectors % PANEL
    if rest:
        writer.open(f"if (panel == {it.panels - 1})")
        epilogue.store(writer, 1, rest)
        line("continue;")
        writer.close()
    epilogue.store(writer, 1, PANEL)
    writer.close()
