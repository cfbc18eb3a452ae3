"""The OpenCL library that programs are linked with: the one that pyopencl brings, or the
system's.
"""

from __future__ import annotations

import ctypes.util
import os
from pathlib import Path

import pyopencl

_HOME = Path(pyopencl.__file__).parent


def opencl_library() -> str:
    """The file, or the name by which the dynamic linker finds it."""
    shipped = sorted((_HOME / ".libs").glob("libOpenCL*"))
    found = str(shipped[0]) if shipped else ctypes.util.find_library("OpenCL")
    assert found is not None, "there is no OpenCL library to link with"
    return found


def linked_with_opencl() -> tuple[str, ...]:
    """What a program is linked with, for the compiler."""
    library = opencl_library()
    if "/" not in library:
        return ("-lOpenCL",)
    return (library, f"-Wl,-rpath,{Path(library).parent}")


def environment() -> dict[str, str]:
    """That of a program which is to find the drivers that pyopencl finds."""
    folder = str(_HOME / ".libs")
    paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "PYOPENCL_HOME": str(_HOME), "LD_LIBRARY_PATH": ":".join(paths)}
