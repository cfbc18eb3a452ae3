"""Micro-kernels as programs: what the builder makes, and how it reads in C."""

from __future__ import annotations

import pytest

from whence.codegen.c_text import c_condition, c_count
from whence.codegen.render_c import render_kernel
from whence.kernels.builder import Builder, zeros
from whence.kernels.index import Var, of
from whence.kernels.ir import (
    FULLY,
    Bits,
    Buffer,
    Count,
    Counter,
    For,
    If,
    Kernel,
    LookUp,
    Number,
    Primitive,
    Role,
    Splat,
    Stmt,
    chosen,
    count,
    least,
)
from whence.types import DType

i, j = Counter("i"), Counter("j")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (i * 8 + j, "i * 8 + j"),
        ((i + j) * 8, "(i + j) * 8"),
        (i - (j - 1), "i - (j - 1)"),
        (i + (j - 1), "i + j - 1"),
        (i // 3 % 4, "i / 3 % 4"),
        (i * (j // 4), "i * (j / 4)"),
        (10 - i, "10 - i"),
        (least(i, 4), "(i < 4 ? i : 4)"),
        (chosen(i < j, i, 0), "(i < j ? i : 0)"),
        (count(of(Var("i", 9)) * 4 + 1) * j, "(4 * i + 1) * j"),
    ],
)
def test_counts_are_written_with_the_brackets_they_need(made: Count, text: str) -> None:
    assert c_count(made) == text


def test_counts_of_numbers_are_numbers() -> None:
    assert count(3) * 4 + 1 == Number(13)
    assert i * 1 + 0 == i
    assert i * 0 == Number(0)
    assert least(3, 5) == Number(3)
    assert (count(17) // 4, count(17) % 4) == (Number(4), Number(1))


def test_conditions_are_written_with_the_brackets_they_need() -> None:
    assert c_condition((i < 3) & ((j >= 1) | i.equals(j))) == "i < 3 && (1 <= j || i == j)"


def _row_sums(build: Builder, task: Count) -> None:
    """Eight floats of a row at a time."""
    row = build.pointer("row", build.buffer("in0"), task * 64)
    total = build.variable("total", zeros(8))
    with build.loop("k", 64, step=8, unroll=FULLY) as k:
        build.prefetch(row, k + 64)
        build.accumulate(total, row.vector(k, 8))
    with build.when(task < 3):
        build.assign(build.pointer("to", build.buffer("out0"), task * 8).vector(0, 8), total)
    with build.otherwise():
        build.assign(build.buffer("out0").vector(task * 8, 8), -total)


def _kernel(body: tuple[Stmt, ...]) -> Kernel:
    params = (
        Buffer("in0", DType.F32, 256, Role.INPUT),
        Buffer("out0", DType.F32, 32, Role.OUTPUT),
    )
    return Kernel("sums", params, 4, body)


def test_a_program_reads_like_the_algorithm() -> None:
    build = Builder()
    with build.tasks(4) as task:
        _row_sums(build, task)
    text = render_kernel(_kernel(build.finish()), "sums")
    assert text.splitlines()[4:-1] == [
        "  for (int64_t task = begin; task < end; task++) {",
        "    const float *restrict row = in0 + task * 64;",
        "    w_f32x8 total = (w_f32x8)(0.0f);",
        "    #pragma clang loop unroll(full)",
        "    for (int64_t k = 0; k < 64; k += 8) {",
        "      __builtin_prefetch(row + k + 64, 0, 2);",
        "      total = (total + *(const w_f32x8 *)(row + k));",
        "    }",
        "    if (task < 3) {",
        "      const float *restrict to = out0 + task * 8;",
        "      *(w_f32x8 *)(to + 0) = total;",
        "    }",
        "    else {",
        "      *(w_f32x8 *)(out0 + task * 8) = (-total);",
        "    }",
        "  }",
    ]


def test_loops_over_registers_are_unrolled_from_the_outermost() -> None:
    build = Builder()
    tile = build.array("sum", 3, 2, lanes=4)
    with build.unrolled(("i", 3), ("j", 2)) as (row, column):
        build.assign(tile[row, column], zeros(4))
    outer = build.finish()[1]
    assert isinstance(outer, For)
    (inner,) = outer.body
    assert isinstance(inner, For)
    assert (outer.unroll, inner.unroll) == (FULLY, 0)
    assert (outer.end, inner.end) == (Number(3), Number(2))


def test_arrays_as_long_as_a_cache_line_begin_at_one() -> None:
    """A stack begins anywhere: vectors would straddle two lines in some processes, not in others."""
    build = Builder()
    build.array("tile", 3, 2, lanes=16)
    build.array("line", 64, dtype=DType.U8)
    build.array("few", 63, dtype=DType.U8)
    text = render_kernel(_kernel(build.finish()), "sums")
    assert "w_f32x16 tile[3][2] __attribute__((aligned(64)));" in text
    assert "uint8_t line[64] __attribute__((aligned(64)));" in text
    assert "uint8_t few[63];" in text


def test_an_otherwise_belongs_to_the_when_before_it() -> None:
    build = Builder()
    with build.when(i < 1):
        build.count("a", 1)
    with build.otherwise():
        build.count("a", 2)
    (branch,) = build.finish()
    assert isinstance(branch, If)
    assert len(branch.then) == len(branch.otherwise) == 1


def test_a_loop_inside_another_of_the_same_name_hides_nothing() -> None:
    build = Builder()
    with build.loop("i", 4) as outer, build.loop("i", 2) as inner:
        build.count("at", outer * 2 + inner)
    with build.loop("i", 3) as later:
        build.count("at", later)
    assert (outer, inner, later) == (Counter("i"), Counter("i_2"), Counter("i"))


def test_the_variables_of_expressions_are_bound_under_their_own_names() -> None:
    build = Builder()
    assert build.bind("n", 0) == Counter("n")
    assert build.count("n", 1) == Counter("n_2")
    with pytest.raises(AssertionError):
        build.bind("n", 2)


def test_bytes_are_words_and_looked_up() -> None:
    build = Builder()
    x = build.buffer("in0", DType.U8)
    four = Bits(x.vector(4, 4), DType.I32)
    eight = Bits(x.vector(0, 32), DType.I32)
    assert (four.lanes, eight.lanes) == (1, 8)
    table = build.table("table", "in1")
    build.let(
        "sums", Primitive("dot_x8", (zeros(8, DType.I32), Splat(four, 8), eight), DType.I32, 8)
    )
    build.assign(x.vector(0, 16), LookUp(table, x.vector(16, 16), DType.U8))
    above = build.choose_pointer("above", i < 3, x, i * 8, x)
    build.let("first", above[0])
    params = (Buffer("in0", DType.U8, 64, Role.OUTPUT), Buffer("in1", DType.U8, 256, Role.CONST))
    text = render_kernel(Kernel("bytes", params, 1, build.finish()), "bytes")
    assert text.splitlines()[4:-1] == [
        "  const w_table table = w_table_of(in1);",
        "  const w_i32x8 sums = w_dot_x8((w_i32x8)(0), (w_i32x8)(((w_i32x1)(*(const w_u8x4 *)(in0 + 4)))[0]),"
        " (w_i32x8)(*(const w_u8x32 *)(in0 + 0)));",
        "  *(w_u8x16 *)(in0 + 0) = (w_u8x16)w_look_up_x16(table, *(const w_u8x16 *)(in0 + 16));",
        "  const uint8_t *above = i < 3 ? in0 + i * 8 : in0;",
        "  const uint8_t first = above[0];",
    ]
