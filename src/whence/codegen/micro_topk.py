"""TopK in C."""

from __future__ import annotations

from whence.codegen.c_text import c_index, c_type, converted
from whence.codegen.render_c import CWriter
from whence.kernels.ir import Micro
from whence.kernels.topk import RANK, STEP, TopK


def write_topk(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, TopK)
    writer.open("for (int64_t task = begin; task < end; task++)")
    write_row(writer, micro)
    writer.close()


def write_row(writer: CWriter, it: TopK) -> None:
    """The row number `task`."""
    line, kind = writer.line, c_type(it.dtype)
    line(f"{kind} best[{it.k}];")
    line(f"int32_t where[{it.k}];")
    line("int64_t count = 0;")
    writer.open(f"for (int64_t {STEP} = 0; {STEP} < {it.length}; {STEP}++)")
    line(f"const {kind} x = {writer.expression(it.value)};")
    line(f"if (count == {it.k} && !({_beats(it, 'x', f'best[{it.k - 1}]')})) continue;")
    line(f"int64_t at = count < {it.k} ? count++ : {it.k - 1};")
    # Of equals the earlier stays in front.
    line(
        f"for (; at > 0 && ({_beats(it, 'x', 'best[at - 1]')}); at--) best[at] = best[at - 1],"
        " where[at] = where[at - 1];"
    )
    line(f"best[at] = x, where[at] = (int32_t){STEP};")
    writer.close()
    writer.open(f"for (int64_t {RANK} = 0; {RANK} < {it.k}; {RANK}++)")
    for target, value in (
        (
            it.values,
            converted(f"best[{RANK}]", it.dtype, writer.dtype_of(it.values)) if it.values else "",
        ),
        (it.indices, f"where[{RANK}]"),
    ):
        if target is not None:
            line(f"{target}[{c_index(it.place)}] = {value};")
    writer.close()


def _beats(it: TopK, x: str, y: str) -> str:
    """Does `x` stand before `y`? A NaN is larger than every number."""
    if not it.dtype.is_float:
        return f"{x} > {y}" if it.largest else f"{x} < {y}"
    return (
        f"{x} > {y} || ({x} != {x} && {y} == {y})"
        if it.largest
        else f"{x} < {y} || ({y} != {y} && {x} == {x})"
    )
