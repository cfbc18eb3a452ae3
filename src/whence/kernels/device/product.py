"""The matrix product on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.kernels.builder import Builder
from whence.kernels.device.tiled import TiledProduct
from whence.kernels.ir import Count, Name, Stmt, count

if TYPE_CHECKING:
    from whence.kernels.product.gemm_program import Gemm


def gemm_on_device(gemm: Gemm, row: str, column: str, batch: str) -> tuple[Stmt, ...]:
    """`row`, `column` and `batch` are the variables of the epilogue."""
    build, width = Builder(), gemm.tile.width
    tiled = TiledProduct(build, gemm.rows, gemm.columns, gemm.depth, gemm.batch)
    build.bind(batch, tiled.group)
    a, b = build.buffer(gemm.a.buffer), build.buffer(gemm.b.buffer)

    def left(value: Name, m: Count, k: Count) -> None:
        place = count(gemm.a.base) + m * gemm.a.row_stride + k * gemm.a.column_stride
        build.assign(value, a[place])

    def right(value: Name, k: Count, n: Count) -> None:
        if gemm.packed:
            place = (n // width * gemm.depth + k) * width + n % width
        else:
            place = count(gemm.b.base) + k * gemm.b.row_stride + n * gemm.b.column_stride
        build.assign(value, b[place])

    def store(m: Count, n: Count) -> None:
        build.bind(row, m)
        build.bind(column, n)
        build.add(gemm.output)

    tiled.run(left, right, store)
    return build.finish()
