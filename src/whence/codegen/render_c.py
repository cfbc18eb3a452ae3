"""Kernel programs as C text, meant to be read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from whence.codegen.c_expressions import ExpressionWriter
from whence.codegen.c_text import (
    OUTSIDE,
    c_condition,
    c_index,
    c_literal,
    c_literals,
    c_type,
    value_type,
    vector_type,
    written_call,
)
from whence.errors import UnsupportedError
from whence.extent import C_PREFIX, surely_equal
from whence.kernels import ir
from whence.kernels.index import Var
from whence.machine import CACHE_LINE

HEADER = 64
"""Bytes before scratch memory at which the pointer to the workers of a kernel stands; see
whence_runtime.h.
"""

GANG = f"(*(w_gang **)((char *)scratch - {HEADER}))"
"""The workers that do a kernel together."""

_TILES, _ROWS, _ROW_BYTES = 8, 16, 64
# All matrix tiles as large as they come: palette 1, then bytes of a row and rows of each.
_TILE_SHAPES = ", ".join(
    map(str, [1, *[0] * 15, *[_ROW_BYTES, 0] * _TILES, *[0] * 16, *[_ROWS] * _TILES, *[0] * 8])
)


class CWriter(ExpressionWriter):
    """Statements as lines of C."""

    counter = "int64_t"
    """The type of a count."""
    constant = "  static const"
    """How a table begins."""

    # ---- statements ----

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Loop():
                self._loop(stmt)
            case ir.Let(name, value, is_variable):
                constant = "" if is_variable else "const "
                self.line(f"{constant}{self.type_of(value)} {name} = {self.expression(value)};")
            case ir.Accumulator(name, start, None):
                self.line(f"{value_type(start.dtype)} {name} = {c_literal(start)};")
            case ir.Accumulator(name, start, lanes):
                assert lanes is not None
                self.line(f"{value_type(start.dtype)} {name}[{lanes.extent}];")
                self.line(
                    f"for (int64_t lane = 0; lane < {lanes.extent}; lane++) {name}[lane] ="
                    f" {c_literal(start)};"
                )
            case ir.Accumulate(name, fn, value, lane):
                target = name if lane is None else f"{name}[{lane.name}]"
                self.line(
                    f"{target} = {written_call(fn, value.dtype, (target, self.expression(value)))};"
                )
            case ir.Store(buffer, index, value) if value.lanes > 1:
                text = self.expression(value)
                self.vector_write(f"{buffer} + {c_index(index)}", value, text)
            case ir.Store(buffer, index, value):
                place = c_index(index, self.expression)
                self.line(f"{buffer}[{place}] = {self.stored(buffer, value)};")
            case ir.Micro():
                self.statements(stmt.program(self.kernel))
            case ir.Grid():
                self.grid(stmt)
            case ir.For():
                self._for(stmt)
            case ir.While(condition, body):
                self.open(f"while ({c_condition(condition, self.expression)})")
                self.statements(body)
                self.close()
            case ir.If(condition, then, otherwise):
                self.open(f"if ({c_condition(condition, self.expression)})")
                self.statements(then)
                self.close()
                if otherwise:
                    self.open("else")
                    self.statements(otherwise)
                    self.close()
            case ir.Scope(body):
                self.open("")
                self.statements(body)
                self.close()
            case ir.LetCount(name, value, is_variable):
                constant = "" if is_variable else "const "
                self.line(f"{constant}{self.counter} {name} = {self.count(value)};")
            case ir.SetCount(name, value):
                self.line(f"{name} = {self.count(value)};")
            case ir.Assign(place, value):
                self.assign(place, self.expression(value))
            case ir.Array():
                self.array(stmt)
            case ir.ConstantArray():
                self.constants_array(stmt)
            case ir.LetPointer():
                self.pointer(stmt)
            case ir.ChoosePointer():
                self.choose_pointer(stmt)
            case ir.LetTable(name, buffer):
                self.line(f"const w_table {name} = w_table_of({buffer});")
            case ir.Advance(pointer, by):
                self.line(f"{pointer} += {self.count(by)};")
            case ir.Swap(one, other):
                spare = self.fresh("swap")
                self.line(f"{self.swap_type(one)} {spare} = {one};")
                self.line(f"{one} = {other}, {other} = {spare};")
            case ir.Prefetch(pointer, offset, nearest):
                near = "" if nearest else ", 0, 2"
                self.line(f"__builtin_prefetch({pointer} + {self.count(offset)}{near});")
            case ir.Fill():
                self._fill(stmt)
            case ir.Transpose(array, dtype, lanes):
                self.line(f"w_transpose_{vector_type(dtype, lanes)[2:]}({array});")
            case ir.Barrier():
                self.barrier(stmt)
            case _:
                self.matrix_tiles(stmt)

    def _loop(self, loop: ir.Loop) -> None:
        var = loop.var
        if loop.kind is ir.LoopKind.REDUCE:
            # Sums may be reordered here, which is what lets the compiler keep several of them at
            # once.
            self.open("")
            self.line("#pragma clang fp reassociate(on)")
        if loop.kind is ir.LoopKind.VECTOR:
            self.line("#pragma clang loop vectorize(assume_safety)")
        if var.name == ir.TASK:
            self._task_loop(loop)
        else:
            end = self.end_of(loop)
            self.open(f"for (int64_t {var.name} = 0; {var.name} < {end}; {var.name}++)")
            self.statements(loop.body)
            self.close()
        if loop.kind is ir.LoopKind.REDUCE:
            self.close()

    def end_of(self, loop: ir.Loop) -> int | str:
        return loop.var.extent if loop.end is None else self.count(loop.end)

    def _task_loop(self, loop: ir.Loop) -> None:
        """The work items of this call that are the loop's."""
        first, extent = loop.first, loop.var.extent
        if surely_equal(first, 0) and surely_equal(extent, self.kernel.tasks):
            begin, condition = "begin", f"{ir.TASK} < end"
        else:
            begin = f"begin - {first} > 0 ? begin - {first} : 0"
            condition = f"{ir.TASK} < end - {first} && {ir.TASK} < {extent}"
        if loop.digits:
            start, rest = self.fresh("start"), self.fresh("rest")
            self.open("")
            self.line(f"const int64_t {start} = {begin};")
            # Where there is nothing to do, an extent may be zero.
            self.open(f"if ({start} < {extent})")
            self.line(f"int64_t {rest} = {start};")
            for digit in reversed(loop.digits[1:]):
                self.line(f"int64_t {digit.name} = {rest} % {digit.extent};")
                self.line(f"{rest} /= {digit.extent};")
            self.line(f"int64_t {loop.digits[0].name} = {rest};")
            begin = start
        self.open(f"for (int64_t {ir.TASK} = {begin}; {condition}; {ir.TASK}++)")
        self.statements(loop.body)
        self._count_on(loop.digits)
        self.close()
        if loop.digits:
            self.close()
            self.close()

    def _count_on(self, digits: Sequence[Var]) -> None:
        """The next position in nested loops: the innermost variable one further, and where it is at
        its end, those around it.
        """
        for digit in reversed(digits[1:]):
            self.open(f"if (++{digit.name} == {digit.extent})")
            self.line(f"{digit.name} = 0;")
        for digit in digits[:1]:
            self.line(f"{digit.name}++;")
        for _ in digits[1:]:
            self.close()

    def loop_hints(self, loop: ir.For) -> None:
        """What the compiler is to do with a loop."""
        if loop.unroll:
            copies = {ir.FULLY: "unroll(full)", 1: "unroll(disable)"}
            how = copies.get(loop.unroll, f"unroll_count({loop.unroll})")
            self.line(f"#pragma clang loop {how}")
        if loop.vectorise:
            self.line("#pragma clang loop vectorize(assume_safety)")

    def _for(self, loop: ir.For) -> None:
        if loop.shared:
            self.shared_loop(loop)
            return
        self.loop_hints(loop)
        begin, end = self.count(loop.begin), self.count(loop.end)
        step = "++" if loop.step == ir.Number(1) else f" += {self.count(loop.step)}"
        name = loop.counter
        self.open(f"for ({self.counter} {name} = {begin}; {name} < {end}; {name}{step})")
        self.statements(loop.body)
        self.close()

    def shared_loop(self, loop: ir.For) -> None:
        name, end, take = loop.counter, self.count(loop.end), f"w_take_part({GANG})"
        self.open(f"for (int64_t {name} = {take}; {name} < {end}; {name} = {take})")
        self.statements(loop.body)
        self.line(f"w_part_done({GANG});")
        self.close()
        self.line(f"w_await_parts({GANG}, {end});")

    def assign(self, place: ir.Place, text: str) -> None:
        match place:
            case ir.At(pointer, offset, _, lanes) if lanes > 1:
                self.vector_write(f"{pointer} + {self.count(offset)}", place, text)
            case _:
                self.line(f"{self.expression(place)} = {text};")

    def vector_write(self, address: str, what: ir.Expr, text: str) -> None:
        self.line(f"*({self.type_of(what)} *)({address}) = {text};")

    def array(self, array: ir.Array) -> None:
        kind = (
            c_type(array.dtype) if array.lanes == 1 else self.vector_type(array.dtype, array.lanes)
        )
        extents = "".join(f"[{extent}]" for extent in array.shape)
        self.line(f"{kind} {array.name}{extents}{self.alignment(array)};")

    def alignment(self, array: ir.Array) -> str:
        """What is as long as a cache line begins at one. A stack begins anywhere, and vectors in it
        would straddle two lines in one process and not in another.
        """
        size = math.prod(array.shape) * array.lanes * array.dtype.bits // 8
        return f" __attribute__((aligned({CACHE_LINE})))" if size >= CACHE_LINE else ""

    def constants_array(self, table: ir.ConstantArray) -> None:
        kind = f"{c_type(table.dtype)} {table.name}"
        numbers = c_literals(table.values, table.dtype)
        self.line(f"static const {kind}[{math.prod(table.shape)}] = {{{numbers}}};")

    def pointer(self, pointer: ir.LetPointer) -> None:
        kind = f"{'' if pointer.is_written else 'const '}{c_type(pointer.dtype)} *"
        offset = self.count(pointer.offset)
        base = {ir.SCRATCH: f"({kind})scratch", ir.SHARED: f"({kind}){GANG}->shared"}.get(
            pointer.base, pointer.base
        )
        alone = "restrict " if pointer.is_alone else ""
        self.line(f"{kind}{alone}{pointer.name} = {base}{f' + {offset}' if offset != '0' else ''};")

    def choose_pointer(self, choice: ir.ChoosePointer, space: str = "") -> None:
        sides = f"{choice.base} + {self.count(choice.offset)} : {choice.otherwise}"
        condition = c_condition(choice.condition, self.expression)
        kind = f"{space}const {c_type(choice.dtype)} *"
        self.line(f"{kind}{choice.name} = {condition} ? {sides};")

    def _fill(self, fill: ir.Fill) -> None:
        address = f"{fill.pointer} + {self.count(fill.offset)}"
        size = f"{self.count(fill.elements)} * sizeof *{fill.pointer}"
        self.line(f"__builtin_memset({address}, {self.expression(fill.byte)}, {size});")

    def swap_type(self, pointer: str) -> str:
        return "__auto_type"

    def grid(self, grid: ir.Grid) -> None:
        raise UnsupportedError("C has no work items in groups")

    def matrix_tiles(self, stmt: ir.MatrixTileStmt) -> None:
        """Statements of matrix units (Intel's AMX)."""
        match stmt:
            case ir.TileConfigure():
                self.line(f"static const _Alignas(64) uint8_t shapes[64] = {{{_TILE_SHAPES}}};")
                self.line("__builtin_ia32_tile_loadconfig(shapes);")
            case ir.TileRelease():
                self.line("__builtin_ia32_tilerelease();")
            case ir.TileZero(register):
                self.line(f"__builtin_ia32_tilezero({register});")
            case ir.TileLoad(register, pointer, offset, row) | ir.TileStore(
                register, pointer, offset, row
            ):
                word = "tileloadd64" if isinstance(stmt, ir.TileLoad) else "tilestored64"
                place = f"{pointer} + {self.count(offset)}"
                self.line(f"__builtin_ia32_{word}({register}, {place}, {row});")
            case ir.TileMultiply(sums, left, right):
                self.line(f"__builtin_ia32_tdpbf16ps({sums}, {left}, {right});")

    def barrier(self, barrier: ir.Barrier) -> None:
        if barrier.scope is not ir.BarrierScope.WORKERS:
            raise UnsupportedError(
                f"work items of a {barrier.scope.value} do not wait for each other"
            )
        self.line(f"{GANG}->meet({GANG});")

    def tables(self) -> list[str]:
        """The definitions of the tables that expressions written so far read."""
        return [
            f"{self.constant} {c_type(dtype)} {name}[] ="
            f" {{{c_literals(np.frombuffer(data, dtype.numpy).tolist(), dtype)}}};"
            for (data, dtype), name in self._tables.items()
        ]


_PARAMETERS = "void *const *restrict buf, int64_t begin, int64_t end, void *restrict scratch"


def render_kernel(kernel: ir.Kernel, name: str, *, sizes_are_given: bool = False) -> str:
    """One C function. Sizes of the kernel's dimensions are the last of its buffers; with
    `sizes_are_given`, an argument of their own.
    """
    writer = CWriter(kernel)
    writer.open(_shared(name) if sizes_are_given else f"void {name}({_PARAMETERS})")
    if not kernel.scratch_bytes:
        writer.line("(void)scratch;")
    writer.statements(kernel.body)
    checks = any(f"&{OUTSIDE})" in line for line in writer.lines[1:])
    if checks:
        # A variable, so that loops stay free of stores: nobody but the runtime asks, and only once.
        writer.line(f"if ({OUTSIDE}) w_note_fault((char *)scratch - {HEADER});")
    # A constant of one number is written as that number, and its parameter then read by nobody.
    words = set(re.findall(r"\w+", "\n".join(writer.lines[1:])))
    declared = []
    for position, param in enumerate(kernel.params):
        if param.name in words:
            qualifier = "" if param.role is ir.Role.OUTPUT else "const "
            declared.append(
                f"  {qualifier}{c_type(param.dtype)} *restrict {param.name} = buf[{position}];"
            )
    if not sizes_are_given and any(C_PREFIX + name in words for name in kernel.dimensions):
        declared.append(f"  const int64_t *restrict dims = buf[{len(kernel.params)}];")
    declared += [
        f"  const int64_t {C_PREFIX}{name} = dims[{position}];"
        for position, name in enumerate(kernel.dimensions)
        if C_PREFIX + name in words
    ]
    noted = [f"  int64_t {OUTSIDE} = 0;"] if checks else []
    writer.lines[1:1] = [*declared, *writer.tables(), *noted]
    writer.close()
    return "\n".join(writer.lines) + "\n"


def render_call(name: str, shared: str, sizes: Sequence[int]) -> str:
    """A kernel that is a call of a shared function with sizes of its own."""
    values = ", ".join(map(str, sizes))
    return (
        f"{_shared(shared)};\n"
        f"void {name}({_PARAMETERS}) {{\n"
        f"  static const int64_t sizes[] = {{{values}}};\n"
        f"  {shared}(buf, begin, end, scratch, sizes);\n"
        "}\n"
    )


def _shared(name: str) -> str:
    # No library offers it to others, and no compiler makes a copy of it for each kernel.
    attributes = '__attribute__((noinline, visibility("hidden")))'
    return f"{attributes} void {name}({_PARAMETERS}, const int64_t *restrict dims)"
