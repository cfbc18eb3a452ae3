"""Runtimes of AddressSanitizer and ThreadSanitizer: where they are, and how a process is started
with one.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path


def runtime(kind: str = "asan") -> Path | None:
    """The runtime library of the system's compiler, `asan` or `tsan`, or the one that the variable
    `WHENCE_ASAN_RUNTIME` names where there is no compiler; `None` where there is none.
    """
    named = os.environ.get(f"WHENCE_{kind.upper()}_RUNTIME")
    if named:
        return Path(named)
    for compiler, name in (
        ("gcc", f"lib{kind}.so"),
        ("cc", f"lib{kind}.so"),
        ("clang", f"libclang_rt.{kind}-x86_64.so"),
        ("clang", f"libclang_rt.{kind}.so"),
    ):
        try:
            said = subprocess.run(
                [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False
            ).stdout.strip()
        except OSError:
            continue
        if Path(said).is_absolute() and Path(said).exists():
            return Path(said).resolve()
    found = ctypes.util.find_library(kind)
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
    return next(
        (Path(each) / found for each in folders if found and (Path(each) / found).exists()), None
    )


def environment(library: Path) -> dict[str, str]:
    """What a process that runs sanitized code has to start with."""
    options = (
        # Python keeps what it has to the end; numpy asks for more than there is to see if it is.
        "detect_leaks=0:allocator_may_return_null=1:abort_on_error=0:exitcode=86"
        # Dead addresses are wanted; so is the process's own handler for a fault in Python.
        ":handle_segv=1:quarantine_size_mb=16:max_allocation_size_mb=4096:print_summary=1"
    )
    # Without the C++ library before others, the runtime does not find what throws exceptions.
    first = [str(library), *(["libstdc++.so.6"] if sys.platform == "linux" else [])]
    return {**os.environ, "LD_PRELOAD": ":".join(first), "ASAN_OPTIONS": options}
