"""C programs under ThreadSanitizer, with the runtime of the system's compiler. The one that zig has
the sources of takes minutes to build.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.mutation import sanitizer
from tests.runtime.zig import zig_cc
from whence.codegen.toolchain import Toolchain

_MEMORY = Path(__file__).parent / "c" / "tsan_memory.c"


def build_watched(
    toolchain: Toolchain, folder: Path, sources: Sequence[Path], *flags: str
) -> tuple[str, ...]:
    """A command that runs a program of these sources."""
    library = sanitizer.runtime("tsan")
    if library is None:
        names = [str(source) for source in sources]
        zig_cc(toolchain, folder, *names, *flags, "-fsanitize=thread", "-g", "-o", "program")
        return (str(folder / "program"),)
    objects = []
    for source in (*sources, _MEMORY):
        # What calls the runtime must not be watched itself. Linked without the flag, the program
        # does not ask for zig's own.
        own = ("-fno-builtin",) if source == _MEMORY else ("-fsanitize=thread", "-g")
        objects.append(f"{source.stem}.o")
        zig_cc(toolchain, folder, "-c", str(source), *flags, *own, "-o", objects[-1])
    zig_cc(toolchain, folder, *objects, str(library), "-lm", "-lpthread", "-o", "program")
    # Older runtimes have a fixed place for what they know of memory, where a random one may be.
    fixed = ("setarch", "-R") if shutil.which("setarch") else ()
    return (*fixed, str(folder / "program"))
