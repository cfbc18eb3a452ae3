"""Kernels are compiled while others are still being written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.codegen.test_emit import _kernel
from tests.codegen.test_functions import function, numbers, unit
from tests.codegen.test_toolchain import Counting
from whence.codegen import compile_ahead
from whence.codegen.cache import Cache
from whence.codegen.compile_ahead import CompileAhead
from whence.codegen.emit import emit
from whence.codegen.functions import KernelFunction
from whence.errors import CompileError
from whence.kernels.ir import Fn


@pytest.fixture
def toolchain(tmp_path: Path) -> Counting:
    return Counting(Cache(tmp_path / "kernels"))


def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_ahead, "_LINES", 10)


def test_the_library_finds_everything_compiled(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short(monkeypatch)
    functions = [function(number, lines=6) for number in range(5)]
    ahead, told = CompileAhead(toolchain, unit()), []
    for each in functions:
        ahead.add(each)
    ahead.finish(lambda *row: told.append(row))
    # Two and two, and what was left.
    assert toolchain.compiled == 3
    assert [(done, of) for _, done, of in told] == [(1, 3), (2, 3), (3, 3)]
    path = toolchain.build_library([unit(*functions)])
    assert (toolchain.compiled, toolchain.linked) == (3, 1)
    assert numbers(path, range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("whole", "starts"), [(1, 2), (2, 4), (3, 4)])
def test_what_is_left_goes_to_the_compilers_that_would_be_idle(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch, whole: int, starts: int
) -> None:
    monkeypatch.setattr(compile_ahead, "_LINES", 1000)
    monkeypatch.setattr(toolchain, "jobs", 2)
    ahead = CompileAhead(toolchain, unit())
    for number in range(whole):
        ahead.add(function(number, lines=1000))
    ahead.add(function(10, lines=400))
    ahead.add(function(11, lines=400))
    ahead.finish()
    assert toolchain.compiled == starts


def test_few_functions_are_left_to_the_library(toolchain: Counting) -> None:
    ahead = CompileAhead(toolchain, unit())
    ahead.add(function(1))
    ahead.finish()
    assert toolchain.compiled == 0


def test_what_was_compiled_before_is_not_compiled_again(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short(monkeypatch)
    functions = [function(number, lines=6) for number in range(2)]
    toolchain.build_library([unit(*functions)])
    ahead = CompileAhead(toolchain, unit())
    for each in functions:
        ahead.add(each)
    ahead.finish()
    assert toolchain.compiled == 1


def test_the_library_says_what_does_not_compile(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short(monkeypatch)
    wrong = KernelFunction("wrong", "int wrong(void) {\n" + "\n" * 12 + "return nothing; }\n")
    ahead = CompileAhead(toolchain, unit())
    ahead.add(wrong)
    ahead.finish()
    with pytest.raises(CompileError, match="nothing"):
        toolchain.build_library([unit(wrong)])


def test_functions_are_told_once_as_they_are_written() -> None:
    told: list[KernelFunction] = []
    kernels = [_kernel("a"), _kernel("a_1"), _kernel("b", fn=Fn.MUL)]
    emitted = emit(kernels, [["x"], ["y"], ["z"]], told.append)
    assert [each.symbol for each in told] == [emitted.symbols[0], emitted.symbols[2]]
    whole = {each.symbol: each for part in emitted.units for each in part.functions}
    assert all(each.code == whole[each.symbol].code for each in told)
    assert not any(re.match(r"/\*", each.text) for each in told)
