"""Turned squares in C."""

from __future__ import annotations

from whence.codegen.c_text import c_index
from whence.codegen.render_c import CWriter
from whence.kernels.index import of
from whence.kernels.ir import Micro
from whence.kernels.loops.transpose import SIDE, SquareTranspose


def write_transpose(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, SquareTranspose)
    line, stride = writer.line, micro.index.coefficient(micro.across)
    base = micro.index - of(micro.along) - of(micro.across) * stride
    vector = f"w_f32x{SIDE}"
    line(f"float {micro.name}[{SIDE}][{SIDE}];")
    writer.open("")
    line(f"const float *restrict from = {micro.buffer} + {c_index(base, writer.expression)};")
    line(f"{vector} turn[{SIDE}];")
    line("#pragma clang loop unroll(full)")
    line(f"for (int i = 0; i < {SIDE}; i++) turn[i] = *(const {vector} *)(from + i * {stride}ll);")
    line(f"w_transpose_f32x{SIDE}(turn);")
    line("#pragma clang loop unroll(full)")
    line(f"for (int i = 0; i < {SIDE}; i++) *({vector} *){micro.name}[i] = turn[i];")
    writer.close()
