"""Functions are compiled once, whichever models and units they come in."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.codegen.test_toolchain import Counting
from whence.codegen.cache import Cache
from whence.codegen.functions import KernelFunction, batches
from whence.codegen.toolchain import SourceUnit


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def function(number: int, lines: int = 0, comment: str = "") -> KernelFunction:
    symbol = f"number_{number}"
    text = f"int {symbol}(void) {{\n{chr(10) * lines}return {number}; }}\n"
    return KernelFunction(symbol, (f"/* {comment} */\n" if comment else "") + text)


def unit(*functions: KernelFunction) -> SourceUnit:
    return SourceUnit("", "", opening="/* all */\n").with_functions("kernels", functions)


def numbers(path: Path, wanted: Sequence[int]) -> list[int]:
    library = ctypes.CDLL(str(path))
    return [library[f"number_{number}"]() for number in wanted]


def test_a_second_model_compiles_what_the_first_did_not_have(cache: Cache) -> None:
    toolchain = Counting(cache)
    toolchain.build_library([unit(function(1), function(2))])
    assert toolchain.compiled == 1
    path = toolchain.build_library([unit(function(3)), unit(function(2))])
    assert (toolchain.compiled, toolchain.linked) == (2, 2)
    assert numbers(path, (2, 3)) == [2, 3]
    assert toolchain.cache.entries()


def test_whom_a_function_is_for_makes_no_difference(cache: Cache) -> None:
    toolchain = Counting(cache)
    first = toolchain.build_library([unit(function(1, comment="layer a"), function(2))])
    again = toolchain.build_library([unit(function(1, comment="layer b"), function(2))])
    assert first == again
    assert (toolchain.compiled, toolchain.linked) == (1, 1)


def test_an_object_is_not_linked_for_one_function_if_another_calls_what_is_not_there(
    cache: Cache,
) -> None:
    toolchain = Counting(cache)
    shared = function(9)
    text = "int number_9(void);\nint number_1(void) { return number_9() - 8; }\n"
    caller = KernelFunction("number_1", text, calls=(shared,))
    toolchain.build_library([unit(shared)])
    both = toolchain.build_library([unit(shared, caller, function(2))])
    assert numbers(both, (1, 2, 9)) == [1, 2, 9]
    assert toolchain.compiled == 2
    path = toolchain.build_library([unit(function(2), function(3))])
    assert numbers(path, (2, 3)) == [2, 3]


def test_objects_that_have_a_function_in_common_are_not_linked_together(cache: Cache) -> None:
    toolchain = Counting(cache)
    toolchain.build_library([unit(function(1), function(2))])
    # Another process compiled 2 with 3 before the first was done.
    known = toolchain._function_objects(unit())
    both = unit(function(2), function(3))
    objects = Counting(Cache(cache.folder.parent / "other"))
    key = objects._object_key(both)
    objects.build_library([both])
    found = objects.cache.get(key)
    assert found is not None
    cache.put(key, found.read_bytes())
    known.note(key, both.functions)
    path = toolchain.build_library([unit(function(1), function(3))])
    assert numbers(path, (1, 3)) == [1, 3]
    assert toolchain.compiled == 2


def test_a_record_or_an_object_that_is_gone_is_made_again(cache: Cache) -> None:
    toolchain = Counting(cache)
    first = toolchain.build_library([unit(function(1), function(2))])
    known = toolchain._function_objects(unit())
    for damaged in (b"{}", b'["x"]', b"nothing", b'["0", ["number_1"]]'):
        for entry in cache.entries():
            if entry.key == known.key(function(1)) or entry.path == first:
                entry.path.unlink()
        cache.put(known.key(function(1)), damaged)
        first = toolchain.build_library([unit(function(1), function(2))])
        assert numbers(first, (1, 2)) == [1, 2]


def test_work_is_divided_evenly_and_starts_few_compilers() -> None:
    small = [function(number) for number in range(20)]
    assert [len(batch) for batch in batches(small, 8)] == [20]
    large = [function(number, lines) for number, lines in enumerate((900, 500, 400, 300, 300))]
    found = batches(large, 2)
    lengths = [sum(each.text.count("\n") for each in batch) for batch in found]
    assert len(found) == 4
    assert max(lengths) < 910
    assert sorted(each.symbol for batch in found for each in batch) == sorted(
        each.symbol for each in large
    )
    assert batches([], 4) == []
