"""Turned squares in OpenCL C: every work item fills its own."""

from __future__ import annotations

from whence.codegen.c_text import c_index
from whence.codegen.opencl.render_cl import ClWriter
from whence.kernels.index import of
from whence.kernels.ir import Micro
from whence.kernels.loops.transpose import SIDE, SquareTranspose


def write_transpose(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, SquareTranspose)
    stride = micro.index.coefficient(micro.across)
    base = micro.index - of(micro.along) - of(micro.across) * stride
    writer.line(f"float {micro.name}[{SIDE}][{SIDE}];")
    writer.open("")
    writer.line(
        f"__global const float *from = {micro.buffer} + {c_index(base, writer.expression)};"
    )
    writer.line(
        f"for (int i = 0; i < {SIDE}; i++) for (int j = 0; j < {SIDE}; j++) {micro.name}[j][i] ="
        f" from[i * {stride}l + j];"
    )
    writer.close()
