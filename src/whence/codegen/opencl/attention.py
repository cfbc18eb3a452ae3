"""Attention in OpenCL C: a group of work items for each query, whose scores lie in local memory."""

from __future__ import annotations

from whence.codegen.c_text import c_index, c_literal, converted
from whence.codegen.opencl.render_cl import ClWriter, Geometry
from whence.kernels.attention_program import BATCH, COLUMN, HEAD, KEY, ROW, SCORE, Attention
from whence.kernels.ir import Fn, Micro
from whence.types import DType

_ITEMS = 32


def write_attention(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, Attention)
    it, line, counter = micro, writer.line, writer.counter
    writer.geometry = Geometry((_ITEMS, it.rows, it.batch * it.heads), (_ITEMS, 1, 1))
    writer.local("score", DType.F32, it.keys)
    writer.local("query", DType.F32, it.size)
    line(
        f"const {counter} {ROW} = get_group_id(1), {BATCH} = get_group_id(2) / {it.heads}, {HEAD} ="
        f" get_group_id(2) % {it.heads};"
    )
    line("const int item = get_local_id(0);")
    line(
        f"__global const float *q = {it.q.buffer} + {c_index(it.q.base)} + {ROW} *"
        f" {it.q.row_stride};"
    )
    line(f"__global const float *k = {it.k.buffer} + {c_index(it.k.base)};")
    line(f"__global const float *v = {it.v.buffer} + {c_index(it.v.base)};")
    line(
        f"for (int d = item; d < {it.size}; d += {_ITEMS}) query[d] = q[d * {it.q.column_stride}];"
    )
    line("barrier(CLK_LOCAL_MEM_FENCE);")
    if it.reach is None:
        line(f"const {counter} used = {it.keys};")
    else:
        line(
            f"const {counter} used = clamp({ROW} + {1 + it.reach}, ({counter})0,"
            f" ({counter}){it.keys});"
        )
    # The lowest number, not minus infinity: a query that sees no key at all then gets zeros.
    line("float top = -0x1.fffffep+127f, total = 0.0f;")
    writer.open(f"for ({counter} {KEY} = item; {KEY} < used; {KEY} += {_ITEMS})")
    line("float acc = 0.0f;")
    line(
        f"for (int d = 0; d < {it.size}; d++) acc += query[d] * k[{KEY} * {it.k.row_stride} + d *"
        f" {it.k.column_stride}];"
    )
    if it.score != SCORE:
        line(f"acc = {writer.expression(it.score)};")
    line(f"score[{KEY}] = acc;")
    line("top = acc > top ? acc : top;")
    writer.close()
    writer.fold("top", Fn.MAX, DType.F32, _ITEMS, "item")
    writer.open(f"for ({counter} {KEY} = item; {KEY} < used; {KEY} += {_ITEMS})")
    line(f"const float weight = w_exp_downf((score[{KEY}] - top) * {c_literal(it.scale)});")
    line(f"score[{KEY}] = weight, total += weight;")
    writer.close()
    writer.fold("total", Fn.ADD, DType.F32, _ITEMS, "item")
    line("const float inverse = total == 0.0f ? 1.0f : 1.0f / total;")
    writer.open(f"for ({counter} {COLUMN} = item; {COLUMN} < {it.width}; {COLUMN} += {_ITEMS})")
    line("float acc = 0.0f;")
    line(
        f"for ({counter} {KEY} = 0; {KEY} < used; {KEY}++) acc += score[{KEY}] * v[{KEY} *"
        f" {it.v.row_stride} + {COLUMN} * {it.v.column_stride}];"
    )
    line("acc *= inverse;")
    value = converted(writer.expression(it.value), it.value.dtype, writer.dtype_of(it.out))
    line(f"{it.out}[{c_index(it.out_index)}] = {value};")
    writer.close()
