"""Depthwise convolutions and pools in OpenCL C: a work item for each element, neighbours in a group
read neighbouring channels.
"""

from __future__ import annotations

from whence.codegen.c_text import c_literal
from whence.codegen.opencl.conv import write_outputs
from whence.codegen.opencl.render_cl import ClWriter, Geometry
from whence.kernels.conv.depthwise_program import Slide
from whence.kernels.conv.epilogue import CHANNELS, IMAGE, LANE, PIXEL
from whence.kernels.ir import Fn, Literal, Micro
from whence.types import DType


def write_slide(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, Slide)
    slide, line, counter = micro, writer.line, writer.counter
    rows, columns = slide.rows, slide.columns
    writer.geometry = Geometry(
        (slide.block, rows.out * columns.out, slide.images * slide.blocks), (slide.block, 1, 1)
    )
    line(
        f"const {counter} {LANE} = get_global_id(0), {PIXEL} = get_global_id(1), place ="
        " get_global_id(2);"
    )
    line(f"const {counter} {IMAGE} = place / {slide.blocks}, {CHANNELS} = place % {slide.blocks};")
    line(f"const {counter} row = {PIXEL} / {columns.out}, column = {PIXEL} % {columns.out};")
    line(f"float acc = {'0.0f' if slide.fn is Fn.ADD else '-__builtin_inff()'};")
    writer.open(
        f"for ({counter} kh = 0; kh < {rows.kernel}; kh++) for ({counter} kw = 0; kw <"
        f" {columns.kernel}; kw++)"
    )
    line(f"const {counter} y = row * {rows.stride} + kh * {rows.dilation} - {rows.begin};")
    line(
        f"const {counter} x = column * {columns.stride} + kw * {columns.dilation} -"
        f" {columns.begin};"
    )
    line(f"if (y < 0 || y >= {rows.size} || x < 0 || x >= {columns.size}) continue;")
    line(
        f"const float value = {slide.source}[((place * {rows.size} + y) * {columns.size} + x) *"
        f" {slide.block} + {LANE}];"
    )
    if slide.fn is Fn.MAX:
        line("acc = w_larger(acc, value);")
    elif slide.weights is None:
        line("acc += value;")
    else:
        line(
            f"acc += value * {slide.weights}[(({CHANNELS} * {rows.kernel} + kh) * {columns.kernel}"
            f" + kw) * {slide.block} + {LANE}];"
        )
    writer.close()
    for stem, shares, at in (
        ("row_share", slide.row_shares, "row"),
        ("column_share", slide.column_shares, "column"),
    ):
        if shares:
            same = len(set(shares)) == 1
            line(
                "acc *="
                f" {c_literal(Literal(shares[0], DType.F32)) if same else f'{writer.constant(stem, shares)}[{at}]'};"
            )
    write_outputs(writer, slide.outputs)
