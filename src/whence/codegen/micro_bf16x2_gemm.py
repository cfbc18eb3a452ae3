"""The matrix product by matrix units in C: turn a block of rows into halves, multiply tiles, store
what becomes of the sums.
"""

from __future__ import annotations

from whence.codegen.c_text import c_index
from whence.codegen.epilogue import vector_typedef
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
from whence.codegen.micro_gemm import write_rows
from whence.codegen.render_c import CWriter
from whence.kernels.bf16x2 import DEPTH, GROUP, STEP_FLOATS, TILE
from whence.kernels.ir import Micro
from whence.kernels.product.bf16x2 import Bf16x2Gemm
from whence.kernels.product.gemm_program import BATCH
from whence.machine import CACHE_LINE

_STEP = 2 * GROUP * DEPTH
"""Halves that a step reads: the rows' high ones, then their low ones."""


def write_bf16x2_gemm(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Bf16x2Gemm)
    it, gemm, line = micro, micro.product, writer.line
    line(vector_typedef(TILE))
    write_types(writer)
    write_configure(writer)
    line(
        "half *restrict turned = scratch; float *restrict sums = (float *)scratch +"
        f" {it.turned_floats};"
    )
    line(f"const int64_t {BATCH} = 0; (void){BATCH};")
    line(f"const float *restrict a = {gemm.a.buffer} + {c_index(gemm.a.base)};")
    line("int64_t have = -1;")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t block = task / {it.parts}, part = task % {it.parts}, first = block *"
        f" {gemm.block_rows};"
    )
    line(
        f"const int64_t count = first + {gemm.block_rows} <= {gemm.rows} ? {gemm.block_rows} :"
        f" {gemm.rows} - first;"
    )
    writer.open("if (block != have)")
    line("have = block;")
    _turn(writer, it)
    writer.close()
    writer.open(
        f"for (int64_t panel = part * {gemm.panels} / {it.parts}; panel < (part + 1) *"
        f" {gemm.panels} / {it.parts}; panel++)"
    )
    line(f"const int64_t n0 = panel * {GROUP};")
    line(f"const int64_t columns = {gemm.columns} - n0 < {GROUP} ? {gemm.columns} - n0 : {GROUP};")
    writer.open(f"for (int64_t at = 0; at < count; at += {GROUP})")
    _multiply(writer, it)
    line(f"const int64_t m0 = first + at, some = count - at < {GROUP} ? count - at : {GROUP};")
    line(f"const float (*restrict out_tile)[{GROUP}] = (const float (*)[{GROUP}])sums;")
    write_rows(writer, gemm, "some")
    writer.close()
    writer.close()
    writer.close()
    write_release(writer)


def _turn(writer: CWriter, it: Bf16x2Gemm) -> None:
    """The halves of `count` rows from `first` on. Rows that there are not are left as they are:
    what becomes of them is dropped.
    """
    gemm, line = it.product, writer.line
    whole, rest = divmod(gemm.depth, DEPTH)
    writer.open(f"for (int64_t at = 0; at < count; at += {GROUP})")
    line(f"const int64_t some = count - at < {GROUP} ? count - at : {GROUP};")
    writer.open(
        f"for (int64_t k = 0; k < {whole}; k++) for (int64_t i = 0; i < some; i++) for (int64_t j ="
        f" 0; j < {DEPTH}; j += {TILE})"
    )
    line(
        f"half *restrict to = turned + (at * {it.depths} + k * {GROUP}) * {2 * DEPTH} + i * {DEPTH}"
        " + j;"
    )
    write_transpose(
        writer,
        f"*(const vec *)(a + (first + at + i) * {gemm.a.row_stride} + k * {DEPTH} + j)",
        "to",
        str(GROUP * DEPTH),
    )
    writer.close()
    if rest:
        writer.open("for (int64_t i = 0; i < some; i++)")
        line(f"float last[{DEPTH}] = {{0}};")
        line(
            f"__builtin_memcpy(last, a + (first + at + i) * {gemm.a.row_stride} + {whole * DEPTH},"
            f" {4 * rest});"
        )
        writer.open(f"for (int64_t j = 0; j < {DEPTH}; j += {TILE})")
        line(
            f"half *restrict to = turned + (at * {it.depths} + {whole * GROUP}) * {2 * DEPTH} + i *"
            f" {DEPTH} + j;"
        )
        write_transpose(writer, "*(const vec *)(last + j)", "to", str(GROUP * DEPTH))
        writer.close()
        writer.close()
    writer.close()


def _multiply(writer: CWriter, it: Bf16x2Gemm) -> None:
    gemm, line = it.product, writer.line
    line(f"const float *restrict w = {gemm.b.buffer} + panel * {it.depths * STEP_FLOATS};")
    line(f"const half *restrict x = turned + at * {it.depths * 2 * DEPTH};")
    if it.ahead:
        line(
            f"const float *ahead = w + {it.distance} + at / {GROUP} *"
            f" {it.depths * it.ahead * CACHE_LINE // 4};"
        )
    write_zeros(writer)
    writer.open(f"for (int64_t k = 0; k < {it.depths}; k++)")
    if it.ahead:
        write_ahead(writer, it.ahead)
    write_step(writer, "x", str(GROUP * DEPTH), str(TILE * DEPTH), "w")
    line(f"w += {STEP_FLOATS}; x += {_STEP};")
    writer.close()
    write_sums(writer, "sums")
