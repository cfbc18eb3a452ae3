"""The matrix product in OpenCL C."""

from __future__ import annotations

from whence.codegen.c_text import c_index, converted
from whence.codegen.opencl.render_cl import ClWriter
from whence.codegen.opencl.tiled import write_tiled
from whence.kernels.ir import Micro
from whence.kernels.product.gemm_program import BATCH, Gemm
from whence.types import DType


def write_gemm(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, Gemm)
    gemm, line, width, counter = micro, writer.line, micro.tile.width, writer.counter

    def load_a() -> None:
        line(f"const {counter} {BATCH} = group;")
        line(
            f"value = {gemm.a.buffer}[{c_index(gemm.a.base)} + m * {gemm.a.row_stride} + k *"
            f" {gemm.a.column_stride}];"
        )

    def load_b() -> None:
        line(f"const {counter} {BATCH} = group;")
        if gemm.packed:
            line(
                f"value = {gemm.b.buffer}[(n / {width} * {gemm.depth} + k) * {width} + n %"
                f" {width}];"
            )
        else:
            line(
                f"value = {gemm.b.buffer}[{c_index(gemm.b.base)} + k * {gemm.b.row_stride} + n *"
                f" {gemm.b.column_stride}];"
            )

    def store() -> None:
        line(f"const {counter} {BATCH} = group;")
        value = converted(
            writer.expression(gemm.value), gemm.value.dtype, writer.dtype_of(gemm.out)
        )
        line(f"{gemm.out}[{c_index(gemm.out_index)}] = {value};")

    assert gemm.value.dtype is not DType.BF16
    write_tiled(writer, gemm.rows, gemm.columns, gemm.depth, gemm.batch, load_a, load_b, store)
