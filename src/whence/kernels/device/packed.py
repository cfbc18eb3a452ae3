"""The product with packed weights on a device."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from whence.kernels.builder import Builder
from whence.kernels.ir import Expr, Fn, Kernel, Literal, Op, Stmt, least
from whence.kernels.product.gemm_program import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.product.packed_codes import code_of
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.product.packed_program import PackedProduct


def packed_product_on_device(it: PackedProduct, kernel: Kernel) -> tuple[Stmt, ...]:
    """One number at a time, in real numbers."""
    build = Builder()
    with build.tasks(kernel.tasks) as task:
        panel = task // it.row_parts
        build.bind(BATCH, 0)
        a, words = build.buffer(it.a), build.buffer(it.words, DType.I32)
        scales = build.buffer(it.scales)
        columns = build.count("columns", least(it.columns - panel * it.width, it.width))
        with build.loop("row", it.rows) as row, build.loop("lane", columns) as lane:
            total = build.variable("total", Literal(0.0, DType.F32))
            with build.loop("b", it.blocks) as b:
                block = build.count("block", panel * it.blocks + b)
                scale = build.let("scale", scales[block * it.width + lane])
                if it.zeros is None:
                    zero: Expr = Literal(float(it.middle), DType.F32)
                else:
                    read = build.buffer(it.zeros, DType.U8)[block * it.width + lane]
                    zero = build.let("zero", Op(Fn.CAST, (read,), DType.F32))
                with build.loop("w", it.block_words) as w:
                    word = build.let("word", words[(block * it.block_words + w) * it.width + lane])
                    for quad in range(it.quads):
                        for byte in range(4):
                            k = b * it.block + w * (it.quads * 4) + quad * 4 + byte
                            code = code_of(it.bits, word, quad, byte)
                            product = a[row * it.depth + k] * ((code - zero) * scale)
                            with build.when(k < it.depth) if it.pads else nullcontext():
                                build.accumulate(total, product)
            build.bind(ROW, row)
            build.bind(COLUMN, panel * it.width + lane)
            build.bind_value(ACCUMULATOR.name, total)
            build.add(it.output)
    return build.finish()
