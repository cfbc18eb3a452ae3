"""The epilogue of matrix products by matrix units in C."""

from __future__ import annotations

from whence.codegen.c_text import c_index
from whence.codegen.render_c import CWriter
from whence.kernels.product.gemm_program import COLUMN, ROW, Gemm


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
