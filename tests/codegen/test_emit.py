"""Kernels as units of C."""

from __future__ import annotations

import re

from whence.codegen.emit import emit, pack, source_files
from whence.codegen.functions import KernelFunction
from whence.codegen.toolchain import SourceUnit
from whence.kernels.index import Var, of
from whence.kernels.ir import TASK, Buffer, Fn, Kernel, Load, Loop, Op, Role, Store
from whence.types import DType


def _kernel(
    name: str = "fuse_add", elements: int = 8, dtype: DType = DType.F32, fn: Fn = Fn.ADD
) -> Kernel:
    """out[i] = fn(in[i], in[i]), one work item for each element."""
    task = Var(TASK, elements)
    value = Load("in0", of(task), dtype)
    body = (Loop(task, (Store("out0", of(task), Op(fn, (value, value), dtype)),)),)
    return Kernel(
        name,
        (Buffer("in0", dtype, elements, Role.INPUT), Buffer("out0", dtype, elements, Role.OUTPUT)),
        elements,
        body,
    )


def test_equal_kernels_are_one_function_that_names_all_it_serves() -> None:
    emitted = emit(
        [_kernel("fuse_add"), _kernel("fuse_add_1"), _kernel(fn=Fn.MUL)], [["a"], ["b", "c"], ["d"]]
    )
    assert emitted.symbols[0] == emitted.symbols[1] != emitted.symbols[2]
    (unit,) = emitted.units
    assert [function.symbol for function in unit.functions] == [
        emitted.symbols[0],
        emitted.symbols[2],
    ]
    assert "/* a */\n/* b + c */\nvoid fuse_add_" in unit.source
    assert unit.source.count("void fuse_add_") == 2


def test_a_function_that_serves_many_names_the_first() -> None:
    (unit,) = emit([_kernel()] * 20, [[f"layer{number}"] for number in range(20)]).units
    assert unit.source.count("/* layer") == 8
    assert "/* ... and 12 more */" in unit.source


def test_a_symbol_tells_the_code_not_the_names() -> None:
    one, two = emit([_kernel()], [["a"]]), emit([_kernel()], [["b"]])
    assert one.symbols == two.symbols
    assert re.fullmatch(r"fuse_add_[0-9a-f]{16}", one.symbols[0])
    assert one.units[0].source != two.units[0].source
    other = emit([_kernel(dtype=DType.F64)], [["a"]])
    assert other.symbols[0][-16:] != one.symbols[0][-16:]


def test_what_c_has_no_word_for_is_refused_and_the_rest_goes_on() -> None:
    emitted = emit(
        [_kernel(), _kernel(dtype=DType.STRING), _kernel(fn=Fn.MUL)], [["a"], ["b"], ["c"]]
    )
    assert emitted.symbols[1] == ""
    assert list(emitted.refused) == [1]
    assert "string" in emitted.refused[1]
    assert len(emitted.units[0].functions) == 2


def test_nothing_is_no_unit() -> None:
    assert emit([], []).units == ()
    assert emit([_kernel(dtype=DType.STRING)], [["a"]]).units == ()


def test_functions_are_packed_into_units_of_a_good_size() -> None:
    functions = [
        KernelFunction(f"f{number}", f"void f{number}(void) {{\n" + "\n" * 500 + "}\n")
        for number in range(7)
    ]
    units = pack([*functions, *functions])
    assert [len(unit.functions) for unit in units] == [2, 2, 2, 1]
    assert [unit.name for unit in units] == ["kernels0", "kernels1", "kernels2", "kernels3"]
    assert sum(unit.source.count("void f") for unit in units) == 7
    assert len(pack([KernelFunction("f", "\n" * 5000)])) == 1


def test_the_files_of_units() -> None:
    units = [*emit([_kernel()], [["a"]]).units, SourceUnit("other", "int x;\n", (("o.h", ""),))]
    assert sorted(source_files(units)) == ["kernels0.c", "o.h", "other.c", "whence_kernels.h"]
