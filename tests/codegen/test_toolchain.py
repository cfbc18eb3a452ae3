from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from whence.codegen.cache import Cache
from whence.codegen.target import Target
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import CacheError, CompileError
from whence.runtime.native_library import runtime_unit


class Counting(Toolchain):
    """Remembers what the compiler was asked to do."""

    def __init__(self, cache: Cache, target: Target | None = None, jobs: int = 2) -> None:
        super().__init__(target, cache, jobs)
        self.compiled = self.linked = self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def _run(self, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        with self._lock:
            self.compiled += "-c" in arguments
            self.linked += "-shared" in arguments
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return super()._run(arguments, folder)
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


@pytest.fixture
def toolchain(cache: Cache) -> Counting:
    return Counting(cache)


def constant(number: int) -> SourceUnit:
    return SourceUnit(f"number {number}", f"int number_{number}(void) {{ return {number}; }}\n")


def test_functions_of_all_units_are_in_the_library(toolchain: Counting) -> None:
    library = ctypes.CDLL(str(toolchain.build_library([constant(1), constant(2), constant(3)])))
    assert [getattr(library, f"number_{number}")() for number in (1, 2, 3)] == [1, 2, 3]
    assert (toolchain.compiled, toolchain.linked) == (3, 1)
    assert toolchain.most_at_once <= 2


def test_nothing_is_built_twice(toolchain: Counting, cache: Cache) -> None:
    first = toolchain.build_library([constant(1), constant(2)])
    again = Counting(Cache(cache.folder))
    assert again.build_library([constant(1), constant(2)]) == first
    assert (again.compiled, again.linked) == (0, 0)


def test_only_a_changed_unit_is_compiled(toolchain: Counting) -> None:
    toolchain.build_library([constant(1), constant(2)])
    library = ctypes.CDLL(str(toolchain.build_library([constant(1), constant(7)])))
    assert (library.number_1(), library.number_7()) == (1, 7)
    assert (toolchain.compiled, toolchain.linked) == (3, 2)


def test_the_same_source_given_twice_is_one_unit(toolchain: Counting) -> None:
    library = ctypes.CDLL(str(toolchain.build_library([constant(1), constant(1)])))
    assert library.number_1() == 1
    assert toolchain.compiled == 1


def test_a_damaged_library_and_a_damaged_object_are_rebuilt(
    toolchain: Counting, cache: Cache
) -> None:
    toolchain.build_library([constant(1)])
    for entry in cache.entries():
        with entry.path.open("r+b") as file:
            file.truncate(entry.bytes // 2)
    assert ctypes.CDLL(str(toolchain.build_library([constant(1)]))).number_1() == 1
    assert (toolchain.compiled, toolchain.linked) == (2, 2)


def test_headers_are_found_and_are_part_of_what_an_object_is_known_by(toolchain: Counting) -> None:
    values = []
    for text in ("4", "5"):
        unit = SourceUnit(
            "user",
            '#include "value.h"\nint value(void) { return VALUE; }\n',
            (("value.h", f"#define VALUE {text}\n"),),
        )
        values.append(ctypes.CDLL(str(toolchain.build_library([unit]))).value())
    assert values == [4, 5]


def test_progress_counts_to_the_end(toolchain: Counting) -> None:
    toolchain.build_library([constant(1)])
    seen: list[tuple[str, int, int]] = []
    toolchain.build_library(
        [constant(1), constant(2), constant(3)], progress=lambda *step: seen.append(step)
    )
    assert [(done, total) for _, done, total in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[0][0] == "number 1"  # it was there already
    assert {name for name, _, _ in seen} == {"number 1", "number 2", "number 3"}


def test_nothing_but_entries_stays_in_the_cache(toolchain: Counting, cache: Cache) -> None:
    toolchain.build_library([constant(1), constant(2)])
    kept = {entry.path for entry in cache.entries()}
    assert len(kept) == 3
    others = [
        path
        for path in cache.folder.rglob("*")
        if path.is_file() and path not in kept and "zig" not in path.relative_to(cache.folder).parts
    ]
    assert others == []
    assert not list(cache.folder.glob("work-*"))


# ---- failures ----


def test_code_that_does_not_compile(toolchain: Counting, cache: Cache) -> None:
    unit = SourceUnit(
        "conv/../../1 'x'\n",
        '#include "own.h"\nint f(void) { return missing; }\n',
        (("own.h", "\n"),),
    )
    with pytest.raises(CompileError) as caught:
        toolchain.build_library([constant(1), unit])
    message = str(caught.value)
    assert "unit.c:2:22: error: use of undeclared identifier 'missing'" in message
    kept = list((cache.folder / "failed").glob("*.c"))
    assert len(kept) == 1
    assert f"it was kept as '{kept[0]}'" in message
    assert "\n" not in message
    assert kept[0].read_text() == unit.source
    assert (cache.folder / "failed" / "own.h").exists()
    # The next build works, and takes what was compiled beside the failing unit.
    assert ctypes.CDLL(str(toolchain.build_library([constant(1)]))).number_1() == 1


def test_code_that_does_not_link(toolchain: Counting) -> None:
    with pytest.raises(CompileError, match=r"does not link: .*duplicate symbol: f"):
        toolchain.build_library(
            [
                SourceUnit("one", "int f(void) { return 1; }"),
                SourceUnit("two", "int f(void) { return 2; }"),
            ]
        )


def test_a_library_of_nothing(toolchain: Counting) -> None:
    """The linker would complain of something else."""
    with pytest.raises(CompileError, match="there are no functions to make a library of"):
        toolchain.build_library([])


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch, cache: Cache) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        CompileError, match=r"the C compiler is missing: install the 'ziglang' package"
    ):
        Toolchain(Target.host(), cache)


def test_a_compiler_that_cannot_be_started(toolchain: Counting, tmp_path: Path) -> None:
    toolchain._zig = tmp_path / "nowhere"
    with pytest.raises(
        CompileError,
        match="cannot be started: No such file or directory; reinstall the 'ziglang' package",
    ):
        toolchain.build_library([constant(1)])


def test_a_compiler_that_is_killed(
    toolchain: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain._zig = tmp_path / "zig"
    toolchain._zig.write_text("#!/bin/sh\nkill -9 $$\n")
    toolchain._zig.chmod(0o700)
    with pytest.raises(CompileError, match="the compiler was stopped by signal 9"):
        toolchain.build_library([constant(1)])
    # A linker writes through a mapping, which kills it when the disk is full.
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(CacheError, match="no space left"):
        toolchain.build_library([constant(1)])


def test_a_disk_that_is_full_for_the_compiler(
    toolchain: Counting, cache: Cache, tmp_path: Path
) -> None:
    toolchain._zig = tmp_path / "zig"
    toolchain._zig.write_text(
        "#!/bin/sh\necho 'error: unable to write unit.o: NoSpaceLeft' >&2\nexit 1\n"
    )
    toolchain._zig.chmod(0o700)
    with pytest.raises(CacheError, match=r"no space left for compiled code in '.*'; free some"):
        toolchain.build_library([constant(1)])
    assert cache.entries() == ()


def test_a_disk_that_is_full_for_the_source(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CacheError, match="no space left"):
        toolchain.build_library([constant(1)])


# ---- what the code is ----


def test_the_users_environment_does_not_reach_the_compiler(
    toolchain: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stdint.h").write_text("#error the wrong header\n")
    for name in ("CPATH", "C_INCLUDE_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("ZIG_LIB_DIR", str(tmp_path))
    assert toolchain.build_library(
        [SourceUnit("user", "#include <stdint.h>\nint32_t f(void) { return 1; }\n")]
    ).exists()


def test_nan_infinity_and_overflow_mean_what_they_say(toolchain: Counting) -> None:
    source = """
    int is_nan(float x) { return x != x; }
    int is_infinite(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
    float zero_times(float x) { return x * 0.0f; }
    int next(int x) { return x + 1; }
    """
    library = ctypes.CDLL(str(toolchain.build_library([SourceUnit("special", source)])))
    for name in ("is_nan", "is_infinite", "zero_times"):
        getattr(library, name).argtypes = [ctypes.c_float]
    library.zero_times.restype = ctypes.c_float
    nan, infinity = float("nan"), float("inf")
    assert [library.is_nan(x) for x in (nan, infinity, 1.0)] == [1, 0, 0]
    assert [library.is_infinite(x) for x in (nan, infinity, -infinity, 1.0)] == [0, 1, 1, 0]
    assert library.zero_times(nan) != library.zero_times(nan)
    assert library.zero_times(infinity) != library.zero_times(infinity)
    assert library.next(2**31 - 1) == -(2**31)  # no sanitiser stops it


def test_the_c_library_is_found_in_the_process(toolchain: Counting) -> None:
    source = (
        "double f(double x) { return __builtin_exp(x); }\n#include <string.h>\nvoid g(void *a,"
        " const void *b, size_t n) { memcpy(a, b, n); }\n"
    )
    library = ctypes.CDLL(str(toolchain.build_library([SourceUnit("user", source)])))
    library.f.argtypes, library.f.restype = [ctypes.c_double], ctypes.c_double
    assert library.f(0.0) == 1.0
    library.f.restype = ctypes.c_double
    assert abs(library.f(1.0) - 2.718281828459045) < 1e-15
    target = ctypes.create_string_buffer(4)
    library.g(target, b"abc", ctypes.c_size_t(4))
    assert target.value == b"abc"


def test_the_runtime_compiles_for_every_target(cache: Cache) -> None:
    for name in ("host", "aarch64"):
        assert Toolchain(Target.named(name), cache, 2).build_library([runtime_unit()]).exists()


ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}


@pytest.mark.parametrize("name", [name for name in Target.names() if name != "host"])
def test_every_named_target_compiles(cache: Cache, name: str) -> None:
    target = Target.named(name)
    source = (
        "void f(float *restrict x, long n) { for (long i = 0; i < n; i++) x[i] ="
        " __builtin_sqrtf(x[i]) * 2.0f + 1.0f; }\n"
    )
    data = Toolchain(target, cache, 2).build_library([SourceUnit("loop", source)]).read_bytes()
    if data[:4] == b"\x7fELF":
        assert struct.unpack_from("<H", data, 18)[0] == ELF_MACHINES[target.arch]
    else:
        assert name == "aarch64-macos"
        assert struct.unpack_from("<II", data) == (0xFEEDFACF, 0x0100000C)


def test_a_library_that_names_the_c_library_it_needs(toolchain: Counting) -> None:
    source = (
        '#include <math.h>\n#include <stdlib.h>\ndouble f(double x) { return getenv("PATH") ?'
        " pow(x, 1.5) : 0.0; }\n"
    )
    path = toolchain.build_library(
        [SourceUnit("user", source)], link_libc=True, soname="libmodel.so"
    )
    data = path.read_bytes()
    for name in (b"libmodel.so", b"libc.so.6", b"libm.so.6", b"GLIBC_2."):
        assert name in data
    library = ctypes.CDLL(str(path))
    library.f.argtypes, library.f.restype = [ctypes.c_double], ctypes.c_double
    assert library.f(4.0) == 8.0


def test_two_toolchains_at_once_on_one_cache(cache: Cache) -> None:
    units = [constant(number) for number in range(6)]
    results: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(Counting(Cache(cache.folder)).build_library(units))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert all(ctypes.CDLL(str(path)).number_5() == 5 for path in results)
