"""Convolutions on channel-blocked tensors in OpenCL C: a product of pixels and output channels, the
left operand read through the window.
"""

from __future__ import annotations

from whence.codegen.c_text import c_index, converted
from whence.codegen.opencl.render_cl import ClWriter
from whence.codegen.opencl.tiled import write_tiled
from whence.kernels.conv.direct_program import Conv
from whence.kernels.conv.epilogue import CHANNELS, IMAGE, LANE, PIXEL, Output
from whence.kernels.ir import Micro


def write_outputs(writer: ClWriter, outputs: tuple[Output, ...]) -> None:
    """Store what the epilogue makes of `acc` and its variables."""
    for output in outputs:
        value = converted(
            writer.expression(output.value), output.value.dtype, writer.dtype_of(output.buffer)
        )
        writer.line(f"{output.buffer}[{c_index(output.index)}] = {value};")


def write_conv(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, Conv)
    conv, line, counter = micro, writer.line, writer.counter
    rows, columns = conv.rows, conv.columns
    taps = rows.kernel * columns.kernel
    channels = conv.group_vectors * conv.lanes

    def load_a() -> None:
        line(f"{counter} c, lane, tap, from;")
        begin = 0
        for number, depth in enumerate(conv.depths):
            size = depth.size(taps)
            last = number == len(conv.depths) - 1
            writer.open(
                ""
                if len(conv.depths) == 1
                else (
                    f"{'else' if number else ''}{'' if last else f' if (k < {begin + size})'}".strip()
                )
            )
            line(f"const {counter} at = k - {begin};")
            line(
                f"c = at / {taps * depth.lanes}, tap = at / {depth.lanes} % {taps}, lane = at %"
                f" {depth.lanes};"
            )
            line(f"from = {depth.start} + c * {depth.stride} + lane;")
            writer.close()
            begin += size
        line(
            f"const {counter} row = m / {columns.out} * {rows.stride} + tap / {columns.kernel} *"
            f" {rows.dilation} - {rows.begin};"
        )
        line(
            f"const {counter} column = m % {columns.out} * {columns.stride} + tap %"
            f" {columns.kernel} * {columns.dilation} - {columns.begin};"
        )
        writer.open(f"if (row >= 0 && row < {rows.size} && column >= 0 && column < {columns.size})")
        base = (
            f"group / {conv.groups} * {conv.image_stride} + group % {conv.groups} *"
            f" {conv.group_stride}"
        )
        line(
            f"value = {conv.source}[{base} + from + row * {conv.row_stride} + column *"
            f" {conv.pixel_stride}];"
        )
        writer.close()

    def load_b() -> None:
        width, rest = conv.vectors * conv.lanes, conv.group_vectors % conv.vectors * conv.lanes
        own = f"(n / {width} == {conv.panels - 1} ? {rest} : {width})" if rest else str(width)
        line(
            f"const {counter} begin = (group % {conv.groups} * {channels} + n / {width} * {width})"
            f" * {conv.depth};"
        )
        line(f"value = {conv.weights}[begin + k * {own} + n % {width}];")

    def store() -> None:
        line(
            f"const {counter} {IMAGE} = group / {conv.groups}, {PIXEL} = m, channel = group %"
            f" {conv.groups} * {channels} + n;"
        )
        line(
            f"const {counter} {CHANNELS} = channel / {conv.block}, {LANE} = channel % {conv.block};"
        )
        write_outputs(writer, conv.outputs)

    write_tiled(
        writer,
        rows.out * columns.out,
        channels,
        conv.depth,
        conv.images * conv.groups,
        load_a,
        load_b,
        store,
    )
