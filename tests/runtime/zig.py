"""The C compiler from the wheel, as somebody would call it who builds a program around a compiled
model.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from whence.codegen.toolchain import Toolchain


def zig_cc(toolchain: Toolchain, folder: Path, *arguments: str) -> str:
    """Run the compiler in a folder; returns what it had to say. It must succeed."""
    # The toolchain's own folder, because the first program that is linked with the C library takes
    # long to prepare.
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "ZIG_GLOBAL_CACHE_DIR": str(toolchain.cache.subfolder("zig")),
    }
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        toolchain.target.triple,
        # Without it, Zig first makes a library that checks for undefined behaviour: half a minute.
        "-O1",
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
