"""C text into shared libraries, with the compiler that comes in the `ziglang` wheel."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from whence.codegen.cache import Cache, cache_key
from whence.codegen.functions import FunctionObjects, KernelFunction, batches
from whence.codegen.target import System, Target, usable_cores
from whence.errors import CompileError

if TYPE_CHECKING:
    import subprocess

Progress = Callable[[str, int, int], None]
"""Called as each unit is done, with its name, how many are done, and how many there are."""

COMPILE_FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    # Products may be fused with sums, and nobody reads errno or the exception flags. NaN and
    # infinities mean what they say.
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Which zero max(0, -0) is stays open: without this, a maximum that keeps NaN costs three
    # instructions more, and one of them is every ReLU.
    "-fno-signed-zeros",
    # This compiler turns these on by itself.
    "-fno-sanitize=undefined",
    "-fno-stack-protector",
    "-fomit-frame-pointer",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-g0",
    "-w",
)
# Code that checks every address it reads or writes, for processes that AddressSanitizer's runtime
# is loaded into. Little else is optimised: it is there to find faults in small models.
SANITIZE_FLAGS = ("-O1", "-fsanitize=address", "-fno-omit-frame-pointer", "-gline-tables-only")
_NO_SPACE = re.compile(r"NoSpaceLeft|No space left|DiskQuota|Disk quota")
_SCARCE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """One source text, compiled by itself: of C, or of what a backend compiles."""

    name: str
    """For people; need not be unique."""
    source: str
    headers: tuple[tuple[str, str], ...] = ()
    """Names and texts of the files it includes by `#include "..."`."""
    functions: tuple[KernelFunction, ...] = ()
    """Of which the source consists, behind its `opening`, if they stand by themselves: in which
    unit each is compiled is then left to the toolchain.
    """
    opening: str = ""

    def with_functions(self, name: str, functions: Sequence[KernelFunction]) -> Self:
        """A unit like this one, with other functions."""
        source = "\n".join([self.opening, *(each.text for each in functions)])
        return replace(self, name=name, source=source, functions=tuple(functions))


class Toolchain:
    """Compiles for one target, into one cache, `jobs` compilers at a time.

    With `sanitize`, the code checks its addresses (AddressSanitizer): programs built with it keep
    every value apart from others, and run only where the sanitizer's runtime is loaded first.
    """

    def __init__(
        self,
        target: Target | None = None,
        cache: Cache | None = None,
        jobs: int | None = None,
        *,
        sanitize: bool = False,
    ) -> None:
        self.sanitize = sanitize
        self.target = Target.default() if target is None else target
        self.cache = Cache() if cache is None else cache
        self.jobs = usable_cores() if jobs is None else max(1, jobs)
        self._zig, self._version = _find_zig()

    def build_library(
        self,
        units: Sequence[SourceUnit],
        *,
        link_libc: bool = False,
        soname: str | None = None,
        links_later: bool = False,
        progress: Progress | None = None,
    ) -> Path:
        """A shared library with the functions of all units. What was built before, for the same
        target with the same compiler, is not built again.

        Without `link_libc` the library leaves the C library's symbols to the process that loads it,
        which is quick; with it, it can be linked into any program. `soname` is then the name that
        such a program will look for. With `links_later`, that program also has to bring functions
        that are in none of the units.
        """
        if not units:
            raise CompileError("there are no functions to make a library of")
        flags = self._link_flags(link_libc, soname, links_later)
        key = cache_key("library", self._version, *flags, *self._keys(units))
        if (found := self.cache.get(key)) is not None:
            return found
        try:
            with self.cache.workspace() as work:
                data = self._link(self._objects(units, work, progress), flags, work)
        except OSError as error:
            raise self.cache.explain(error) from error
        path = self.cache.put(key, data)
        self.cache.prune()
        return path

    def compile_functions(self, like: SourceUnit, functions: Sequence[KernelFunction]) -> None:
        """Compile what of these functions was not compiled before, as in a unit like this one, for
        a library that will have them.
        """
        known = self._function_objects(like)
        missing = known.find(functions).missing
        if not missing:
            return
        unit = like.with_functions("kernels", missing)
        key = self._object_key(unit)
        try:
            with self.cache.workspace() as work:
                self._compile({key: unit}, work, None)
        except OSError as error:
            raise self.cache.explain(error) from error
        known.note(key, unit.functions)

    def key(self) -> str:
        """A string that is the same exactly where the same code is made, in the same form."""
        machine, flags = self.target, (*self._compile_flags, *self._link_flags(False, None))
        sizes = (machine.l1d, machine.l2, machine.l3, machine.lanes, machine.vector_registers)
        return "\n".join([self._version, *flags, machine.key(), *map(str, sizes)])

    def _keys(self, units: Sequence[SourceUnit]) -> list[str]:
        """What the content of a library follows from."""
        keys: dict[str, None] = {}
        for unit in units:
            known = self._function_objects(unit)
            keys.update(dict.fromkeys(map(known.key, unit.functions)))
            if not unit.functions:
                keys[self._object_key(unit)] = None
        return list(keys)

    def _object_key(self, unit: SourceUnit) -> str:
        return self._key_of("object", unit, unit.source)

    def _function_objects(self, unit: SourceUnit) -> FunctionObjects:
        return FunctionObjects(self.cache, lambda text: self._key_of("function", unit, text))

    def _key_of(self, kind: str, unit: SourceUnit, text: str) -> str:
        headers = [text for header in unit.headers for text in header]
        return cache_key(
            kind, self._version, *self._compile_flags, self.target.key(), text, *headers
        )

    # ---- compiling ----

    def _objects(
        self, units: Sequence[SourceUnit], work: Path, progress: Progress | None
    ) -> Sequence[Path]:
        """Objects with everything that is in the units, nothing twice."""
        wanted = {self._object_key(unit): unit for unit in units if not unit.functions}
        found: list[Path] = []
        made: list[tuple[str, SourceUnit]] = []
        kinds = {unit.headers: unit for unit in units if unit.functions}
        for kind in kinds.values():
            functions = [
                each for unit in units if unit.headers == kind.headers for each in unit.functions
            ]
            known = self._function_objects(kind).find(functions)
            found += known.objects
            for number, batch in enumerate(batches(known.missing, self.jobs)):
                unit = kind.with_functions(f"kernels{number}", batch)
                made.append((self._object_key(unit), unit))
        objects = self._compile({**wanted, **dict(made)}, work, progress)
        for key, unit in made:
            self._function_objects(unit).note(key, unit.functions)
        return list(dict.fromkeys([*found, *objects.values()]))

    @property
    def _compile_flags(self) -> tuple[str, ...]:
        return COMPILE_FLAGS + self.target.flags + (SANITIZE_FLAGS if self.sanitize else ())

    def _compile(
        self, units: dict[str, SourceUnit], work: Path, progress: Progress | None
    ) -> dict[str, Path]:
        # Here, and not above, because most starts find everything compiled already.
        from concurrent.futures import ThreadPoolExecutor, as_completed

        done: dict[str, Path] = {}

        def finished(key: str, path: Path) -> None:
            done[key] = path
            if progress is not None:
                progress(units[key].name, len(done), len(units))

        missing = []
        for key in units:
            if (found := self.cache.get(key)) is not None:
                finished(key, found)
            else:
                missing.append(key)
        with ThreadPoolExecutor(self.jobs) as pool:
            running = {
                pool.submit(self._compile_one, key, units[key], work): key for key in missing
            }
            try:
                for future in as_completed(running):
                    finished(running[future], future.result())
            finally:
                pool.shutdown(cancel_futures=True)  # after a failure, do not begin the rest
        return done

    def _compile_one(self, key: str, unit: SourceUnit, work: Path) -> Path:
        folder = work / key[:32]
        folder.mkdir()
        output = folder / "unit.o"
        _write_source(unit, folder / "unit.c")
        run = self._run(["-c", "unit.c", "-o", "unit.o", *self._compile_flags], folder)
        if run.returncode != 0 or not output.exists():
            raise CompileError(
                f"the generated code of {unit.name!r} does not compile: {_first_error(run)}; it was"
                f" kept as '{self._keep_failed(key, unit)}'"
            )
        return self.cache.put(key, output.read_bytes())

    def _keep_failed(self, key: str, unit: SourceUnit) -> Path:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "_", unit.name)[:60] or "unit"
        folder = self.cache.subfolder("failed")
        if not folder.is_relative_to(self.cache.folder):
            folder = Path(
                tempfile.mkdtemp(prefix="whence-failed-")
            )  # it is to be read after this process has ended
        path = folder / f"{stem}-{key[:12]}.c"
        _write_source(unit, path)
        return path

    # ---- linking ----

    def _link_flags(
        self, link_libc: bool, soname: str | None, links_later: bool = False
    ) -> tuple[str, ...]:
        macos = self.target.system is System.MACOS
        # Without -nostdlib, this compiler would first spend half a minute on building support
        # libraries that nothing here needs.
        flags = ["-target", self.target.triple, "-shared", "-s", "-nostdlib"]
        if link_libc:
            flags += ["-lc", "-lm", "-lpthread"]
        if macos and (links_later or not link_libc):
            flags += ["-Wl,-undefined,dynamic_lookup"]
        if soname is not None:
            flags += [f"-Wl,-install_name,@rpath/{soname}" if macos else f"-Wl,-soname,{soname}"]
        return tuple(flags)

    def _link(self, objects: Sequence[Path], flags: Sequence[str], work: Path) -> bytes:
        # The linker tells what a file is by its ending, which entries of the cache do not have.
        names = []
        for number, each in enumerate(objects):
            (work / f"{number}.o").symlink_to(each)
            names.append(f"{number}.o")
        output = work / f"library{self.target.library_suffix}"
        run = self._run([*flags, *names, "-o", output.name], work)
        if run.returncode != 0 or not output.exists():
            raise CompileError(f"the compiled code does not link: {_first_error(run)}")
        return output.read_bytes()

    # ---- running the compiler ----

    def _run(self, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        import subprocess  # which most starts do without

        # Nothing of the user's environment may change the code, since the cache does not know of
        # it.
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ
        }
        environment |= {
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
            "ZIG_GLOBAL_CACHE_DIR": str(self._zig_folder),
            "LC_ALL": "C",
        }
        command = [str(self._zig), "cc", *arguments]
        try:
            run = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise CompileError(
                f"the compiler '{self._zig}' cannot be started: {error.strerror}; reinstall the"
                " 'ziglang' package"
            ) from error
        if run.returncode != 0 and _ran_out_of_space(run, folder):
            raise self.cache.full()
        return run

    @functools.cached_property
    def _zig_folder(self) -> Path:
        return self.cache.subfolder("zig")


def _write_source(unit: SourceUnit, path: Path) -> None:
    """The unit's source, and beside it what it includes."""
    for name, text in (*unit.headers, (path.name, unit.source)):
        path.with_name(name).write_text(text, encoding="utf-8")


def _find_zig() -> tuple[Path, str]:
    """The compiler's path and version."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "zig"
        if path.exists():
            return path, installed_version("ziglang", Path(folder).parent)
    raise CompileError(
        "the C compiler is missing: install the 'ziglang' package (pip install ziglang)"
    )


def installed_version(package: str, folder: Path) -> str:
    """The version of a package in a folder of packages. The name of the folder that describes it
    says so, which is quicker than asking Python.
    """
    found = [
        path.name.removeprefix(f"{package}-").removesuffix(".dist-info")
        for path in folder.glob(f"{package}-*.dist-info")
    ]
    if len(found) == 1:
        return found[0]
    import importlib.metadata

    return importlib.metadata.version(package)


def _ran_out_of_space(run: subprocess.CompletedProcess[str], folder: Path) -> bool:
    # The linker writes through a mapping, and is killed by a signal when the disk cannot back it.
    return bool(_NO_SPACE.search(run.stderr)) or (
        run.returncode < 0 and shutil.disk_usage(folder).free < _SCARCE_BYTES
    )


def _first_error(run: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    if run.returncode < 0:
        return f"the compiler was stopped by signal {-run.returncode}"
    return next(
        (line for line in lines if "error" in line),
        lines[0] if lines else f"exit code {run.returncode}",
    )
